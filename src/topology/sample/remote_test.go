package sample

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/tests/race"
)

// cluster is ranks that hold windows of a topology's rows, without anything between them.
type cluster struct {
	whole   *Topology
	parts   graph.PartIndex
	offsets []int64
	remotes []*Remote
	asking  []Asking
	answers []Answer
	words   []uint64
}

func newCluster(t *testing.T, whole *Topology, offsets []int64, o Options) *cluster {
	t.Helper()
	c := &cluster{whole: whole, parts: graph.NewPartIndex(offsets), offsets: offsets}
	for k := range len(offsets) - 1 {
		first, last := offsets[k], offsets[k+1]
		g := graph.CSC{
			Indptr:  whole.Graph.Indptr[first : last+1],
			Indices: whole.Graph.Indices[:whole.Graph.Indptr[last]:whole.Graph.Indptr[last]],
		}
		part := &Topology{Graph: g, First: graph.VertexID(first), Original: whole.Original}
		if whole.Weights != nil {
			part.Weights, part.WeightSums = whole.Weights[:len(g.Indices)], make([]float32, last)
			copy(part.WeightSums[first:], whole.WeightSums[first:last])
			part.WeightSums = append(part.WeightSums,
				make([]float32, len(whole.Original)-int(last))...)
		}
		if part.Columns = whole.Columns; !whole.Columns.Plain() {
			rows := slices.Clone(whole.Columns.Indptr)
			for c := range rows { // others' columns are not read
				if int64(c) < whole.Columns.First(first) || int64(c) > whole.Columns.First(last) {
					rows[c] = -1 << 40
				}
			}
			part.Columns.Indptr = rows
		}
		r, err := NewRemote(part, o)
		if err != nil {
			t.Fatal(err)
		}
		c.remotes = append(c.remotes, r)
	}
	c.asking, c.answers = make([]Asking, len(c.remotes)), make([]Answer, len(c.remotes))
	c.words = make([]uint64, len(c.remotes))
	return c
}

func (c *cluster) free() {
	for k := range c.remotes {
		c.remotes[k].Free()
		c.asking[k].Free()
		c.answers[k].Free()
	}
}

// sample draws a minibatch for each rank, all in lock-step, as a pipeline would: seeds[k] under
// keys[k].
func (c *cluster) sample(mbs []Minibatch, seeds [][]graph.VertexID, keys []Key, hops int,
	train bool) error {
	ranks := len(c.remotes)
	for k, r := range c.remotes {
		if err := r.Begin(&mbs[k], seeds[k], hops); err != nil {
			return err
		}
	}
	for h := 1; h <= hops; h++ {
		for k, r := range c.remotes {
			if err := r.Ask(&c.asking[k], &c.parts, ranks, k, mbs[k].Frontier, keys[k], h,
				train); err != nil {
				return err
			}
			c.words[k] = c.asking[k].Word
		}
		for owner, r := range c.remotes { // the way of all messages, by hand
			var ids []graph.VertexID
			count := make([]int, ranks)
			for k := range c.asking {
				a, at := &c.asking[k], 0
				for o := range owner {
					at += a.Words[o]
				}
				count[k] = a.Words[owner]
				ids = append(ids, a.IDs[at:at+count[k]]...)
			}
			if err := r.Answer(&c.answers[owner], ids, count, c.words,
				&c.asking[owner]); err != nil {
				return err
			}
			if err := r.Draw(&c.asking[owner]); err != nil {
				return err
			}
		}
		for k := range c.asking {
			if err := c.deliver(k); err != nil {
				return err
			}
			// Another one numbers than numbered before: nothing is kept between two calls.
			other := c.remotes[(k+h)%ranks]
			if err := other.Extend(&mbs[k], h, &c.asking[k]); err != nil {
				return err
			}
		}
	}
	for k, r := range c.remotes {
		r.End(&mbs[k])
	}
	return nil
}

// deliver brings rank k its answers.
func (c *cluster) deliver(k int) error {
	a, width := &c.asking[k], c.asking[k].Reply.Column()
	a.Reserve(nil)
	a.Sizes = a.Sizes[:0]
	for o := range c.answers {
		at := 0
		for asker := range k {
			at += c.asking[asker].Count[o]
		}
		a.Sizes = append(a.Sizes, c.answers[o].Sizes[at*width:(at+a.Count[o])*width]...)
	}
	edges := make([]int, len(c.answers))
	if err := a.Edges(edges); err != nil {
		return err
	}
	a.Reserve(edges)
	a.Neighbours = a.Neighbours[:0]
	for o := range c.answers {
		at := 0
		for asker := range k {
			at += c.answers[o].Edges[asker]
		}
		if edges[o] != c.answers[o].Edges[k] {
			return errors.New("sizes and edges of an answer differ")
		}
		words := a.Reply.Edge / VertexBytes
		a.Neighbours = append(a.Neighbours,
			c.answers[o].Neighbours[words*at:words*(at+edges[o])]...)
	}
	return nil
}

// checkPlaces holds the places of a block's edges to the edges that lie there.
func checkPlaces(t *testing.T, whole *Topology, m *Minibatch, l int, wanted bool) {
	t.Helper()
	b := &m.Blocks[l]
	if !wanted && len(b.Places) > 0 || wanted && len(b.Places) != len(b.Indices) {
		t.Fatalf("%d places of %d edges", len(b.Places), len(b.Indices))
	}
	for d := range b.NumDst {
		begin, end := whole.Graph.Indptr[m.Frontier[d]], whole.Graph.Indptr[m.Frontier[d]+1]
		for e := b.Indptr[d]; wanted && e < b.Indptr[d+1]; e++ {
			at := int64(b.Places[e])
			if at < begin || at >= end || whole.Graph.Indices[at] != m.Frontier[b.Indices[e]] {
				t.Fatalf("edge %d of layer %d does not lie at %d", e, l, at)
			}
		}
	}
}

// Ranks that hold the rows of their own vertices alone make the minibatches that one makes that
// holds all, bit for bit: whatever parts they have, wherever their seeds lie, whichever map
// numbers.
func TestRemoteIsReference(t *testing.T) {
	race.Alone(t)
	r := rand.New(rand.NewPCG(21, 0))
	for round := range 72 {
		n := 3 + r.IntN(300)
		whole := randomTopology(r, n)
		if round%2 == 1 {
			weigh(r, whole)
		}
		fanouts := [][]int{{1}, {15, 10, 5}, {All, 2}, {3, All}, {70, 4}, {300, 1}}[round%6]
		ranks := 1 + r.IntN(5)
		offsets := []int64{0}
		for range ranks - 1 {
			offsets = append(offsets, offsets[len(offsets)-1]+int64(r.IntN(n)/ranks))
		}
		offsets = append(offsets, int64(n))
		eval := Neighbours(fanouts...)
		eval.Fanouts[0] = 2 + round
		for _, o := range []Options{{}, {Map: MapDense}, {MaxSeeds: 40}} {
			o.Fanouts, o.Eval = append([]int(nil), fanouts...), eval
			if round >= 12 {
				o.Spec = numbered(Labor, r, fanouts...)
			}
			switch round / 12 {
			case 3:
				o.Spec.Kind = Poisson
				o.Spec.Numbers.Shared = true
			case 4:
				o.Spec = Spec{Kind: Poisson, Fanouts: o.Spec.Fanouts}
			case 5:
				o.Spec = ladies(fanouts...)
				for i := range o.Spec.Vertices {
					o.Spec.Vertices[i] = 1 + r.IntN(n)
				}
			}
			o.Weights, o.Places = whole.Weights != nil, round%3 > 0 && o.HasFanouts()
			c := newCluster(t, whole, offsets, o)
			mbs := make([]Minibatch, ranks)
			for step := range 4 {
				seeds, keys := make([][]graph.VertexID, ranks), make([]Key, ranks)
				for k := range ranks {
					seeds[k] = someSeeds(r, n, r.IntN(41))
					keys[k] = Key{Seed: uint64(round), Epoch: 2, Step: step, Stream: k}
				}
				train, want := step%2 == 0, o.Spec
				if !train {
					want = o.Eval
				}
				if err := c.sample(mbs, seeds, keys, len(fanouts), train); err != nil {
					t.Fatal(err)
				}
				for k := range ranks {
					reference := Reference(whole, want, seeds[k], keys[k])
					if d := difference(&mbs[k], reference); d != "" {
						t.Fatalf("round %d, step %d, rank %d of %d: %s", round, step, k, ranks, d)
					}
					for l := range mbs[k].Blocks {
						checkPlaces(t, whole, &mbs[k], l, o.Places)
					}
					for i, total := range mbs[k].Totals {
						v := mbs[k].Frontier[i]
						all := float64(whole.Degree(v))
						if o.Weights {
							all = float64(whole.WeightSums[v])
						}
						if total != all {
							t.Fatalf("round %d: vertex %d has a total of %v, want %v", round, v,
								total, all)
						}
					}
					if n := mbs[k].Blocks[0].NumDst; want.Estimates() && len(mbs[k].Totals) != n ||
						!want.Estimates() && len(mbs[k].Totals) != 0 {
						t.Fatalf("round %d: %d totals of %d destinations", round,
							len(mbs[k].Totals), n)
					}
					reference.Free()
				}
			}
			for k := range mbs {
				mbs[k].Free()
			}
			c.free()
		}
	}
}

// Who asks for what is not there, or is answered what cannot be, hears of it with rank and vertex.
func TestRemoteRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 0))
	whole := randomTopology(r, 100)
	c := newCluster(t, whole, []int64{0, 40, 100}, Options{Spec: Neighbours(3, 2)})
	defer c.free()
	_, err := NewRemote(whole, Options{Spec: Neighbours(3), Weights: true})
	if err == nil || !strings.Contains(err.Error(), "have no weights") {
		t.Errorf("weights that are not there: %v", err)
	}
	near := Spec{Kind: Poisson, Fanouts: []int{3}}
	_, err = NewRemote(whole, Options{Spec: near,
		Near: NewNear(near, 100, len(whole.Graph.Indices))})
	if err == nil ||
		!strings.Contains(err.Error(), "do not know which rows the rank that asks holds") {
		t.Errorf("vertices near to the asker: %v", err)
	}
	err = c.remotes[0].Answer(&c.answers[0], []graph.VertexID{5, 60}, []int{1, 1}, []uint64{1, 2},
		&Asking{Fanout: 3, Reply: Neighbours(3).Reply(1, Carried{})})
	if !errors.Is(err, graph.ErrVertexRange) ||
		!strings.Contains(err.Error(), "rank 1 asks for neighbours of vertex 60") {
		t.Errorf("a vertex of another rank: %v", err)
	}
	var mb Minibatch
	defer mb.Free()
	var seed *SeedError
	if err := c.remotes[0].Begin(&mb, []graph.VertexID{1, 1}, 2); !errors.As(err, &seed) {
		t.Errorf("a seed twice: %v", err)
	}
	if err := c.remotes[0].Begin(&mb, []graph.VertexID{100}, 2); !errors.As(err, &seed) {
		t.Errorf("a seed that is no vertex: %v", err)
	}
	if err := c.remotes[0].Begin(&mb, []graph.VertexID{50}, 2); err != nil {
		t.Fatal(err)
	}
	a := &c.asking[0]
	if err := c.remotes[0].Ask(a, &c.parts, 2, 0, mb.Frontier, Key{}, 1, true); err != nil {
		t.Fatal(err)
	}
	a.Reserve(nil)
	a.Sizes[0] = 4
	edges := make([]int, 2)
	if err := a.Edges(edges); err == nil ||
		!strings.Contains(err.Error(), "rank 1 returned 4 neighbours of a vertex") {
		t.Errorf("more neighbours than asked for: %v", err)
	}
	a.Sizes[0] = 1
	if err := errors.Join(a.Edges(edges), c.remotes[0].Draw(a)); err != nil || edges[1] != 1 {
		t.Fatal(err, edges)
	}
	a.Reserve(edges)
	a.Neighbours[0] = 100
	var bad *graph.LayoutError
	if err := c.remotes[0].Extend(&mb, 1, a); !errors.As(err, &bad) || bad.Array != graph.Indices {
		t.Errorf("a neighbour that is no vertex: %v", err)
	}
}

// Once arrays have grown, asking, answering and numbering take no memory more.
func TestRemoteAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 0))
	whole := randomTopology(r, 500)
	before := mem.Allocated()
	c := newCluster(t, whole, []int64{0, 500}, Options{Spec: Neighbours(15, 10, 5)})
	mbs, keys := make([]Minibatch, 1), make([]Key, 1)
	seeds := [][]graph.VertexID{someSeeds(r, 500, 64)}
	run := func() {
		keys[0].Step = (keys[0].Step + 1) % 4
		one, a := c.remotes[0], &c.asking[0]
		if err := one.Begin(&mbs[0], seeds[0], 3); err != nil {
			t.Fatal(err)
		}
		for h := 1; h <= 3; h++ {
			if err := errors.Join(one.Ask(a, &c.parts, 1, 0, mbs[0].Frontier, keys[0], h, true),
				one.Draw(a), one.Extend(&mbs[0], h, a)); err != nil {
				t.Fatal(err)
			}
		}
		one.End(&mbs[0])
	}
	for range 8 {
		run()
	}
	held := mem.Allocated()
	if allocs := testing.AllocsPerRun(20, run); allocs != 0 || mem.Allocated() != held {
		t.Errorf("%v heap allocations a minibatch, %d bytes of mappings more", allocs,
			mem.Allocated()-held)
	}
	want := mbs[0].Bytes() + c.asking[0].Bytes() + c.remotes[0].Bytes()
	if held := mem.Allocated() - before; max(held-want, want-held) > 1<<17 {
		t.Errorf("Bytes says %d, %d are held", want, held)
	}
	mbs[0].Free()
	c.free()
	if mem.Allocated() != before {
		t.Errorf("%d bytes left after Free", mem.Allocated()-before)
	}
}
