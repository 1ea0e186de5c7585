package sample

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"halognn/tests/race"
)

// nearAtRandom makes every third vertex near, others in each hop.
func nearAtRandom(r *rand.Rand, t *Topology, spec Spec) Near {
	edges := len(t.Graph.Indices)
	near := NewNear(spec, len(t.Original), edges)
	for _, set := range near.Vertices {
		for v := range t.Original {
			if r.IntN(3) == 0 {
				set[v/64] |= 1 << (v % 64)
			}
		}
	}
	near.MarkEdges(t.Graph.Indices, 0, (edges+63)/64)
	return near
}

func TestLocalityIsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 0))
	for round := range 6 {
		n := 2 + r.IntN(300)
		topology := randomTopology(r, n)
		if round%2 == 1 {
			weigh(r, topology)
		}
		for _, spec := range append(estimators(3), poisson(5, All, 70),
			numbered(Poisson, r, 5, 3, 70)) {
			near := nearAtRandom(r, topology, spec)
			for _, o := range []Options{
				{}, {Map: MapHash}, {Workers: 3, minParallel: 1},
				{Workers: 8, minParallel: 1, MaxSeeds: 64},
			} {
				if race.Detector && o.Workers < 2 {
					continue
				}
				o.Spec, o.Weights, o.Near = spec, topology.Weights != nil, near
				s, err := New(topology, o)
				if err != nil {
					t.Fatal(err)
				}
				var mb Minibatch
				for step, favour := range []float64{8, 1, 2.5, 0} {
					seeds := someSeeds(r, n, r.IntN(65))
					key := Key{Seed: uint64(round), Step: step, Favour: favour}
					if err := s.Sample(&mb, seeds, key); err != nil {
						t.Fatal(err)
					}
					want := referenceNear(topology, spec, near, seeds, key)
					if d := difference(&mb, want); d != "" {
						t.Fatalf("round %d, %v, %+v: %s", round, spec, o, d)
					}
					if favour <= 1 {
						plain := Reference(topology, spec, seeds, key)
						if d := difference(&mb, plain); d != "" {
							t.Fatalf("%v: %g times likelier: %s", spec, favour, d)
						}
						plain.Free()
					}
					want.Free()
				}
				mb.Free()
				s.Free()
			}
		}
	}
}

// Estimates stay unbiased when near vertices are likelier, at every layer.
func TestLocalityIsUnbiased(t *testing.T) {
	race.Alone(t)
	unbiased(t, 52, 8, poisson(5), poisson(8, 3), ladies(60), ladies(100, 60))
}

// Probabilities are bounded by 1: without the bound the only near neighbour would have 1.7, and
// weigh too little. The expected number of draws stays the fanout, and near neighbours are likelier
// by the factor unless they are at the bound.
func TestFavour(t *testing.T) {
	if near, others := favour(40, 1, 10, 8); near != 1 || math.Abs(others-9.0/39) > 1e-15 {
		t.Errorf("one near neighbour of 40 is drawn with probability %g, the others with %g", near,
			others)
	}
	for degree := int64(2); degree < 40; degree++ {
		for fanout := int64(1); fanout < degree; fanout++ {
			for near := int64(0); near <= degree; near++ {
				for _, s := range []float64{1, 1.5, 2, 8, 1e6} {
					a, b := favour(degree, near, fanout, s)
					expected := 0.0
					if near > 0 {
						expected += float64(near) * a
					}
					if near < degree {
						expected += float64(degree-near) * b
					}
					if math.Abs(expected-float64(fanout)) > 1e-9*float64(fanout) {
						t.Fatalf("degree %d, %d near, fanout %d, %g: %g draws", degree, near,
							fanout, s, expected)
					}
					if near > 0 && near < degree && (!(b > 0 && a >= b && a <= 1) ||
						a < 1 && math.Abs(a/b/s-1) > 1e-9) {
						t.Fatalf("degree %d, %d near, fanout %d, %g: %g and %g", degree, near,
							fanout, s, a, b)
					}
				}
			}
		}
	}
}

// A higher factor draws more near vertices, and about as many in all.
func TestFavourDrawsNearVertices(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 0))
	topology := randomTopology(r, 2000)
	seeds := someSeeds(r, 2000, 100)
	for _, spec := range []Spec{poisson(8), ladies(300)} {
		near := nearAtRandom(r, topology, spec)
		s, err := New(topology, Options{Spec: spec, Near: near})
		if err != nil {
			t.Fatal(err)
		}
		var mb Minibatch
		share := func(favour float64) (near1, all float64) {
			for step := range 30 {
				if err := s.Sample(&mb, seeds, Key{Step: step, Favour: favour}); err != nil {
					t.Fatal(err)
				}
				for _, v := range mb.Frontier[len(seeds):] {
					all++
					if isNear(near.Vertices[0], v) {
						near1++
					}
				}
			}
			return near1 / all, all
		}
		few, plain := share(1)
		more, favoured := share(4)
		if more < 1.3*few || math.Abs(favoured/plain-1) > 0.25 {
			t.Errorf("%v: %.2f of %g are near, and %.2f of %g four times as likely", spec, few,
				plain, more, favoured)
		}
		mb.Free()
		s.Free()
	}
}

// Every bit of a word is found by its number, and every member of a row of any length.
func TestPlacesOfMembers(t *testing.T) {
	r := rand.New(rand.NewPCG(57, 0))
	var m members
	defer m.free()
	for round := range 400 {
		words := 1 + round%9
		m.grow(words)
		var want []int64
		for w := range words {
			word := r.Uint64()
			switch r.IntN(4) {
			case 0:
				word &= r.Uint64() & r.Uint64()
			case 1:
				word = [...]uint64{0, 1, 1 << 63, math.MaxUint64}[r.IntN(4)]
			}
			m.words[w], m.before[w] = word, int64(len(want))
			for b := range 64 {
				if word>>b&1 != 0 {
					want = append(want, int64(64*w+b))
				}
			}
		}
		for k, place := range want {
			if got := m.place(int64(k)); got != place {
				t.Fatalf("member %d of %x is at %d, not %d", k, m.words, got, place)
			}
		}
	}
}

func TestLocalityErrors(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(54, 0)), 50)
	near := nearAtRandom(rand.New(rand.NewPCG(55, 0)), topology, poisson(4))
	small := randomTopology(rand.New(rand.NewPCG(56, 0)), 40)
	for want, o := range map[string]Options{
		"likelier, which kind neighbour does not":          {Spec: Neighbours(4), Near: near},
		"for 1 hops and near edges for 1, but there are 2": {Spec: poisson(4, 4), Near: near},
		"for 1 hops and near edges for 0, but there are 1": {Spec: poisson(4),
			Near: Near{Vertices: near.Vertices}},
		"the sets of near vertices were made for another graph": {Spec: poisson(4),
			Near: nearAtRandom(rand.New(rand.NewPCG(55, 0)), small, poisson(4))},
	} {
		if _, err := New(topology, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
