package mpi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestCut(t *testing.T) {
	const full = math.MaxInt32
	for _, test := range []struct {
		name           string
		limit          int
		rows           []int
		counts, displs []int32
		messages       []message
		packed         int
	}{
		{"fits", 100, []int{3, 0, 25, 4}, []int32{3, 0, 25, 4}, []int32{0, 0, 3, 28}, nil, 0},
		{"pair above its share goes by message", 100, []int{3, 26, 4, 0}, []int32{3, 0, 4, 0},
			[]int32{0, 0, 29, 0}, []message{{1, 3, 26}}, 0},
		{"messages of at most limit rows", 10, []int{25, 1}, []int32{0, 1}, []int32{0, 0},
			[]message{{0, 0, 10}, {0, 10, 10}, {0, 20, 5}}, 1},
		{"limit below the ranks", 2, []int{1, 0, 1}, []int32{0, 0, 0}, []int32{0, 0, 0},
			[]message{{0, 0, 1}, {2, 1, 1}}, 0},
		{"last displacement that fits", full, []int{full, 5}, []int32{0, 5}, []int32{0, full},
			[]message{{0, 0, full}}, 0},
		{"displacement beyond it is packed", full, []int{full, 5, 7}, []int32{0, 5, 7},
			[]int32{0, 0, 5}, []message{{0, 0, full}}, 12},
		{"4e9 rows to one rank", full, []int{0, 4_000_000_000}, []int32{0, 0}, []int32{0, 0},
			[]message{{1, 0, full}, {1, full, 4_000_000_000 - full}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c cut
			c.plan(test.rows, test.limit, test.limit)
			if !reflect.DeepEqual(c.counts, test.counts) || c.packed != test.packed ||
				fmt.Sprint(c.messages) != fmt.Sprint(test.messages) {
				t.Errorf("counts %v messages %v packed %d, want %v %v %d", c.counts, c.messages,
					c.packed, test.counts, test.messages, test.packed)
			}
			for r := range test.displs {
				if test.counts[r] > 0 && c.displs[r] != test.displs[r] {
					t.Errorf("rows of rank %d are displaced by %d, want %d", r, c.displs[r],
						test.displs[r])
				}
			}
		})
	}
}

// TestCutLaws: every row travels once, counts and displacements stay under the limit, and the ends
// of a pair agree.
func TestCutLaws(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		size, limit, piece := 1+rng.IntN(6), 1+rng.IntN(40), 1+rng.IntN(60)
		rows := make([]int, size)
		for r := range rows {
			rows[r] = rng.IntN(1 + rng.IntN(30))
		}
		var c, gather cut
		c.plan(rows, limit, piece)
		gather.planGather(rows, limit)
		for i, c := range []cut{c, gather} {
			most := []int{min(limit, piece), limit}[i]
			seen := make([]int, size)
			inside := 0
			for r, n := range c.counts {
				seen[r] += int(n)
				inside += int(n)
				if n > 0 && c.displs[r] > int32(limit) {
					t.Fatalf("seed %d: displacement %d above the limit %d", seed, c.displs[r],
						limit)
				}
			}
			for _, m := range c.messages {
				if m.first != c.first[m.peer]+seen[m.peer] || m.rows > most || m.rows < 1 {
					t.Fatalf("seed %d: message %+v after %d rows, at most %d", seed, m,
						seen[m.peer], most)
				}
				seen[m.peer] += m.rows
			}
			if !reflect.DeepEqual(seen, rows) || inside > limit {
				t.Fatalf("seed %d: rows %v went as %v, %d by the collective; limit %d", seed, rows,
					seen, inside, limit)
			}
		}
		// Whether a pair is in the collective depends on its count alone, so the other end decides
		// the same.
		for r, n := range rows {
			if inside := c.counts[r] > 0; inside != (n > 0 && n <= min(limit/size, piece)) {
				t.Fatalf("seed %d: pair of %d rows, limit %d for %d ranks: in the collective: %t",
					seed, n, limit, size, inside)
			}
		}
	}
}

func TestPackRestores(t *testing.T) {
	var c cut
	c.plan([]int{9, 2, 9, 1}, 8, 8)
	if c.packed != 3 {
		t.Fatalf("packed %d rows, want 3", c.packed)
	}
	rows := make([]byte, 21*2)
	for i := range rows {
		rows[i] = byte(i)
	}
	packed, back := make([]byte, 6), make([]byte, len(rows))
	c.pack(packed, rows, 2, false)
	if want := []byte{18, 19, 20, 21, 40, 41}; !reflect.DeepEqual(packed, want) {
		t.Fatalf("packed %v, want %v", packed, want)
	}
	c.pack(packed, back, 2, true)
	for i := range back {
		if inside := i >= 18 && i < 22 || i >= 40; inside && back[i] != rows[i] || !inside &&
			back[i] != 0 {
			t.Fatalf("unpacked %v", back)
		}
	}
}
