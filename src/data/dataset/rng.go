package dataset

import (
	"math"
	"math/bits"

	"halognn/src/base/random"
)

// stream is a sequence of random numbers. Every draw in this package uses a sequence that is keyed
// by its purpose, never shared state, so results do not depend on threads or on order. It uses only
// integer arithmetic and exact scaling, so results are equal on every machine.
type stream random.Stream

// newStream returns the sequence that a seed and the numbers of a key determine.
func newStream(seed uint64, key ...uint64) stream {
	s := random.Mix(seed + random.Golden)
	for _, k := range key {
		s = random.Mix(s + random.Golden ^ k)
	}
	return stream(s)
}

func (s *stream) next() uint64 { return (*random.Stream)(s).Next() }

// intn returns a number in [0,n): the high half of a product with n. The bias is below n/2^64,
// which is negligible.
func (s *stream) intn(n int) int {
	hi, _ := bits.Mul64(s.next(), uint64(n))
	return int(hi)
}

func (s *stream) float() float64 { return float64(s.next()>>11) * 0x1p-53 }

// noise returns a nearly normal number of mean 0 and variance 1, between -3.46 and 3.46: a scaled
// sum of four uniform numbers.
func (s *stream) noise() float32 {
	x := s.next()
	sum := int32(x&0xffff) + int32(x>>16&0xffff) + int32(x>>32&0xffff) + int32(x>>48) - 2*0xffff
	return float32(sum) * noiseScale
}

// noiseScale divides by the standard deviation: four uniform numbers on 2^16 points have a sum of
// variance 4 (2^32 - 1) / 12.
var noiseScale = float32(1 / math.Sqrt((0x1p32-1)/3))

// shuffle permutes the numbers (Fisher and Yates).
func shuffle[T any](s *stream, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := s.intn(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}

// The keys of the random sequences, by purpose.
const (
	keySplit = iota + 1
	keyEdge
	keyDegree
	keyCommunity
	keyID
	keyClass
	keyLabelled
	keyCentroid
	keyFeature
	keyWeight
	keyLink
)
