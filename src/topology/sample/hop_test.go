package sample

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"halognn/src/topology/graph"
	"halognn/tests/race"
)

// poisson is the Spec of kind Poisson with these fanouts.
func poisson(fanouts ...int) Spec { return Spec{Kind: Poisson, Fanouts: fanouts} }

func TestBinomial(t *testing.T) {
	const draws = 20000
	for _, c := range []struct {
		n int64
		p float64
	}{
		{2, 0.5}, {3, 2.0 / 3}, {20, 0.25}, {66, 65.0 / 66}, {400, 0.1}, {1 << 20, 5.0 / (1 << 20)},
		// The last three of several pieces, or mirrored.
		{1 << 30, 100.0 / (1 << 30)}, {2000, 0.999},
	} {
		counts := map[int64]float64{}
		for i := range draws {
			s := countStream(uint64(c.n), int32(i))
			counts[s.binomial(c.n, c.p)]++
		}
		// Chi-square over the numbers expected at least ten times; all others are one class.
		d := distuv.Binomial{N: float64(c.n), P: c.p}
		mean, spread := d.Mean(), 8*math.Sqrt(d.Variance())+1
		x2, classes, rest, expected := 0.0, 0, float64(draws), float64(draws)
		for k := int64(max(0, mean-spread)); k <= int64(min(float64(c.n), mean+spread)); k++ {
			want := draws * math.Exp(d.LogProb(float64(k)))
			if want < 10 {
				continue
			}
			x2 += (counts[k] - want) * (counts[k] - want) / want
			classes++
			rest, expected = rest-counts[k], expected-want
		}
		if expected > 1 {
			x2 += (rest - expected) * (rest - expected) / expected
		} else {
			classes--
		}
		if p := (distuv.ChiSquared{K: float64(classes)}).Survival(x2); p < rare {
			t.Errorf("%d trials of %g: draws this far from binomial have probability %.2g", c.n,
				c.p, p)
		}
		for k := range counts {
			if k < 0 || k > c.n {
				t.Errorf("%d of %d trials succeeded", k, c.n)
			}
		}
	}
}

// estimated compares the weighted sum of a number of each vertex over a block's edges, on average
// over many draws, with the sum over all in-edges: by the distance in standard errors, whose
// squares add up over the destinations to about as many.
func estimated(t *testing.T, topology *Topology, o Options, seeds []graph.VertexID, draws int,
	favour float64) {
	t.Helper()
	o.Weights = topology.Weights != nil
	s, err := New(topology, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free()
	value := func(v graph.VertexID) float64 { return 1 + math.Sin(float64(topology.Original[v])) }
	hops := o.Hops()
	sum, squares := make([]float64, len(seeds)), make([]float64, len(seeds))
	var mb Minibatch
	defer mb.Free()
	for draw := range draws {
		if err := s.Sample(&mb, seeds, Key{Seed: 5, Step: draw, Favour: favour}); err != nil {
			t.Fatal(err)
		}
		// The estimates of all layers, from the input layer up: sums of sums.
		y := make([]float64, len(mb.Frontier))
		for i, v := range mb.Frontier {
			y[i] = value(v)
		}
		for l := range mb.Blocks {
			y = weightedSums(&mb.Blocks[l], y)
		}
		for i, x := range y {
			sum[i] += x
			squares[i] += x * x
		}
	}
	want := make([]float64, len(topology.Original))
	for v := range want {
		want[v] = value(graph.VertexID(v))
	}
	for range hops {
		want = fullSums(topology, want)
	}
	far, most := 0.0, 0.0
	random := 0
	for i, v := range seeds {
		mean := sum[i] / float64(draws)
		variance := squares[i]/float64(draws) - mean*mean
		if variance < 1e-9*mean*mean {
			if math.Abs(mean-want[v]) > 1e-5*math.Abs(want[v]) {
				t.Errorf("vertex %d: always %g, but the sum over all neighbours is %g", v, mean,
					want[v])
			}
			continue
		}
		random++
		z := (mean - want[v]) / math.Sqrt(variance/float64(draws))
		far += z * z
		most = max(most, math.Abs(z))
	}
	if random < len(seeds)/4 {
		t.Errorf("only %d of %d estimates are random", random, len(seeds))
	}
	// Seeds share draws, so their distances are not independent: a bound for the worst of them.
	if bound := 4.5; most > bound || far > 3*float64(random) {
		t.Errorf("%s: the estimates of %d vertices are up to %.1f standard errors from the sums "+
			"over all neighbours, in square %.1f on average", o.Kind, random, most,
			far/float64(random))
	}
}

// weightedSums aggregates by the block's weights.
func weightedSums(b *graph.Block, x []float64) []float64 {
	y := make([]float64, b.NumDst)
	for d := range y {
		for e := b.Indptr[d]; e < b.Indptr[d+1]; e++ {
			y[d] += float64(b.Weights[e]) * x[b.Indices[e]]
		}
	}
	return y
}

// fullSums aggregates over all in-edges.
func fullSums(t *Topology, x []float64) []float64 {
	y := make([]float64, len(x))
	for v := range y {
		for e := t.Graph.Indptr[v]; e < t.Graph.Indptr[v+1]; e++ {
			w := 1.0
			if t.Weights != nil {
				w = float64(t.Weights[e])
			}
			y[v] += w * x[t.Graph.Indices[e]]
		}
	}
	return y
}

// On average over many draws, sums over what was drawn are those over all neighbours, at every
// layer.
func TestPoissonIsUnbiased(t *testing.T) {
	race.Alone(t)
	unbiased(t, 31, 1, poisson(5), poisson(40), poisson(8, 3))
}

// unbiased draws by each spec, from a graph without and with weights of edges. With a favour above
// 1 random vertices are near.
func unbiased(t *testing.T, seed uint64, favour float64, specs ...Spec) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	topology := randomTopology(r, 200)
	for _, weighted := range []bool{false, true} {
		if weighted {
			weigh(r, topology)
		}
		for _, spec := range specs {
			o := Options{Spec: spec}
			if favour > 1 {
				o.Near = nearAtRandom(r, topology, spec)
			}
			estimated(t, topology, o, someSeeds(r, 200, 40), 2000, favour)
		}
	}
}

// A neighbour is drawn with the probability that its edge's weight says, and any two of them
// independently.
func TestPoissonInclusion(t *testing.T) {
	const degree, fanout, draws = 12, 5, 30000
	topology := &Topology{Graph: graph.CSC{Indptr: make([]int64, degree+2)},
		Original: make([]int32, degree+1)}
	for v := range degree + 1 {
		topology.Original[v] = int32(v)
		topology.Graph.Indptr[v+1] = degree
		if v > 0 {
			topology.Graph.Indices = append(topology.Graph.Indices, graph.VertexID(v))
		}
	}
	s := mustNew(t, topology, Options{Spec: poisson(fanout)})
	var mb Minibatch
	defer mb.Free()
	var pairs [degree][degree]float64
	for i := range draws {
		if err := s.Sample(&mb, []graph.VertexID{0}, Key{Step: i}); err != nil {
			t.Fatal(err)
		}
		for e, a := range mb.Frontier[1:] {
			if w := mb.Blocks[0].Weights[e]; w != float32(float64(degree)/fanout) {
				t.Fatalf("an edge weighs %g", w)
			}
			for _, b := range mb.Frontier[1:] {
				pairs[a-1][b-1]++
			}
		}
	}
	const q = fanout / float64(degree)
	for a := range degree {
		for b := range degree {
			p := q
			if a != b {
				p = q * q
			}
			z := (pairs[a][b] - draws*p) / math.Sqrt(draws*p*(1-p))
			if math.Abs(z) > 4.5 {
				t.Errorf("neighbours %d and %d: %g of %d, which is %.1f standard deviations from "+
					"%g", a, b, pairs[a][b], draws, z, draws*p)
			}
		}
	}
}

// Evaluation draws by its own kind, and leaves no weights behind in a minibatch that had some.
func TestEvaluationOfAnotherKind(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 0))
	topology := randomTopology(r, 250)
	for _, workers := range []int{1, 3} {
		for _, spec := range estimators(2) {
			s, err := New(topology, Options{Spec: spec, Eval: Neighbours(7, All), Workers: workers,
				minParallel: 1})
			if err != nil {
				t.Fatal(err)
			}
			var mb Minibatch
			for step := range 4 {
				seeds, key := someSeeds(r, 250, 20), Key{Step: step}
				for _, draw := range []struct {
					sample func(*Minibatch, []graph.VertexID, Key) error
					spec   Spec
				}{{s.Sample, spec}, {s.SampleEval, Neighbours(7, All)}} {
					if err := draw.sample(&mb, seeds, key); err != nil {
						t.Fatal(err)
					}
					want := Reference(topology, draw.spec, seeds, key)
					if d := difference(&mb, want); d != "" || mb.Estimates != want.Estimates {
						t.Fatalf("%+v, step %d: estimates %v; %s", draw.spec, step, mb.Estimates, d)
					}
					want.Free()
				}
			}
			mb.Free()
			s.Free()
		}
	}
}

// estimators are Specs of all kinds that weigh edges, of so many hops.
func estimators(hops int) []Spec {
	fanouts, vertices := []int{9, 4, 3}[:hops], []int{60, 40, 90}[:hops]
	return []Spec{poisson(fanouts...), {Kind: LADIES, Vertices: vertices}}
}

// Edges of evaluation bear no weights, whatever the minibatch held before, and a sampler in its
// steady state allocates nothing.
func TestEstimatorsAllocateNothing(t *testing.T) {
	numbered := Spec{Kind: Poisson, Fanouts: []int{9, 4, 3}, Numbers: Numbers{Shared: true,
		Dependency: 6, Steps: 8}}
	for _, spec := range append(estimators(3), numbered) {
		t.Run(spec.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(33, 0))
			topology := randomTopology(r, 300)
			near := nearAtRandom(r, topology, spec)
			defer near.Free()
			s, err := New(topology, Options{Spec: spec, MaxSeeds: 32, Near: near})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Free()
			var mb Minibatch
			defer mb.Free()
			seeds, step := someSeeds(r, 300, 32), 0
			one := func() {
				key := Key{Step: step % 8, Favour: float64(1 + 3*(step%2))}
				if err := s.Sample(&mb, seeds, key); err != nil {
					t.Fatal(err)
				}
				step++
			}
			for range 8 {
				one()
			}
			if n := testing.AllocsPerRun(16, one); n > 0 {
				t.Errorf("%g allocations a minibatch", n)
			}
		})
	}
}
