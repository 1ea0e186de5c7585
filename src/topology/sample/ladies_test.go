package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
	"halognn/tests/race"
)

// ladies is the Spec of kind LADIES with these numbers of vertices.
func ladies(vertices ...int) Spec { return Spec{Kind: LADIES, Vertices: vertices} }

func TestLadiesIsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 0))
	for round := range 12 {
		n := 1 + r.IntN(300)
		topology := randomTopology(r, n)
		if round%2 == 1 {
			weigh(r, topology)
		}
		spec := ladies([][]int{{1}, {40, 60}, {1000, 3}, {20, 500, 30}}[round%4]...)
		for _, o := range []Options{
			{}, {Map: MapHash}, {MaxSeeds: 64}, {Workers: 3, minParallel: 1},
			{Workers: 8, minParallel: 1, Map: MapHash, MaxSeeds: 64},
		} {
			if race.Detector && o.Workers < 2 {
				continue
			}
			o.Spec, o.Weights = spec, topology.Weights != nil
			s, err := New(topology, o)
			if err != nil {
				t.Fatal(err)
			}
			var mb Minibatch
			for step := range 3 {
				seeds := someSeeds(r, n, r.IntN(65))
				key := Key{Seed: uint64(round), Epoch: 1, Step: step, Stream: 2}
				if err := s.Sample(&mb, seeds, key); err != nil {
					t.Fatal(err)
				}
				want := Reference(topology, spec, seeds, key)
				if d := difference(&mb, want); d != "" {
					t.Fatalf("round %d, step %d, %+v: %s", round, step, o, d)
				}
				for l := range mb.Blocks {
					if err := mb.Blocks[l].Validate(); err != nil {
						t.Fatal(err)
					}
				}
				want.Free()
			}
			mb.Free()
			s.Free()
		}
	}
}

// On average over many draws, sums over what was drawn are those over all neighbours, at every
// layer.
func TestLadiesIsUnbiased(t *testing.T) {
	race.Alone(t)
	unbiased(t, 42, 1, ladies(30), ladies(120), ladies(100, 60))
}

// Probabilities are proportional to the masses but for those that are 1, and add up to what is
// asked for, however uneven the masses.
func TestProbabilities(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 0))
	for round := range 200 {
		mass := make([]float64, 1+r.IntN(400))
		some := 0
		for i := range mass {
			if r.IntN(5) > 0 {
				mass[i] = math.Exp(float64(r.IntN(20)) * r.NormFloat64())
				some++
			}
		}
		n := 1 + r.IntN(len(mass)+20)
		q := slices.Clone(mass)
		probabilities(q, n)
		sum, least, c := 0.0, math.Inf(1), 0.0
		for i, p := range q {
			if p < 0 || p > 1 || (p == 0) != (mass[i] == 0) {
				t.Fatalf("round %d: mass %g has probability %g", round, mass[i], p)
			}
			sum += p
			if p == 1 {
				least = min(least, mass[i])
			} else if p > 0 && c == 0 {
				c = p / mass[i]
			} else if p > 0 && math.Abs(p/mass[i]/c-1) > 1e-12 {
				t.Fatalf("round %d: %g and %g times the mass", round, p/mass[i], c)
			}
		}
		if want := float64(min(n, some)); math.Abs(sum-want) > 1e-9*want {
			t.Errorf("round %d: probabilities add up to %g, not %g", round, sum, want)
		}
		if c > 0 && least*c < 1-1e-12 {
			t.Errorf("round %d: a mass has probability 1 that should have %g", round, least*c)
		}
	}
}

// The number of vertices that a hop adds is about what was asked for, and never all of a hub's
// neighbours.
func TestLadiesBoundsTheFrontier(t *testing.T) {
	r := rand.New(rand.NewPCG(44, 0))
	topology := randomTopology(r, 3000)
	s, err := New(topology, Options{Spec: ladies(100, 100)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free()
	var mb Minibatch
	defer mb.Free()
	seeds := someSeeds(r, 3000, 50)
	for step := range 50 {
		if err := s.Sample(&mb, seeds, Key{Step: step}); err != nil {
			t.Fatal(err)
		}
		for l := range mb.Blocks {
			if b := &mb.Blocks[l]; b.NumSrc-b.NumDst > 150 {
				t.Errorf("step %d, layer %d: %d new vertices", step, l, b.NumSrc-b.NumDst)
			}
		}
		if n := len(mb.Frontier); n < 170 {
			t.Errorf("step %d: a frontier of %d", step, n)
		}
	}
}

func TestLadiesErrors(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(45, 0)), 50)
	for want, o := range map[string]Options{
		"sample: sample.layer_vertices is empty; give a number for every layer, seed hop " +
			"first": {Spec: ladies()},
		"sample: sample.layer_vertices[1] is 0; it must be 1 to 2147483647": {Spec: ladies(4,
			0)},
		"sample: sample.kind for evaluation is poisson; it must be neighbour, or that of " +
			"training": {
			Spec: ladies(4, 4), Eval: poisson(2, 2)},
		"sample: training has 3 hops, and evaluation 1; evaluation needs the same number, or 0": {
			Spec: Neighbours(1, 2, 3), Eval: Neighbours(1)},
	} {
		if _, err := New(topology, o); fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s, err := New(topology, Options{Spec: ladies(4), MaxSeeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free()
	var mb Minibatch
	defer mb.Free()
	for want, seeds := range map[string][]graph.VertexID{
		"sample: 3 seeds, but the sampler was made for at most 2; raise MaxSeeds":  {1, 2, 3},
		"sample: seed 7 is given twice; the seeds of a minibatch must be distinct": {7, 7},
		"sample: seed 50: vertex out of range (the graph has 50 vertices)":         {50},
	} {
		if err := s.Sample(&mb, seeds, Key{}); fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := s.Sample(&mb, nil, Key{}); err != nil || len(mb.Frontier) != 0 {
		t.Errorf("no seeds: %v, a frontier of %d", err, len(mb.Frontier))
	}
}

// Masses that stand at the cap to within rounding end the rounds too: here those that are capped
// become likelier, which leaves the others where they were.
func TestProbabilitiesOfMassesAtTheCap(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 28))
	for range 20000 {
		mass := make([]float64, 20+random.IntN(60))
		for u := range mass {
			mass[u] = 1 / float64(1+random.IntN(9))
		}
		n := 1 + random.IntN(len(mass))
		for range 3 {
			probabilities(mass, n)
			sum := 0.0
			for _, q := range mass {
				sum += q
			}
			if want := float64(n); math.Abs(sum-want) > 1e-6*want {
				t.Fatalf("probabilities of %d draws add up to %g", n, sum)
			}
			for u := range mass {
				if random.IntN(2) == 0 {
					mass[u] *= 4
				}
			}
		}
	}
}
