package access

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/data/dataset"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// laborFormula is one hop of Labor, with destinations sorted, edge by edge.
func laborFormula(g *graph.CSC, p []float64, fanout int) []float64 {
	type taker struct{ c, p float64 }
	by := make([][]taker, g.NumVertices())
	for v := range by {
		row := g.InNeighbours(graph.VertexID(v))
		c := min(1, float64(fanout)/float64(len(row)))
		for _, u := range row {
			by[u] = append(by[u], taker{c, p[v]})
		}
	}
	out := make([]float64, len(by))
	for u, all := range by {
		slices.SortFunc(all, func(a, b taker) int { return cmp.Compare(b.c, a.c) })
		miss := 1.0
		for i, t := range all {
			next := 0.0
			if i+1 < len(all) {
				next = all[i+1].c
			}
			miss *= 1 - t.p
			out[u] += (t.c - next) * (1 - miss)
		}
	}
	return out
}

// Classes of thresholds change the formula by less than their width, mostly by much less.
func TestLaborEqualsFormula(t *testing.T) {
	r := graphtest.Random(t)
	const n = 400
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 9000)...)
	m := mustNew(t, g, Options{Workers: 2})
	var train []graph.VertexID
	for _, v := range r.Perm(n)[:60] {
		train = append(train, graph.VertexID(v))
	}
	for _, batch := range []float64{3, 60} {
		for _, layers := range []bool{false, true} {
			spec := sample.Spec{Kind: sample.Labor, Fanouts: []int{4},
				Numbers: sample.Numbers{Layers: layers}}
			got := memtest.Must[float32](t)(m.Labor(train, batch, spec))
			p := make([]float64, n)
			for _, v := range train {
				p[v] = batch / 60
			}
			off, all := 0.0, 0.0
			for u, x := range laborFormula(g, p, 4) {
				want := 1 - (1-p[u])*(1-x)
				if d := math.Abs(float64(got[u]) - want); d > want/8 {
					t.Fatalf("batch %g: vertex %d has %g, want %g", batch, u, got[u], want)
				}
				off, all = off+float64(got[u])-want, all+want
			}
			if math.Abs(off) > 0.005*all {
				t.Errorf("batch %g: %g rows of %g too many", batch, off, all)
			}
		}
	}
}

// The analysis predicts the rows that minibatches by numbers read within 6%, and its cache misses
// at most 5% more than that of the oracle.
func TestLaborPredictsSimulation(t *testing.T) {
	race.Alone(t)
	g := newGenerated(t, 2,
		dataset.GenerateOptions{Vertices: 8000, Degree: 30, Features: 1, Seed: 2, Split: "8/2/90"})
	const batch, epochs, part = 24, 16, 1
	streams := g.streams(t, batch)
	mean := float64(len(g.train[part])) / float64(streams.Steps())
	for _, spec := range []sample.Spec{
		{Kind: sample.Labor}, {Kind: sample.Labor, Numbers: sample.Numbers{Layers: true}},
		{Kind: sample.Poisson, Numbers: sample.Numbers{Shared: true}},
	} {
		spec.Fanouts = []int{15, 10, 5}
		spec = spec.InJob(streams.Steps(), 1, 1, 1)
		counts := memtest.Must[float32](t)(Count(g.topology, &sample.Sweep{Spec: spec, Epoch: 1,
			Epochs: epochs, Workers: 2,
			Reader: sample.Reader{Streams: streams, First: part, Count: 1, Seed: 5}}))
		p := memtest.Must[float32](t)(g.Labor(g.train[part], mean, spec))
		reads := memtest.Must[float32](t)(g.Reads(&Workload{Sample: spec,
			Sources: Sources(streams, part, 1)}))
		if !slices.Equal(reads, p) {
			t.Errorf("%v: Reads is another analysis", spec)
		}
		for _, alpha := range []float64{0, 0.3} {
			capacity, local := int(alpha*8000/2), g.parts[part:part+1]
			cached := memtest.Must[graph.VertexID](t)(g.Top(p, local, capacity))
			best := memtest.Must[graph.VertexID](t)(g.Top(counts, local, capacity))
			steps := epochs * streams.Steps()
			measured, oracle := g.perStep(t, counts, part, steps, cached),
				g.perStep(t, counts, part, steps, best)
			predicted := g.perStep(t, p, part, 1, cached)
			t.Logf("%v, alpha %g: %.0f rows a step, predicted %.0f, oracle %.0f", spec, alpha,
				measured, predicted, oracle)
			if math.Abs(predicted/measured-1) > 0.06 || measured > 1.05*oracle {
				t.Errorf("%v, alpha %g: %g rows a step, predicted %g, by the oracle %g", spec,
					alpha, measured, predicted, oracle)
			}
		}
	}
}
