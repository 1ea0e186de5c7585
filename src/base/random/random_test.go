package random

import (
	"math/bits"
	"testing"
)

// The first words of SplitMix64 with the seed 1234567, as the reference implementation in C gives
// them (S. Vigna, https://prng.di.unimi.it/splitmix64.c).
func TestReferenceWords(t *testing.T) {
	s := Stream(1234567)
	for i, want := range []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
		16408922859458223821,
	} {
		if got := s.Next(); got != want {
			t.Errorf("word %d is %d, expected %d", i, got, want)
		}
	}
}

// One bit of the key moves half of the bits of the word.
func TestEveryBitMovesEveryBit(t *testing.T) {
	const keys = 2000
	for bit := range 64 {
		moved := 0
		for key := range uint64(keys) {
			moved += bits.OnesCount64(Mix(key*Golden) ^ Mix(key*Golden^1<<bit))
		}
		if mean := float64(moved) / keys; mean < 31 || mean > 33 {
			t.Errorf("bit %d moves %.2f bits", bit, mean)
		}
	}
}
