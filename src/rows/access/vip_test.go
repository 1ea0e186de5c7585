package access

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
)

// enumerate returns the exact probability that each vertex is read, by trying every outcome: every
// set of batch seeds, and every set of draws of every vertex. With keep, frontiers keep their
// destinations, which draw again at every hop, as in package sample; without, only the vertices
// found at a hop draw at the next, and seeds do not count: the process of the paper's formula.
func enumerate(g *graph.CSC, train []graph.VertexID, batch int, fanouts []int,
	keep bool) []float64 {
	p := make([]float64, g.NumVertices())
	var hop func(h int, frontier, read []bool, weight float64)
	hop = func(h int, frontier, read []bool, weight float64) {
		if h == len(fanouts) {
			for v := range p {
				if read[v] {
					p[v] += weight
				}
			}
			return
		}
		found := make([]bool, len(read))
		if keep {
			copy(found, frontier)
		}
		var draw func(v int, weight float64)
		draw = func(v int, weight float64) {
			for v < len(frontier) && !frontier[v] {
				v++
			}
			if v == len(frontier) {
				union := make([]bool, len(read))
				for u := range union {
					union[u] = read[u] || found[u]
				}
				hop(h+1, append([]bool(nil), found...), union, weight)
				return
			}
			neighbours := g.InNeighbours(graph.VertexID(v))
			before := append([]bool(nil), found...)
			subsets(len(neighbours), fanouts[h], func(chosen []int, share float64) {
				for _, i := range chosen {
					found[neighbours[i]] = true
				}
				draw(v+1, weight*share)
				copy(found, before)
			})
		}
		draw(0, weight)
	}
	subsets(len(train), batch, func(chosen []int, share float64) {
		seeds, none := make([]bool, len(p)), make([]bool, len(p))
		for _, i := range chosen {
			seeds[train[i]] = true
		}
		if keep {
			hop(0, seeds, seeds, share)
		} else {
			hop(0, seeds, none, share)
		}
	})
	return p
}

// subsets yields every set of min(k,n) of n things, all of them for sample.All, with the
// probability of each.
func subsets(n, k int, yield func(chosen []int, share float64)) {
	if k == sample.All || k > n {
		k = n
	}
	count := 1.0
	for i := range k {
		count *= float64(n-i) / float64(i+1)
	}
	chosen := make([]int, 0, k)
	var choose func(from int)
	choose = func(from int) {
		if len(chosen) == k {
			yield(append([]int(nil), chosen...), 1/count)
			return
		}
		for i := from; i < n; i++ {
			chosen = append(chosen, i)
			choose(i + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	choose(0)
}

// randomForest is a directed graph in which every vertex may be sampled by at most one other, its
// parent, under random names, and some of the roots.
func randomForest(t *testing.T, r *rand.Rand, n int) (*graph.CSC, []graph.VertexID) {
	name := r.Perm(n)
	trees := 2 + r.IntN(3)
	children := make([]int, n)
	var edges [][2]int
	for v := trees; v < n; v++ {
		parent := r.IntN(v)
		for children[parent] == 3 {
			parent = r.IntN(v)
		}
		children[parent]++
		edges = append(edges, [2]int{name[v], name[parent]})
	}
	return graphtest.NewGraph(t, n, edges...), graphtest.IDs(name[:trees]...)
}

// Where no two sampling paths meet, both models are exact, and so the direction of the edges is
// right.
func TestExactOnForests(t *testing.T) {
	r := graphtest.Random(t)
	for range 40 {
		g, train := randomForest(t, r, 14)
		fanouts := make([]int, 1+r.IntN(3))
		for h := range fanouts {
			fanouts[h] = []int{1, 2, 3, sample.All}[r.IntN(4)]
		}
		batch := 1 + r.IntN(len(train))
		m := mustNew(t, g, Options{})
		for _, c := range []struct {
			name string
			got  []float32
			keep bool
		}{
			{"VIP", memtest.Must[float32](t)(m.VIP(train, float64(batch), fanouts)), false},
			{"Inclusion", memtest.Must[float32](t)(m.Inclusion(train, float64(batch), fanouts)),
				true},
		} {
			want := enumerate(g, train, batch, fanouts, c.keep)
			for v := range want {
				if math.Abs(float64(c.got[v])-want[v]) > 1e-6 {
					t.Fatalf("%s, fanouts %d, batch %d of %d: vertex %d has %g, enumeration says "+
						"%g", c.name, fanouts, batch, len(train), v, c.got[v], want[v])
				}
			}
		}
	}
}

// Two seeds of which one is drawn, both with vertex 2 as only neighbour: it is always read, but the
// model takes the seeds for independent.
func TestPathsThatMeetAreTakenForIndependent(t *testing.T) {
	g := graphtest.NewGraph(t, 3, [2]int{2, 0}, [2]int{2, 1})
	m := mustNew(t, g, Options{})
	for name, p := range map[string][]float32{
		"VIP":       memtest.Must[float32](t)(m.VIP(graphtest.IDs(0, 1), 1, []int{1})),
		"Inclusion": memtest.Must[float32](t)(m.Inclusion(graphtest.IDs(0, 1), 1, []int{1})),
	} {
		if p[2] != 0.75 {
			t.Errorf("%s: %g, want 0.75", name, p[2])
		}
	}
	for _, keep := range []bool{false, true} {
		if truth := enumerate(g, graphtest.IDs(0, 1), 1, []int{1}, keep); truth[2] != 1 {
			t.Errorf("enumeration: %g, want 1", truth[2])
		}
	}
}

// On any graph the results are the formulas, multiplied out edge by edge. Random digraphs have
// loops, parallel edges, and factors of exactly 0 (a certain vertex that draws all its neighbours).
func TestEqualsFormula(t *testing.T) {
	r := graphtest.Random(t)
	for _, c := range []struct {
		name          string
		n, edges      int
		batch         float64
		fanouts       []int
		seeds, worker int
	}{
		{"sparse", 300, 900, 4, []int{3, 2, 2}, 40, 1},
		{"dense", 100, 3000, 7, []int{15, 10, 5}, 30, 2},
		{"all neighbours", 200, 800, 2, []int{sample.All, 2, sample.All}, 20, 3},
		{"every seed in every batch", 200, 800, 20, []int{2, 3}, 20, 2},
		{"batch beyond the seeds", 200, 800, 1e6, []int{2, 3}, 20, 2},
		{"tiny probabilities", 2000, 9000, 1e-4, []int{2, 2}, 50, 2},
		{"one hop", 200, 1500, 3, []int{4}, 50, 2},
		{"no seeds", 50, 200, 3, []int{2, 2}, 0, 2},
	} {
		g := graphtest.NewGraph(t, c.n, graphtest.Edges(r, c.n, c.edges)...)
		var train []graph.VertexID
		for _, v := range r.Perm(c.n)[:c.seeds] {
			train = append(train, graph.VertexID(v))
		}
		m := mustNew(t, g, Options{Workers: c.worker})
		vip, inclusion := formulas(g, train, c.batch, c.fanouts)
		equal(t, c.name+": VIP", memtest.Must[float32](t)(m.VIP(train, c.batch, c.fanouts)), vip)
		equal(t, c.name+": Inclusion",
			memtest.Must[float32](t)(m.Inclusion(train, c.batch, c.fanouts)), inclusion)
	}
}

// equal allows for float32 sums of logarithms; NaN is never equal.
func equal(t *testing.T, name string, got []float32, want []float64) {
	t.Helper()
	for v := range want {
		if !(math.Abs(float64(got[v])-want[v]) <= 2e-6*math.Abs(want[v])) {
			t.Errorf("%s: vertex %d has %g, want %g", name, v, got[v], want[v])
			return
		}
	}
}

// formulas multiplies the two models out as their comments have them, over the in-edges of the
// vertices that draw.
func formulas(g *graph.CSC, train []graph.VertexID, batch float64, fanouts []int) (
	vip, inclusion []float64) {
	n := g.NumVertices()
	vector := func() []float64 { return make([]float64, n) }
	miss := func(pass []float64) []float64 { // product over v that may sample u of (1 - pass[v])
		out := vector()
		for u := range out {
			out[u] = 1
		}
		for v := range n {
			for _, u := range g.InNeighbours(graph.VertexID(v)) {
				out[u] *= 1 - pass[v]
			}
		}
		return out
	}
	p0 := vector()
	for _, v := range train {
		p0[v] = min(1, batch/float64(len(train)))
	}
	p, q, a := append([]float64(nil), p0...), append([]float64(nil), p0...), vector()
	vip = vector()
	for _, f := range fanouts {
		pass := vector()
		for v := range n {
			transition := 1.0
			if d := g.InDegree(graph.VertexID(v)); f != sample.All && d > f {
				transition = float64(f) / float64(d)
			}
			pass[v] = transition * p[v]
			a[v] += transition * (q[v] - a[v])
		}
		missed, avoided := miss(pass), miss(a)
		for u := range n {
			p[u] = 1 - missed[u]
			vip[u] = 1 - (1-vip[u])*missed[u]
			q[u] = 1 - (1-p0[u])*avoided[u]
		}
	}
	return vip, q
}

// A batch larger than the training set reads every training vertex in every step; unclamped it gave
// NaN.
func TestBatchBeyondTrainingSet(t *testing.T) {
	g := graphtest.NewGraph(t, 5, [2]int{2, 0}, [2]int{3, 0}, [2]int{4, 1})
	m := mustNew(t, g, Options{})
	want := []float32{0, 0, 0.5, 0.5, 1}
	for _, batch := range []float64{2, 3, 1e9} {
		p := memtest.Must[float32](t)(m.VIP(graphtest.IDs(0, 1), batch, []int{1}))
		if fmt.Sprint(p) != fmt.Sprint(want) {
			t.Errorf("batch %g: %g, want %g", batch, p, want)
		}
	}
}

// The short cuts for small arguments keep the accuracy of a float32, and the edges of the range
// hold.
func TestLogarithms(t *testing.T) {
	r := graphtest.Random(t)
	for range 100_000 {
		p := math.Exp(-30 * r.Float64())
		got, want := float64(logMiss(p)), math.Log1p(-p)
		if math.Abs(got-want) > 8e-8*math.Abs(want) {
			t.Fatalf("logMiss(%g) = %g, want %g", p, got, want)
		}
		if got, want := hit(-p), -math.Expm1(-p); math.Abs(got-want) > 2e-8*want {
			t.Fatalf("hit(%g) = %g, want %g", -p, got, want)
		}
	}
	if logMiss(0) != 0 || hit(0) != 0 || !math.IsInf(float64(logMiss(1)), -1) ||
		hit(math.Inf(-1)) != 1 {
		t.Errorf("at 0 and 1: %g, %g, %g, %g", logMiss(0), hit(0), logMiss(1), hit(math.Inf(-1)))
	}
}

// A rank that trains the minibatches of several parts in a step reads a row as often as they do
// together. Each part's minibatch is enumerated by itself; one minibatch of the seeds of all parts
// would read every row at most once.
func TestReadsOfSeveralParts(t *testing.T) {
	r := graphtest.Random(t)
	more := 0
	for range 20 {
		g, roots := randomForest(t, r, 12)
		m := mustNew(t, g, Options{})
		// seeds are local
		reader := &Workload{Local: []Range{{0, 12}}, Sample: sample.Neighbours(2, sample.All)}
		n, minibatches := g.NumVertices(), 0
		vip, reads := make([]float64, n), make([]float64, n) // of a step
		for i, source := range []Source{{roots[:1], 1, 2}, {roots[1:], 1, 1}, {nil, 0, 1}} {
			reader.Sources = append(reader.Sources, source)
			minibatches += source.Minibatches
			if i == 2 { // a part without seeds
				break
			}
			without := enumerate(g, source.Seeds, 1, reader.Sample.Fanouts, false)
			for v, p := range enumerate(g, source.Seeds, 1, reader.Sample.Fanouts, true) {
				reads[v] += p * float64(source.Minibatches)
				vip[v] += without[v] * float64(source.Minibatches)
			}
		}
		p, score := memtest.Must[float32](t)(m.Reads(reader)),
			memtest.Must[float32](t)(m.RankVIP(reader))
		for v := range n {
			if math.Abs(float64(p[v])*float64(minibatches)-reads[v]) > 1e-5 ||
				math.Abs(float64(score[v])-vip[v]) > 1e-5 {
				t.Fatalf("vertex %d: %g reads a step and score %g, enumeration says %g and %g", v,
					float64(p[v])*float64(minibatches), score[v], reads[v], vip[v])
			}
			if vip[v] > 1 {
				more++
			}
		}
	}
	if more == 0 {
		t.Error("no row is read more than once a step")
	}
	m := mustNew(t, graphtest.NewGraph(t, 4, [2]int{1, 0}), Options{})
	for name, x := range map[string][]float32{
		"reads": memtest.Must[float32](t)(m.Reads(&Workload{Sample: sample.Neighbours(2)})),
		"vip":   memtest.Must[float32](t)(m.RankVIP(&Workload{Sample: sample.Neighbours(2)})),
	} {
		if len(x) != 4 || x[1] != 0 {
			t.Errorf("%s without seeds: %g", name, x)
		}
	}
}

// Sources are what the pieces of a stream are drawn from.
func TestSources(t *testing.T) {
	var seeds [][]graph.VertexID
	next := graph.VertexID(0)
	for _, n := range []int{10, 0, 7, 30} {
		seeds = append(seeds, nil)
		for range n {
			seeds[len(seeds)-1] = append(seeds[len(seeds)-1], next)
			next += 3
		}
	}
	for _, scope := range []sample.SeedScope{sample.SeedsLocal, sample.SeedsGlobal} {
		streams, err := sample.NewStreams(seeds, sample.StreamOptions{Batch: 4, Seed: 2,
			Seeds: scope})
		if err != nil {
			t.Fatal(err)
		}
		defer streams.Free()
		for first := range seeds {
			for count := 1; first+count <= len(seeds); count++ {
				reader := &Workload{Sources: Sources(streams, first, count)}
				minibatches, perStep, drawn := 0, 0.0, map[graph.VertexID]bool{}
				for _, s := range reader.Sources {
					minibatches += s.Minibatches
					perStep += s.PerBatch * float64(s.Minibatches)
				}
				pieces := 0
				for epoch := range 400 {
					for step := range streams.Steps() {
						for k := first; k < first+count; k++ {
							piece := streams.Piece(epoch, step, k, nil)
							pieces += len(piece)
							for _, v := range piece {
								drawn[v] = true
							}
						}
					}
				}
				counted := float64(pieces) / float64(400*streams.Steps())
				if minibatches != count || math.Abs(perStep-counted) > 0.5 ||
					scope == sample.SeedsLocal && math.Abs(perStep-counted) > 1e-9 {
					t.Errorf("scope %d, streams %d to %d: %d minibatches, %g seeds a step; "+
						"counted %g", scope, first, first+count-1, minibatches, perStep, counted)
				}
				if all := reader.Seeds(); len(all) != len(drawn) {
					t.Errorf("scope %d, streams %d to %d: %d seeds, %d were drawn", scope, first,
						first+count-1, len(all), len(drawn))
				}
			}
		}
	}
}

// Where minibatches start from remote seeds too, vip counts that those rows are read, as
// enumeration of the sampler does; seeds that are local are in no need of it, and nothing changes
// for them.
func TestRemoteSeedsAreRead(t *testing.T) {
	r := graphtest.Random(t)
	for range 20 {
		g, roots := randomForest(t, r, 12)
		m := mustNew(t, g, Options{})
		batch := 1 + r.IntN(len(roots)-1)
		own := int(roots[0]) // all that is local
		reader := &Workload{
			Local: []Range{{roots[0], roots[0] + 1}}, Sample: sample.Neighbours(2, 1),
			Sources: []Source{{roots, float64(batch), 1}},
		}
		vip, inclusion := memtest.Must[float32](t)(m.RankVIP(reader)),
			memtest.Must[float32](t)(m.RankInclusion(reader))
		for v, want := range enumerate(g, roots, batch, reader.Sample.Fanouts, true) {
			if math.Abs(float64(vip[v])-want) > 1e-6 || vip[v] != inclusion[v] {
				t.Fatalf("batch %d of %d: vertex %d has vip %g and inclusion %g, enumeration "+
					"says %g", batch, len(roots), v, vip[v], inclusion[v], want)
			}
		}
		for _, seed := range roots[1:] {
			if vip[seed] == 0 {
				t.Errorf("remote seed %d is never kept", seed)
			}
		}
		reader.Sources[0].Seeds = roots[:1]
		local := memtest.Must[float32](t)(m.RankVIP(reader))
		for v, want := range enumerate(g, roots[:1], 1, reader.Sample.Fanouts, false) {
			if v != own && math.Abs(float64(local[v])-want) > 1e-6 {
				t.Fatalf("local seeds: vertex %d has vip %g, the paper's formula %g", v, local[v],
					want)
			}
		}
	}
}
