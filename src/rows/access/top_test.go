package access

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
)

// Top is the head of a sort by score, out-degree and id, for scores with many ties and for all
// capacities.
func TestTopIsHeadOfSort(t *testing.T) {
	r := graphtest.Random(t)
	const n = 500
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 2000)...)
	m := mustNew(t, g, Options{})
	for _, c := range []struct {
		name  string
		local []Range
		score func() float32
	}{
		{"distinct", []Range{{0, 100}}, r.Float32},
		{"few values", []Range{{400, 500}}, func() float32 { return float32(r.IntN(4)) }},
		{"all ties", []Range{{50, 60}, {60, 70}, {90, 200}}, func() float32 { return 1 }},
		{"nothing local", nil, r.Float32},
		{"all local", []Range{{0, n}}, r.Float32},
		{"all zero", nil, func() float32 { return 0 }},
		{"wide range", nil, func() float32 { return float32(math.Exp(80 * (r.Float64() - 0.5))) }},
		{"largest and infinite", nil, func() float32 {
			return []float32{math.MaxFloat32, float32(math.Inf(1)), 1}[r.IntN(3)]
		}},
	} {
		score := make([]float32, n)
		var sorted []graph.VertexID
		for v := range score {
			score[v] = c.score()
			isLocal := slices.ContainsFunc(c.local,
				func(l Range) bool {
					return graph.VertexID(v) >= l.First &&
						graph.VertexID(v) < l.End
				})
			if score[v] > 0 && !isLocal {
				sorted = append(sorted, graph.VertexID(v))
			}
		}
		slices.SortFunc(sorted, func(a, b graph.VertexID) int {
			return cmp.Or(cmp.Compare(score[b], score[a]),
				cmp.Compare(m.out.InDegree(b), m.out.InDegree(a)), cmp.Compare(a, b))
		})
		for _, capacity := range []int{0, 1, 2, 17, 100, 299, 300, len(sorted), len(sorted) + 1,
			10 * n} {
			want := slices.Clone(sorted[:min(capacity, len(sorted))])
			slices.Sort(want)
			got, err := m.Top(score, c.local, capacity)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s, capacity %d: %d (%v), want %d", c.name, capacity, got, err, want)
			}
		}
	}
}

func TestExpected(t *testing.T) {
	p := make([]float32, 100)
	for v := range p {
		p[v] = float32(v) / 128
	}
	for _, c := range []struct {
		name   string
		local  []Range
		cached []graph.VertexID
		want   float64
	}{
		{"all remote", nil, nil, 99 * 100 / 2 / 128.},
		{"a part", []Range{{0, 90}}, nil, (90 + 99) * 10 / 2 / 128.},
		{"two parts and a cache", []Range{{0, 90}, {95, 100}}, graphtest.IDs(91, 94),
			(90 + 92 + 93) / 128.},
		{"all cached", []Range{{1, 100}}, graphtest.IDs(0), 0},
	} {
		if got, err := Expected(p, c.local, c.cached); err != nil || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %g (%v), want %g", c.name, got, err, c.want)
		}
	}
}

// Selection finds the key at every rank of any 64-bit keys.
func TestSelectKey(t *testing.T) {
	r := graphtest.Random(t)
	for range 50 {
		keys := make([]uint64, 1+r.IntN(300))
		for i := range keys {
			keys[i] = rand.Uint64() >> (8 * r.IntN(8)) & (math.MaxUint64 << (8 * r.IntN(4)))
		}
		sorted := slices.Clone(keys)
		slices.SortFunc(sorted, func(a, b uint64) int { return cmp.Compare(b, a) })
		count := 1 + r.IntN(len(keys))
		least, rest := selectKey(func(yield func(graph.VertexID, uint64, int)) {
			for i, k := range keys {
				yield(graph.VertexID(i), k, 1)
			}
		}, count)
		if want := sorted[count-1]; least != want || count-rest != slices.Index(sorted, want) {
			t.Errorf("%d of %d: key %x with room for %d equal ones, want %x", count, len(keys),
				least, rest, want)
		}
	}
}
