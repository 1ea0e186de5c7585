package sample

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// rare is the probability below which a test rejects a result. The seeds are fixed, so a test that
// passes always passes.
const rare = 1e-5

// inclusion draws many times and returns the probability that a correct sampler gives inclusion
// counts as uneven as these, or worse. The counts of a draw add up to fanout, so the statistic has
// one degree of freedom less than there are neighbours: X2 = (degree-1)/degree * sum of (count -
// mean)^2 / (draws * p * (1-p)).
func inclusion(degree, fanout, draws int, choose func(pos []int64, s stream)) float64 {
	counts := make([]int, degree)
	pos := make([]int64, fanout)
	for i := range draws {
		choose(pos, vertexStream(Key{Seed: 7, Step: degree}.hop(fanout), int32(i)))
		for _, p := range pos {
			counts[p]++
		}
	}
	p := float64(fanout) / float64(degree)
	x2 := 0.0
	for _, c := range counts {
		d := float64(c) - float64(draws)*p
		x2 += d * d / (float64(draws) * p * (1 - p))
	}
	x2 *= float64(degree-1) / float64(degree)
	return distuv.ChiSquared{K: float64(degree - 1)}.Survival(x2)
}

func TestInclusionIsUniform(t *testing.T) {
	for _, c := range []struct{ degree, fanout int }{
		{2, 1}, {3, 2}, {20, 5}, {64, 63}, {65, 1}, {65, 64}, {66, 65}, {100, 10}, {1000, 15},
		{300, 100}, {130, 120},
	} {
		var set picks
		p := inclusion(c.degree, c.fanout, 10000,
			func(pos []int64, s stream) { set.choose(pos, 0, int64(c.degree), s) })
		if p < rare {
			t.Errorf("degree %d, fanout %d: inclusion frequencies this uneven have probability "+
				"%.2g", c.degree, c.fanout, p)
		}
	}
}

// Drawing from [0,j) instead of [0,j] is a known bug of published samplers; the test above must
// detect it.
func TestInclusionSeesFloydOffByOne(t *testing.T) {
	for _, c := range []struct{ degree, fanout int }{{2, 1}, {20, 5}} {
		p := inclusion(c.degree, c.fanout, 20000, func(pos []int64, s stream) {
			pos = pos[:0]
			for j := c.degree - c.fanout; j < c.degree; j++ {
				pick := int64(s.below(uint64(j)))
				if slices.Contains(pos, pick) {
					pick = int64(j)
				}
				pos = append(pos, pick)
			}
		})
		if p > rare {
			t.Errorf("degree %d, fanout %d: the wrong sampler passes with probability %.2g",
				c.degree, c.fanout, p)
		}
	}
}

func TestSubsetsAreUniform(t *testing.T) {
	const draws = 60000
	counts := map[[3]int64]int{} // 20 subsets of three of six
	pos := make([]int64, 3)
	for i := range draws {
		new(picks).choose(pos, 0, 6, vertexStream(Key{Seed: 3}.hop(1), int32(i)))
		slices.Sort(pos)
		counts[[3]int64(pos)]++
	}
	x2 := 0.0
	for _, c := range counts {
		d := float64(c) - draws/20.0
		x2 += d * d / (draws / 20.0)
	}
	if p := (distuv.ChiSquared{K: 19}).Survival(x2); len(counts) != 20 || p < rare {
		t.Errorf("%d of 20 subsets seen, probability %.2g", len(counts), p)
	}
}

func TestChooseIsDistinctAndInRange(t *testing.T) {
	for degree := 2; degree < 200; degree++ {
		for _, fanout := range []int{1, degree / 2, degree - 1} {
			if fanout == 0 {
				continue
			}
			var set picks
			pos := make([]int64, fanout)
			set.choose(pos, 1000, int64(degree), stream(degree))
			slices.Sort(pos)
			if pos[0] < 1000 || pos[fanout-1] >= int64(1000+degree) ||
				len(slices.Compact(pos)) != fanout {
				t.Fatalf("degree %d, fanout %d: drew %v", degree, fanout, pos)
			}
		}
	}
}

// Where the range does not divide 2^64 some words must be redrawn. With n = 3*2^62 that is every
// fourth word; without redrawing, every third number would be drawn twice as often.
func TestBelowIsExact(t *testing.T) {
	const n, draws = 3 << 62, 30000
	var counts [3]float64
	below, redraw := stream(1), stream(1)
	for range draws {
		v := below.below(n)
		if v >= n {
			t.Fatalf("drew %d of %d", v, uint64(n))
		}
		counts[v%3]++
		hi, lo := bits.Mul64(redraw.next(), n)
		if lo < n {
			hi = redraw.redraw(hi, lo, n)
		}
		if hi != v {
			t.Fatalf("redraw gives %d, below %d", hi, v)
		}
	}
	x2 := 0.0
	for _, c := range counts {
		x2 += (c - draws/3) * (c - draws/3) / (draws / 3)
	}
	if p := (distuv.ChiSquared{K: 2}).Survival(x2); p < rare {
		t.Errorf("residues %v have probability %.2g", counts, p)
	}
	if redraw != below {
		t.Error("redraw and below used different numbers of words")
	}
}

func TestPicksForgetWhenTheStampWraps(t *testing.T) {
	const fanout, degree = 70, 80
	var set, fresh picks
	got, want := make([]int64, fanout), make([]int64, fanout)
	set.choose(got, 0, degree, stream(1)) // leaves entries of stamp 1
	set.stamp = math.MaxUint32 - 1
	for i := range 3 {
		set.choose(got, 0, degree, stream(i))
		fresh.choose(want, 0, degree, stream(i))
		if !slices.Equal(got, want) {
			t.Fatalf("draw %d, stamp %d: %v, want %v", i, set.stamp, got, want)
		}
	}
}

// A change of any word of the key, of the hop or of the vertex must change the random sequence.
func TestKeysNameDifferentStreams(t *testing.T) {
	seen := map[uint64]Key{}
	for seed := range uint64(4) {
		for epoch := range 4 {
			for step := range 4 {
				for id := range 4 {
					for h := 1; h < 4; h++ {
						k := Key{Seed: seed, Epoch: epoch, Step: step, Stream: id}
						if old, twice := seen[k.hop(h)]; twice {
							t.Fatalf("%+v and %+v name one stream", old, k)
						}
						seen[k.hop(h)] = k
					}
				}
			}
		}
	}
	if vertexStream(1, 2) == vertexStream(1, 3) {
		t.Error("two vertices have one stream")
	}
}
