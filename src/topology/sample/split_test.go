package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// splitters are ranks that make minibatches together, without anything between them.
type splitters struct {
	owners    *Owners
	of        []*Split
	crossings [][]Crossing // by rank, hop
	layers    []Layer
	found     []int // in the input layer, by rank; of kind LADIES
	edges     []uint64
}

func newSplitters(t *testing.T, whole *Topology, offsets []int64, windows bool,
	o Options) *splitters {
	t.Helper()
	c := &splitters{owners: NewOwners(offsets, len(offsets)-1),
		edges: make([]uint64, len(offsets)-1), layers: make([]Layer, len(offsets)-1),
		found: make([]int, len(offsets)-1)}
	for r := range len(offsets) - 1 {
		topology := *whole
		if windows { // the rows of own vertices alone
			first, last := offsets[r], offsets[r+1]
			topology.First = graph.VertexID(first)
			topology.Graph.Indptr = whole.Graph.Indptr[first : last+1]
		}
		s, err := NewSplit(&topology, c.owners, r, o)
		if err != nil {
			t.Fatal(err)
		}
		c.of = append(c.of, s)
		c.crossings = append(c.crossings, make([]Crossing, o.Hops()))
	}
	return c
}

func (c *splitters) free() {
	for r, s := range c.of {
		s.Free()
		c.layers[r].Free()
		for h := range c.crossings[r] {
			c.crossings[r][h].Free()
		}
	}
}

// sample makes the shares of a minibatch, all in lock-step.
func (c *splitters) sample(mbs []Minibatch, seeds []graph.VertexID, key Key, train bool) error {
	ranks, hops := len(c.of), len(c.crossings[0])
	for r, s := range c.of {
		var own []graph.VertexID
		for _, v := range seeds {
			if c.owners.Owner(v) == r {
				own = append(own, v)
			}
		}
		if err := s.Begin(&mbs[r], own, hops); err != nil {
			return err
		}
		c.edges[r] = 0
	}
	if err := c.draw(mbs, 1, train, key); err != nil {
		return err
	}
	for h := 1; h < hops; h++ {
		for to := range ranks {
			x := &c.crossings[to][h-1]
			var ids []graph.VertexID
			for from := range ranks {
				y := &c.crossings[from][h-1]
				at := 0
				for owner := range to {
					at += y.Count[owner]
				}
				x.Wanted[from] = y.Count[to]
				ids = append(ids, y.IDs[at:at+y.Count[to]]...)
			}
			if err := x.Expect(c.owners, to); err != nil {
				return err
			}
			copy(x.WantIDs, ids)
		}
		for r := range ranks {
			s := c.of[r]
			s.fused.vertices.reset() // nothing is kept from Draw to Join
			if err := s.Join(&mbs[r], &c.crossings[r][h-1], h); err != nil {
				return err
			}
		}
		if err := c.draw(mbs, h+1, train, key); err != nil {
			return err
		}
	}
	for r, s := range c.of {
		s.Last(&mbs[r], &c.crossings[r][hops-1])
	}
	return nil
}

// draw draws hop h on all ranks.
func (c *splitters) draw(mbs []Minibatch, h int, train bool, key Key) error {
	var all []uint32
	var count []int
	for r, s := range c.of {
		x, l := &c.crossings[r][h-1], &c.layers[r]
		if !s.fused.options.Layered(train) {
			if err := s.Draw(&mbs[r], x, h, train, key, &c.edges[r]); err != nil {
				return err
			}
			continue
		}
		if err := s.Find(&mbs[r], l, h, true, Key{}, nil); err != nil {
			return err
		}
		all, count = append(all, l.Own...), append(count, len(l.Own)*4/CandidateBytes)
		if h == len(c.crossings[r]) { // it is the input layer: Candidates counts from there
			c.found[r] = len(l.Own) * 4 / CandidateBytes
		}
	}
	for r, s := range c.of {
		l := &c.layers[r]
		if !s.fused.options.Layered(train) {
			return nil
		}
		if err := l.Expect(c.owners, r, count); err != nil {
			return err
		}
		copy(l.All, all)
		s.fused.vertices.reset() // nothing is kept from Find to Choose
		err := s.Choose(&mbs[r], l, count, &c.crossings[r][h-1], h, train, key, &c.edges[r])
		if err != nil {
			return err
		}
	}
	return nil
}

// sources returns the ids of a share's sources of hop h.
func (c *splitters) sources(mb *Minibatch, rank, h int) []graph.VertexID {
	x := &c.crossings[rank][h-1]
	return append(slices.Clone(mb.Frontier[:x.Own()]), x.IDs...)
}

// edge is one edge of a block, by ids.
type edge struct {
	from, to graph.VertexID
	weight   float32
}

func edgesOf(b *graph.Block, sources []graph.VertexID) (all []edge) {
	for d := range b.NumDst {
		for e := b.Indptr[d]; e < b.Indptr[d+1]; e++ {
			one := edge{from: sources[b.Indices[e]], to: sources[d]}
			if b.Weights != nil {
				one.weight = b.Weights[e]
			}
			all = append(all, one)
		}
	}
	return all
}

func byIDs(a, b edge) int {
	if a.to != b.to {
		return int(a.to - b.to)
	}
	return int(a.from - b.from)
}

// The shares of a minibatch are the minibatch: every edge is drawn once, by the owner of its
// destination; a rank's frontier is what it owns of the whole one; sources are own ones first, then
// those of others by owner; and the shuffle index names the same vertices on both ends.
func TestSharesAreTheMinibatch(t *testing.T) {
	const n = 300
	r := rand.New(rand.NewPCG(16, 1))
	whole := randomTopology(r, n)
	weigh(r, whole)
	before := mem.Allocated()
	for _, offsets := range [][]int64{{0, n}, {0, 100, n}, {0, 20, 20, 250, n}} {
		for _, fanouts := range [][]int{{4}, {3, All}, {5, 3, 2}} {
			for variant := range 4 {
				windows := variant > 0
				o := Options{Spec: Neighbours(fanouts...), MaxSeeds: 40, Weights: true}
				o.Eval = Neighbours(slices.Repeat([]int{2}, len(fanouts))...)
				switch variant { // each kind, with either topology
				case 1:
					o.Kind, o.Eval.Kind = Poisson, Poisson
				case 2:
					o.Spec = numbered(Labor, r, fanouts...)
				case 3:
					o.Spec = Spec{Kind: LADIES, Vertices: []int{60, 9, 90}[:len(fanouts)]}
				}
				name := fmt.Sprintf("%d ranks, %v, windows %v", len(offsets)-1, o.Spec, windows)
				c := newSplitters(t, whole, offsets, windows, o)
				alone, err := New(whole, o)
				if err != nil {
					t.Fatal(err)
				}
				mbs := make([]Minibatch, len(offsets)-1)
				var want Minibatch
				for step := range 4 {
					key := Key{Seed: 2, Epoch: 1, Step: step}
					seeds, draw := someSeeds(r, n, 40-13*step), alone.Sample
					if step == 3 {
						draw = alone.SampleEval
					}
					if err := draw(&want, seeds, key); err != nil {
						t.Fatal(err)
					}
					if err := c.sample(mbs, seeds, key, step < 3); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if err := c.compare(mbs, &want, offsets, key); err != nil {
						t.Fatalf("%s, step %d: %v", name, step, err)
					}
					if err := c.compareCut(&want, offsets, key); err != nil {
						t.Fatalf("%s, step %d, cut out of the whole: %v", name, step, err)
					}
					if step < 3 && variant == 3 {
						found := make([][]int, len(mbs))
						for r := range found {
							found[r] = make([]int, len(fanouts))
						}
						want.Candidates(whole, c.owners.Owner, found)
						for r, n := range c.found {
							if found[r][0] != n {
								t.Errorf("%s: rank %d has found %d, counted on the whole %d", name,
									r, n, found[r][0])
							}
						}
					}
				}
				c.free()
				want.Free()
				for k := range mbs {
					mbs[k].Free()
				}
				alone.Free()
			}
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// compareCut holds shares that are cut out of the whole minibatch to what the ranks make.
func (c *splitters) compareCut(want *Minibatch, offsets []int64, key Key) error {
	x := &splitters{owners: c.owners, of: c.of, edges: c.edges}
	mbs, hops := make([]Minibatch, len(c.of)), len(want.Blocks)
	var cutter Cutter
	defer func() {
		cutter.Free()
		for r := range mbs {
			mbs[r].Free()
		}
		for _, ofRank := range x.crossings {
			for h := range ofRank {
				ofRank[h].Free()
			}
		}
	}()
	for r := range mbs {
		x.crossings = append(x.crossings, make([]Crossing, hops))
		again := func() { cutter.Cut(want, c.owners, r, true, &mbs[r], x.crossings[r]) }
		again()
		held := mem.Allocated()
		// The runtime itself makes an array now and then: the mean of some runs, a whole number,
		// does not count it.
		if made := testing.AllocsPerRun(4, again); made > 0 || mem.Allocated() != held {
			return fmt.Errorf("rank %d: cut again, it makes %v arrays, and %d bytes", r, made,
				mem.Allocated()-held)
		}
		last, was := &x.crossings[r][hops-1], &c.crossings[r][hops-1]
		if last.Own() != was.Own() || len(last.place) != len(was.place) ||
			len(last.Reads) < last.Own() {
			return fmt.Errorf("rank %d: own %d, want %d; found %d, want %d", r, last.Own(),
				was.Own(), len(last.place), len(was.place))
		}
		for k, at := range last.At {
			if last.Reads[at] != last.WantIDs[k] {
				return fmt.Errorf("rank %d: others want %d, and it reads %d", r, last.WantIDs[k],
					last.Reads[at])
			}
		}
	}
	return x.compare(mbs, want, offsets, key)
}

func (c *splitters) compare(mbs []Minibatch, want *Minibatch, offsets []int64, key Key) error {
	digest, hops := uint64(0), len(want.Blocks)
	for _, e := range c.edges {
		digest += e
	}
	if digest != want.EdgesDigest(key) {
		return fmt.Errorf("digests of edges %x, want %x", digest, want.EdgesDigest(key))
	}
	parts, loads := graph.NewPartIndex(offsets), NewLoads(len(mbs), hops)
	want.Loads(func(v graph.VertexID) int { return parts.Find(uint32(v)) }, 2, nil, loads)
	for h := 1; h <= hops; h++ {
		l := hops - h
		var all []edge
		for r := range mbs {
			b, sources := &mbs[r].Blocks[l], c.sources(&mbs[r], r, h)
			if err := b.Validate(); err != nil {
				return err
			}
			if b.NumSrc != len(sources) || l > 0 && b.NumSrc+1 != len(mbs[r].Transposes[l].Indptr) {
				return fmt.Errorf("rank %d, hop %d: %d sources, want %d", r, h, b.NumSrc,
					len(sources))
			}
			x := &c.crossings[r][h-1]
			load := Load{Destinations: b.NumDst, Edges: b.NumEdges(), Own: x.Own(),
				Others: len(x.IDs), Wanted: loads[r][l].Wanted}
			for _, s := range b.Indices {
				if int(s) >= x.Own() {
					load.Cross++
				}
			}
			for _, v := range x.IDs {
				if parts.Find(uint32(v))/2 != r/2 {
					load.Far++
				}
			}
			if l > 0 {
				load.Wanted = len(x.At)
			}
			if load != loads[r][l] {
				return fmt.Errorf("rank %d, hop %d: %+v, counted on the whole %+v", r, h, load,
					loads[r][l])
			}
			frontier := want.Frontier[:want.Blocks[l].NumSrc]
			if err := c.compareFrontier(mbs, frontier, offsets, r, h); err != nil {
				return fmt.Errorf("rank %d, hop %d: %w", r, h, err)
			}
			all = append(all, edgesOf(b, sources)...)
		}
		wanted := edgesOf(&want.Blocks[l], want.Frontier)
		slices.SortFunc(all, byIDs)
		slices.SortFunc(wanted, byIDs)
		// What LADIES draws by are sums, which ranks add up in another order.
		same := func(a, b edge) bool {
			return a.from == b.from && a.to == b.to &&
				math.Abs(float64(a.weight-b.weight)) <= 3e-7*float64(b.weight)
		}
		if !slices.EqualFunc(all, wanted, same) {
			return fmt.Errorf("hop %d: %d edges, want %d", h, len(all), len(wanted))
		}
	}
	return nil
}

// compareFrontier compares the sources of hop h on rank r with the whole frontier.
func (c *splitters) compareFrontier(mbs []Minibatch, frontier []graph.VertexID, offsets []int64,
	r, h int) error {
	mb, x, last := &mbs[r], &c.crossings[r][h-1], h == len(mbs[r].Blocks)
	parts := graph.NewPartIndex(offsets)
	var own []graph.VertexID
	for _, v := range frontier {
		if parts.Find(uint32(v)) == r {
			own = append(own, v)
		}
	}
	got := slices.Clone(mb.Frontier[:x.Own()])
	slices.Sort(got)
	slices.Sort(own)
	if !last && !slices.Equal(got, own) { // of the last hop only those that are found here
		return fmt.Errorf("own frontier %v, want %v", got, own)
	}
	at := 0
	for owner, n := range x.Count {
		for _, v := range x.IDs[at : at+n] {
			if owner == r || parts.Find(uint32(v)) != owner {
				return fmt.Errorf("vertex %d is not of rank %d", v, owner)
			}
		}
		at += n
	}
	if last {
		// All that is read at the last hop is read by its owner, once.
		var rows []int32
		for k := range mbs {
			y, at := &c.crossings[k][h-1], 0
			for owner := range r {
				at += y.Count[owner]
			}
			for _, v := range y.IDs[at : at+y.Count[r]] {
				rows = append(rows, int32(int64(v)-offsets[r]))
			}
		}
		rows = append(rows, -1, int32(offsets[r+1]-offsets[r])) // not there
		if n := c.of[r].Distinct(mb.Frontier[:x.Own()], rows); n != len(own) {
			return fmt.Errorf("%d rows are read, want %d", n, len(own))
		}
		if !slices.Equal(mb.Frontier, c.sources(mb, r, h)) {
			return fmt.Errorf("frontier %v, want the sources of the last hop", mb.Frontier)
		}
		return nil
	}
	for k, i := range x.At {
		if mb.Frontier[i] != x.WantIDs[k] {
			return fmt.Errorf("wanted vertex %d is at %d, where %d is", x.WantIDs[k], i,
				mb.Frontier[i])
		}
	}
	return nil
}

// What others claim of this rank's vertices, and of the graph's, is checked.
func TestSplitRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 2))
	whole, rows := randomTopology(r, 60), NewOwners([]int64{0, 20, 60}, 2)
	o := Options{Spec: Neighbours(3, 3), MaxSeeds: 8}
	s, err := NewSplit(whole, rows, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free()
	var mb Minibatch
	var x Crossing
	defer mb.Free()
	defer x.Free()
	expect := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	expect("a seed outside", s.Begin(&mb, []graph.VertexID{3, 60}, 2), "seed 60")
	expect("a seed twice", s.Begin(&mb, []graph.VertexID{3, 3}, 2), "given twice")
	expect("many seeds", s.Begin(&mb, make([]graph.VertexID, 9), 2), "at most 8")
	if err := s.Begin(&mb, []graph.VertexID{3, 5}, 2); err != nil {
		t.Fatal(err)
	}
	edges := uint64(0)
	if err := s.Draw(&mb, &x, 1, true, Key{}, &edges); err != nil {
		t.Fatal(err)
	}
	x.Wanted[1] = 21
	expect("too many", x.Expect(rows, 0),
		"rank 1 has found 21 vertices of rank 0, which has only 20")
	x.Wanted[1] = -1
	expect("fewer than none", x.Expect(rows, 0), "rank 1")
	x.Wanted[1] = 1
	if err := x.Expect(rows, 0); err != nil {
		t.Fatal(err)
	}
	x.WantIDs[0] = 20
	expect("of another", s.Join(&mb, &x, 1),
		"rank 1 asks rank 0 for vertex 20, which that rank does not own")

	bad := o
	bad.Kind = "layers"
	_, err = NewSplit(whole, rows, 0, bad)
	expect("a kind", err, `sample.kind "layers" is unknown`)
	layered := o
	layered.Spec = Spec{Kind: LADIES, Vertices: []int{5, 5}}
	ladies, err := NewSplit(whole, rows, 0, layered)
	if err != nil {
		t.Fatal(err)
	}
	defer ladies.Free()
	var l Layer
	defer l.Free()
	if err := errors.Join(ladies.Begin(&mb, []graph.VertexID{3}, 2),
		ladies.Find(&mb, &l, 1, true, Key{}, nil)); err != nil {
		t.Fatal(err)
	}
	own := len(l.Own) * 4 / CandidateBytes
	expect("candidates", l.Expect(rows, 0, []int{own, 61}), "rank 1 has found 61 of 60 vertices")
	if err := l.Expect(rows, 0, []int{own, 1}); err != nil {
		t.Fatal(err)
	}
	copy(l.All, l.Own)
	l.All[len(l.Own)] = 60
	expect("a candidate", ladies.Choose(&mb, &l, []int{own, 1}, &x, 1, true, Key{}, new(uint64)),
		"has found vertex 60")
	bad = o
	bad.Weights = true
	_, err = NewSplit(whole, rows, 0, bad)
	expect("weights", err, "no weights")
}
