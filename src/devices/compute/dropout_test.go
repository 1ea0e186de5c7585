package compute_test

import (
	"math"
	"testing"

	"halognn/src/devices/compute"
)

// The share of kept elements is 1-p, by row, by column and in total, within the standard error.
func TestDropoutKeepsItsShare(t *testing.T) {
	const rows, cols = 4000, 256
	for _, p := range []float32{0.1, 0.5, 0.9} {
		key := compute.NewDropoutKey(1, 0, 0, 0, 0)
		byRow, byColumn := make([]int, rows), make([]int, cols)
		all := 0
		for r := range rows {
			row := key.Row(int32(r))
			for j := range cols {
				if row.Bits(j) >= compute.DropoutThreshold(p) {
					byRow[r]++
					byColumn[j]++
					all++
				}
			}
		}
		q := 1 - float64(p)
		off := func(kept, n int) float64 {
			return math.Abs(float64(kept)-q*float64(n)) / math.Sqrt(float64(n)*q*(1-q))
		}
		if d := off(all, rows*cols); d > 4 {
			t.Errorf("p=%v: %d of %d kept, %.1f standard deviations off", p, all, rows*cols, d)
		}
		for j, kept := range byColumn {
			if d := off(kept, rows); d > 5 {
				t.Errorf("p=%v: column %d keeps %d of %d, %.1f standard deviations off", p, j, kept,
					rows, d)
			}
		}
		for r, kept := range byRow {
			if d := off(kept, cols); d > 6 {
				t.Errorf("p=%v: row %d keeps %d of %d, %.1f standard deviations off", p, r, kept,
					cols, d)
			}
		}
	}
}

// Bits of neighbours agree half of the time: next column, next vertex, and every part of the key.
func TestDropoutBitsAreIndependent(t *testing.T) {
	const n = 1 << 17
	base := compute.NewDropoutKey(1, 2, 3, 4, 5)
	bit := func(k compute.DropoutKey, i, j int) uint32 { return k.Row(int32(i)).Bits(j) }
	for _, c := range []struct {
		name  string
		other func(i, j int) uint32
	}{
		{"next column", func(i, j int) uint32 { return bit(base, i, j+1) }},
		{"16 columns on", func(i, j int) uint32 { return bit(base, i, j+16) }},
		{"next vertex", func(i, j int) uint32 { return bit(base, i+1, j) }},
		{"vertex and column exchanged", func(i, j int) uint32 { return bit(base, j+1<<20, i) }},
		{"seed", func(i, j int) uint32 { return bit(compute.NewDropoutKey(0, 2, 3, 4, 5), i, j) }},
		{"epoch", func(i, j int) uint32 { return bit(compute.NewDropoutKey(1, 3, 3, 4, 5), i, j) }},
		{"step", func(i, j int) uint32 { return bit(compute.NewDropoutKey(1, 2, 4, 4, 5), i, j) }},
		{"stream",
			func(i, j int) uint32 { return bit(compute.NewDropoutKey(1, 2, 3, 5, 5), i, j) }},
		{"layer", func(i, j int) uint32 { return bit(compute.NewDropoutKey(1, 2, 3, 4, 6), i, j) }},
		{"epoch and step exchanged",
			func(i, j int) uint32 { return bit(compute.NewDropoutKey(1, 3, 2, 4, 5), i, j) }},
	} {
		var ones [32]int
		for k := range n {
			i, j := k/64, k%64
			for b, x := 0, bit(base, i, j)^c.other(i, j); b < 32; b++ {
				ones[b] += int(x >> b & 1)
			}
		}
		for b, got := range ones {
			if d := math.Abs(float64(got)-n/2) / math.Sqrt(n/4); d > 5 {
				t.Errorf("%s: bit %d differs in %d of %d, %.1f standard deviations off half",
					c.name, b, got, n, d)
			}
		}
	}
}

// The masks must not change, because results of a given seed depend on them. The numbers come from
// a Python program written from the comment in dropout.go.
func TestDropoutBitsAreFixed(t *testing.T) {
	key := compute.NewDropoutKey(42, 1, 2, 3, 4)
	row := key.Row(123456789)
	got := [4]uint32{row.Bits(0), row.Bits(1), row.Bits(255), key.Row(0).Bits(0)}
	want := [4]uint32{0xc41ed0bd, 0xcd9fefba, 0x2e3bef43, 0x8e7441d2}
	if got != want {
		t.Errorf("bits %#x, want %#x", got, want)
	}
}
