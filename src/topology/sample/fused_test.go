package sample

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/tests/race"
)

func TestFusedIsReference(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 36 {
		n := 1 + r.IntN(300)
		topology := randomTopology(r, n)
		if round%2 == 1 {
			weigh(r, topology)
		}
		spec := Neighbours([][]int{
			{1}, {15, 10, 5}, {All, 2}, {3, All}, {70, 4}, {64, 1, 100},
		}[round%6]...)
		if round >= 12 {
			spec.Kind = Poisson
		}
		if round >= 24 {
			spec = numbered([]Kind{Labor, Poisson}[round/2%2], r, spec.Fanouts...)
		}
		for _, o := range []Options{
			{}, {Map: MapHash}, {MaxSeeds: 64}, {Map: MapHash, MaxSeeds: 64},
			{Workers: 2, minParallel: 1}, {Workers: 8, minParallel: 1},
			{Workers: 3, minParallel: 1, MaxSeeds: 64},
			{Workers: 2, minParallel: 1, Map: MapHash}, {Workers: 8, minParallel: 1, Map: MapHash},
			{Workers: 2, minParallel: 300},
		} {
			if race.Detector && o.Workers < 2 {
				continue
			}
			o.Spec, o.Weights = spec, topology.Weights != nil
			s := mustNew(t, topology, o)
			var mb Minibatch
			for step := range 3 {
				seeds := someSeeds(r, n, r.IntN(65))
				key := Key{Seed: uint64(round), Epoch: 1, Step: step, Stream: 2}
				if err := s.Sample(&mb, seeds, key); err != nil {
					t.Fatal(err)
				}
				want := Reference(topology, spec, seeds, key)
				if d := difference(&mb, want); d != "" {
					t.Fatalf("seed %d, round %d, step %d, %+v: %s", seed, round, step, o, d)
				}
				want.Free()
			}
			mb.Free()
		}
	}
}

// SampleEval gives the minibatches of a sampler with only the fanouts of evaluation, in turn with
// Sample and with either map, even if evaluation needs more bits in the map than training.
func TestFanoutsOfEvaluation(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	for _, c := range [][2][]int{{{2, 1}, {20, 20}}, {{5, 3}, {All, All}}, {{15, 10}, {1, 2}},
		{{4, 3}, nil}} {
		topology := randomTopology(r, 250)
		for _, o := range []Options{
			{MaxSeeds: 8}, {MaxSeeds: 8, Map: MapHash}, {MaxSeeds: 8, Workers: 3, minParallel: 1},
			{},
		} {
			o.Spec, o.Eval = Neighbours(c[0]...), Neighbours(c[1]...)
			evaluated := c[1]
			if evaluated == nil {
				evaluated = c[0]
			}
			s := mustNew(t, topology, o)
			var mb Minibatch
			for step := range 6 {
				seeds, key := someSeeds(r, 250, 8), Key{Seed: 3, Epoch: 1, Step: step}
				for _, draw := range []struct {
					sample  func(*Minibatch, []graph.VertexID, Key) error
					fanouts []int
				}{{s.Sample, c[0]}, {s.SampleEval, evaluated}} {
					if err := draw.sample(&mb, seeds, key); err != nil {
						t.Fatal(err)
					}
					want := Reference(topology, Neighbours(draw.fanouts...), seeds, key)
					if d := difference(&mb, want); d != "" {
						t.Fatalf("fanouts %v of %v, step %d, %+v: %s", draw.fanouts, c, step, o, d)
					}
					want.Free()
				}
			}
			mb.Free()
		}
	}
}

// One minibatch is reused by samplers of different depth, as by training and evaluation.
func TestMinibatchChangesDepth(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(9, 9)), 100)
	var mb Minibatch
	defer mb.Free()
	for _, fanouts := range [][]int{{3, 3, 3}, {5}, {2, 2}} {
		s := mustNew(t, topology, Options{Spec: Neighbours(fanouts...)})
		want := Reference(topology, Neighbours(fanouts...), []graph.VertexID{4, 2}, Key{})
		if err := s.Sample(&mb, want.Seeds, Key{}); err != nil {
			t.Fatal(err)
		}
		if d := difference(&mb, want); d != "" {
			t.Error(d)
		}
		want.Free()
	}
}

func TestLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 0))
	topology := randomTopology(r, 300)
	fanouts := []int{6, 70, 3}
	s := mustNew(t, topology, Options{Spec: Neighbours(fanouts...)})
	var mb Minibatch
	defer mb.Free()
	if err := s.Sample(&mb, someSeeds(r, 300, 20), Key{Seed: 5}); err != nil {
		t.Fatal(err)
	}
	for l := range mb.Blocks {
		b := &mb.Blocks[l]
		if err := b.Validate(); err != nil {
			t.Fatalf("block %d: %v", l, err)
		}
		if l > 0 && mb.Blocks[l-1].NumDst != b.NumSrc {
			t.Errorf("block %d has %d destinations, but block %d has %d sources", l-1,
				mb.Blocks[l-1].NumDst, l, b.NumSrc)
		}
		for d := range b.NumDst {
			row := topology.Graph.InNeighbours(mb.Frontier[d])
			drawn := map[graph.VertexID]bool{}
			for _, src := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
				u := mb.Frontier[src]
				if !slices.Contains(row, u) {
					t.Errorf("block %d: there is no edge %d -> %d", l, u, mb.Frontier[d])
				}
				drawn[u] = true
			}
			if want := min(len(row), fanouts[len(fanouts)-1-l]); len(drawn) != want ||
				b.Indptr[d+1]-b.Indptr[d] != int64(want) {
				t.Errorf("block %d: vertex %d of degree %d draws %d distinct neighbours, want %d",
					l, mb.Frontier[d], len(row), len(drawn), want)
			}
		}
	}
	once := slices.Clone(mb.Frontier)
	slices.Sort(once)
	if len(slices.Compact(once)) != len(mb.Frontier) {
		t.Error("a vertex is in the frontier twice")
	}
}

// The same vertices are drawn for any numbering.
func TestRelabellingChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	const n = 250
	a := randomTopology(r, n)
	newID := make([]graph.VertexID, n)
	for v, to := range r.Perm(n) {
		newID[v] = graph.VertexID(to)
	}
	b := &Topology{Graph: *graphtest.Relabel(&a.Graph, newID), Original: make([]int32, n)}
	for v, to := range newID {
		b.Original[to] = a.Original[v]
	}
	seeds := someSeeds(r, n, 30)
	moved := make([]graph.VertexID, len(seeds))
	for i, v := range seeds {
		moved[i] = newID[v]
	}
	var x, y Minibatch
	defer x.Free()
	defer y.Free()
	for _, spec := range []Spec{Neighbours(15, 10, 5), labor(15, 10, 5),
		{Kind: Poisson, Fanouts: []int{6, 4, 3},
			Numbers: Numbers{Shared: true, Dependency: 3, Steps: 9}},
	} {
		o := Options{Spec: spec}
		if err := errors.Join(mustNew(t, a, o).Sample(&x, seeds, Key{Step: 4}),
			mustNew(t, b, o).Sample(&y, moved, Key{Step: 4})); err != nil {
			t.Fatal(err)
		}
		if x.Digest() != y.Digest() {
			t.Errorf("%v: digests differ after relabelling", spec)
		}
		for i, v := range x.Frontier {
			if y.Frontier[i] != newID[v] {
				t.Fatalf("%v: frontier[%d] is %d, after relabelling %d, want %d", spec, i, v,
					y.Frontier[i], newID[v])
			}
		}
	}
}

// Entries of old minibatches must not be taken for new ones when versions are reused.
func TestVersionsWrap(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	topology := randomTopology(r, 120)
	for _, o := range []Options{
		{Map: MapDense, valueBits: 30}, {Map: MapDense, valueBits: 31},
		{Map: MapHash, valueBits: 31},
		{Map: MapDense, valueBits: 30, Workers: 2, minParallel: 1},
		{Map: MapHash, valueBits: 31, Workers: 2, minParallel: 1},
		// too few values for edge positions: one worker renumbers
		{Map: MapDense, valueBits: 7, Workers: 2, minParallel: 1},
	} {
		o.Fanouts = []int{4, 3}
		s := mustNew(t, topology, o)
		var mb Minibatch
		for step := range 12 { // 2 bits hold versions 1 to 3
			want := Reference(topology, o.Spec, someSeeds(r, 120, 10), Key{Step: step})
			if err := s.Sample(&mb, want.Seeds, Key{Step: step}); err != nil {
				t.Fatal(err)
			}
			if d := difference(&mb, want); d != "" {
				t.Fatalf("%+v, minibatch %d: %s", o, step, d)
			}
			want.Free()
		}
		mb.Free()
	}
}

func TestEmptyAndIsolated(t *testing.T) {
	topology := &Topology{Graph: graph.CSC{Indptr: []int64{0, 0, 0, 0}}, Original: []int32{0, 1, 2}}
	for _, seeds := range [][]graph.VertexID{nil, {1}, {2, 0}} {
		for _, workers := range []int{1, 2} {
			s := mustNew(t, topology,
				Options{Spec: Neighbours(5, All), Workers: workers, minParallel: -1})
			var mb Minibatch
			if err := s.Sample(&mb, seeds, Key{}); err != nil {
				t.Fatal(err)
			}
			for l := range mb.Blocks {
				if b := &mb.Blocks[l]; b.Validate() != nil || b.NumSrc != len(seeds) ||
					b.NumEdges() != 0 {
					t.Errorf("seeds %v, workers %d: block %d is %+v", seeds, workers, l, *b)
				}
			}
			if !slices.Equal(mb.Frontier, seeds) || mb.NumEdges() != 0 {
				t.Errorf("seeds %v, workers %d: frontier %v", seeds, workers, mb.Frontier)
			}
			mb.Free()
		}
	}
}

func TestErrors(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(6, 0)), 50)
	everyVertex := make([]graph.VertexID, 50)
	for v := range everyVertex {
		everyVertex[v] = graph.VertexID(v)
	}
	for _, c := range []struct {
		name  string
		o     Options
		seeds []graph.VertexID
		want  string
	}{
		{"no fanouts", Options{}, nil, "no fanouts"},
		{"zero fanout", Options{Spec: Neighbours(15, 0)}, nil, "fanouts[1] is 0"},
		{"unknown kind", Options{Spec: Spec{Kind: "luck", Fanouts: []int{1}}, Workers: -1}, nil,
			`sample.kind "luck" is unknown; choose one of [neighbour labor poisson ladies]`},
		{"a zero fanout of evaluation", Options{Spec: Neighbours(1, 1), Eval: Neighbours(2, 0)},
			nil, "evaluation: fanouts[1] is 0"},
		{"too few fanouts of evaluation", Options{Spec: Neighbours(1, 1), Eval: Neighbours(2)}, nil,
			"training has 2 hops, and evaluation 1"},
		{"negative fanout", Options{Spec: Neighbours(-2)}, nil, "fanouts[0] is -2"},
		{"all faults at once", Options{Spec: Neighbours(0), Workers: -1}, nil, "workers is -1"},
		{"negative max seeds", Options{Spec: Neighbours(1), MaxSeeds: -1}, nil, "max seeds is -1"},
		{"unknown map", Options{Spec: Neighbours(1), Map: 9}, nil, "map 9"},
		{"seed too large", Options{Spec: Neighbours(1)}, []graph.VertexID{3, 50},
			"seed 50: vertex out of range"},
		{"negative seed", Options{Spec: Neighbours(1)}, []graph.VertexID{-1},
			"seed -1: vertex out of range"},
		{"seed twice", Options{Spec: Neighbours(1)}, []graph.VertexID{3, 4, 7, 4},
			"seed 4 is given twice"},
		{"seed twice, hash", Options{Spec: Neighbours(1), Map: MapHash}, []graph.VertexID{3, 3},
			"seed 3 is given twice"},
		{"too many edges", Options{Spec: Neighbours(All),
			maxEdges: int(topology.Graph.NumEdges()) - 1}, everyVertex,
			"lower sample.batch or sample.fanouts"},
		{"too many seeds", Options{Spec: Neighbours(1), MaxSeeds: 2}, []graph.VertexID{1, 2, 3},
			"raise MaxSeeds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mb Minibatch
			defer mb.Free()
			s, err := New(topology, c.o)
			if err == nil {
				defer s.Free()
				err = s.Sample(&mb, c.seeds, Key{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if s != nil { // usable after a bad call
				want := Reference(topology, c.o.Spec, []graph.VertexID{4, 3}, Key{})
				defer want.Free()
				if err := s.Sample(&mb, want.Seeds, Key{}); err != nil ||
					difference(&mb, want) != "" {
					t.Errorf("after the error: %v %s", err, difference(&mb, want))
				}
			}
		})
	}
	for name, bad := range map[string]*Topology{
		"no indptr": {},
		"more rows than vertices": {Graph: graph.CSC{Indptr: []int64{0, 0, 0}},
			Original: []int32{0}},
		"window beyond the end": {Graph: graph.CSC{Indptr: []int64{0, 0}}, First: 1,
			Original: []int32{0}},
		"too few indices": {Graph: graph.CSC{Indptr: []int64{0, 3}}, Original: []int32{0}},
	} {
		if _, err := New(bad, Options{Spec: Neighbours(1)}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	topology := randomTopology(r, 500)
	seeds := someSeeds(r, 500, 64)
	for _, o := range []Options{{}, {Map: MapHash}, {Workers: 2, minParallel: 1},
		{Workers: 2, minParallel: 1, Map: MapHash}} {
		o.Fanouts = []int{15, 70, 5}
		before := mem.Allocated()
		made, err := New(topology, o)
		if err != nil {
			t.Fatal(err)
		}
		s := made.(*Fused)
		var mb Minibatch
		step := 0
		run := func() {
			step++
			if err := s.Sample(&mb, seeds, Key{Step: step % 4}); err != nil {
				t.Fatal(err)
			}
		}
		for range 8 {
			run()
		}
		held := mem.Allocated()
		if allocs := testing.AllocsPerRun(20, run); allocs != 0 || mem.Allocated() != held {
			t.Errorf("%+v: %v heap allocations a minibatch, %d bytes of mappings more", o, allocs,
				mem.Allocated()-held)
		}
		mb.Free()
		// pages, and sets on the heap
		if held := mem.Allocated() - before; max(held-s.Bytes(), s.Bytes()-held) > 1<<16 {
			t.Errorf("%+v: Bytes says %d, %d are held", o, s.Bytes(), held)
		}
		s.Free()
		if mem.Allocated() != before {
			t.Errorf("%+v: %d bytes left after Free", o, mem.Allocated()-before)
		}
	}
}

// A fanout larger than every degree takes all neighbours and costs no more than All.
func TestFanoutsOutOfReachCostNothing(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(11, 0)), 50)
	seeds := []graph.VertexID{4, 3}
	want := Reference(topology, Neighbours(All, All), seeds, Key{})
	defer want.Free()
	s, err := New(topology,
		Options{Spec: Neighbours(graph.MaxVertices, graph.MaxVertices), Workers: 2, minParallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free()
	var mb Minibatch
	defer mb.Free()
	if err := s.Sample(&mb, seeds, Key{}); err != nil || difference(&mb, want) != "" {
		t.Errorf("%v %s", err, difference(&mb, want))
	}
	if s.Bytes() > 1<<20 {
		t.Errorf("the sampler holds %d bytes for a graph of 50 vertices", s.Bytes())
	}
}

// Samplers that share a topology run side by side, as the pool of a pipeline runs them.
func TestSamplersSideBySide(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 0))
	topology := randomTopology(r, 300)
	seeds := someSeeds(r, 300, 40)
	digests := make([]uint64, 4)
	t.Run("group", func(t *testing.T) {
		for i := range digests {
			s := mustNew(t, topology,
				Options{Spec: Neighbours(10, 5), Workers: 1 + i%2, minParallel: 1})
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				var mb Minibatch
				defer mb.Free()
				for range 20 {
					if err := s.Sample(&mb, seeds, Key{Epoch: 1}); err != nil {
						t.Fatal(err)
					}
				}
				digests[i] = mb.Digest()
			})
		}
	})
	if slices.Max(digests) != slices.Min(digests) {
		t.Errorf("digests %x differ", digests)
	}
}
