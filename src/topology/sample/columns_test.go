package sample

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/topology/graph"
)

// typedTopology returns a graph of three types in two parts, whose relations have no edges, few and
// many, and one leads from a type to itself.
func typedTopology(t *testing.T, r *rand.Rand, links ...int) *Topology {
	s := graph.Schema{Links: links, Types: []string{"a", "b", "c"}, Relations: []graph.Relation{
		{Source: "a", Name: "x", Target: "b"}, {Source: "b", Name: "y", Target: "a"},
		{Source: "a", Name: "self", Target: "a"}, {Source: "c", Name: "z", Target: "a"},
		{Source: "a", Name: "none", Target: "b"},
	}}
	starts := []int64{0, 40, 60, 60, 95, 95, 120}
	rows, edges := []int64{0}, []int64{0}
	var indices []graph.VertexID
	c, err := graph.NewColumns(&s, starts, nil)
	if err != nil {
		t.Fatal(err)
	}
	members := func(kind int) (all []graph.VertexID) {
		for i := kind; i < len(starts)-1; i += 3 {
			for v := starts[i]; v < starts[i+1]; v++ {
				all = append(all, graph.VertexID(v))
			}
		}
		return all
	}
	for v := range graph.VertexID(120) {
		kind, _, _ := c.Of(v)
		for _, rel := range c.Into(kind) {
			from, _ := s.Ends(rel)
			near := members(from)
			r.Shuffle(len(near), func(i, j int) { near[i], near[j] = near[j], near[i] })
			if rel != 4 {
				indices = append(indices,
					near[:min(len(near), []int{0, 1, 3, 12, 60}[r.IntN(5)])]...)
			}
			rows = append(rows, int64(len(indices)))
		}
		edges = append(edges, int64(len(indices)))
	}
	top := &Topology{Graph: graph.CSC{Indptr: edges, Indices: indices}}
	if top.Columns, err = graph.NewColumns(&s, starts, rows); err != nil {
		t.Fatal(err)
	}
	if err := top.Columns.Check(edges); err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Perm(120) {
		top.Original = append(top.Original, int32(o))
	}
	return top
}

func TestColumnsAreDrawnAsTheReferenceDraws(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	top := typedTopology(t, r)
	each := [][]int{{1, 1}, {All, 2}, {2, 5}, {3, All}, {1, 1}}
	for _, spec := range []Spec{
		Neighbours(3, 2), Neighbours(All, All, All), Neighbours(1),
		{Fanouts: []int{3, 2}, Relations: each},
		{Kind: Poisson, Fanouts: []int{3, 2}},
		{Kind: Poisson, Fanouts: []int{3, 2}, Relations: each},
		{Kind: Poisson, Fanouts: []int{3, 2}, Relations: each,
			Numbers: Numbers{Shared: true, Steps: 4}},
		{Kind: Labor, Fanouts: []int{3, 2}, Relations: each,
			Numbers: Numbers{Steps: 4, Dependency: 3}},
		{Kind: Labor, Fanouts: []int{1, 2, 4}, Numbers: Numbers{Steps: 4, Layers: true}},
	} {
		s, err := New(top, Options{Spec: spec, Workers: 2, minParallel: 1, MaxSeeds: 15})
		if err != nil {
			t.Fatal(err)
		}
		for trial := range 20 {
			var seeds []graph.VertexID
			for _, v := range r.Perm(120)[:r.IntN(16)] {
				seeds = append(seeds, graph.VertexID(v))
			}
			key := Key{Seed: 9, Epoch: 1, Step: trial}
			want := Reference(top, spec, seeds, key)
			var got Minibatch
			if err := s.Sample(&got, seeds, key); err != nil {
				t.Fatal(err)
			}
			if d := difference(&got, want); d != "" ||
				got.EdgesDigest(key) != want.EdgesDigest(key) {
				t.Fatalf("%v, trial %d: not the reference's minibatch: %s", spec, trial, d)
			}
			for l := range got.Blocks {
				b := &got.Blocks[l]
				if err := b.Validate(); err != nil {
					t.Fatal(err)
				}
				if l > 0 && !slices.Equal(got.Transposes[l].Edges, want.Transposes[l].Edges) {
					t.Fatalf("transpose %d is not the reference's", l)
				}
				checkColumns(t, top, &got, b, spec, len(got.Blocks)-1-l)
			}
			got.Free()
			want.Free()
		}
		s.Free()
	}
}

// checkColumns holds the rows of a block to the law: of every destination and relation that has
// in-edges min(fanout, degree) different ones, in the order of relations and destinations.
func checkColumns(t *testing.T, top *Topology, m *Minibatch, b *graph.Block, spec Spec, h int) {
	t.Helper()
	c, row := &top.Columns, 0
	for r := range c.NumRelations() {
		for d, v := range m.Frontier[:b.NumDst] {
			kind, first, _ := c.Of(v)
			if kind != c.Target(r) {
				continue
			}
			at := int(first) + c.Place(r)
			near := top.Graph.Indices[c.Indptr[at]:c.Indptr[at+1]]
			if len(near) == 0 {
				continue
			}
			if int(b.Targets[row]) != d {
				t.Fatalf("row %d is of destination %d, want %d", row, b.Targets[row], d)
			}
			drawn := b.Indices[b.Indptr[row]:b.Indptr[row+1]]
			if spec.Estimates() && m.RowTotals(len(m.Blocks) - 1 - h)[row] != float64(len(near)) {
				t.Fatalf("row %d is of %d edges, and its total is another", row, len(near))
			}
			want := len(near)
			if f := spec.fanoutBy(h, r); f != All {
				want = min(want, f)
			}
			seen := map[int32]bool{}
			for _, s := range drawn {
				if seen[s] || !slices.Contains(near, m.Frontier[s]) {
					t.Fatalf("row %d: source %d is drawn twice or is no neighbour", row, s)
				}
				seen[s] = true
			}
			if len(drawn) != want && (spec.kind() != Poisson || want == len(near)) {
				t.Fatalf("row %d draws %d of %d, want %d", row, len(drawn), len(near), want)
			}
			row++
		}
		if int(b.Ends[r]) != row {
			t.Fatalf("relation %d ends at row %d, want %d", r, b.Ends[r], row)
		}
	}
}

// Ranks that hold the columns of their own vertices alone make the minibatches that one makes that
// holds all, and ask for as much as is counted on these.
func TestRemoteColumnsAreReference(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 6))
	for round := range 21 {
		top := typedTopology(t, r)
		spec := []Spec{
			Neighbours(3, 2), Neighbours(All, 300), Neighbours(1, 1, 1),
			{Fanouts: []int{3, 2}, Relations: [][]int{{1, 1}, {All, 2}, {2, 5}, {3, 1}, {1, 1}}},
			{Kind: Poisson, Fanouts: []int{3, 2},
				Relations: [][]int{{1, 1}, {All, 2}, {2, 5}, {3, 1}, {1, 1}}},
			{Kind: Poisson, Fanouts: []int{1, 2}, Numbers: Numbers{Shared: true, Steps: 4}},
			{Kind: Labor, Fanouts: []int{1, 2}, Numbers: Numbers{Steps: 4, Dependency: 3}},
		}[round%7]
		offsets := [][]int64{{0, 60, 120}, {0, 120}, {0, 0, 31, 95, 120}}[round%3]
		ranks := len(offsets) - 1
		c := newCluster(t, top, offsets, Options{Spec: spec})
		mbs, seeds, keys := make([]Minibatch, ranks), make([][]graph.VertexID, ranks),
			make([]Key, ranks)
		for k := range ranks {
			seeds[k], keys[k] = someSeeds(r, 120, r.IntN(20)), Key{Seed: 3, Step: round, Stream: k}
		}
		if err := c.sample(mbs, seeds, keys, spec.Hops(), true); err != nil {
			t.Fatal(err)
		}
		for k := range ranks {
			want := Reference(top, spec, seeds[k], keys[k])
			if d := difference(&mbs[k], want); d != "" {
				t.Fatalf("round %d, rank %d of %d: %s", round, k, ranks, d)
			}
			if spec.Estimates() {
				for l := range mbs[k].Blocks {
					checkColumns(t, top, &mbs[k], &mbs[k].Blocks[l], spec, len(mbs[k].Blocks)-1-l)
				}
			}
			asks := want.Asks(&Askers{Spec: spec, Topology: top, Ranks: ranks, Elsewhere: true,
				First: graph.VertexID(offsets[k]), End: graph.VertexID(offsets[k+1]), Key: keys[k],
				Draws: func(graph.VertexID) bool { return true }})
			a := &c.asking[k] // of the last hop
			if got := (Asked{a.Vertices(), len(a.Neighbours),
				ranks*AskBytes + len(a.IDs)*VertexBytes + len(a.Sizes) +
					len(a.Neighbours)*VertexBytes}); ranks > 1 && got != asks[0] {
				t.Fatalf("round %d, rank %d: asked %+v, counted %+v", round, k, got, asks[0])
			}
			want.Free()
			mbs[k].Free()
		}
		c.free()
	}
}

func TestRelationsRefuse(t *testing.T) {
	top := typedTopology(t, rand.New(rand.NewPCG(1, 2)))
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Spec: Spec{Kind: Poisson, Fanouts: []int{2}},
			Near: Near{Vertices: [][]uint64{{1, 1}}}},
			"set sample.locality=1"},
		{Options{Spec: Spec{Kind: LADIES, Vertices: []int{2}}}, "does not draw by relations"},
		{Options{Spec: Spec{Fanouts: []int{2}, Relations: [][]int{{1}}}},
			"fanouts for 1 relations"},
		{Options{Spec: Spec{Fanouts: []int{2}, Relations: [][]int{{1, 2}}}},
			"but there are 1 hops"},
	} {
		if _, err := New(top, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

// On a graph with relations a minibatch of links is drawn as if the links, and their reverses in
// the relations that hold these, were not in the graph; no other relation loses an edge. Negatives
// have the types of the ends that they replace.
func TestRelationsLeaveLinksOut(t *testing.T) {
	for _, linked := range [][]int{{1, 0}, {2}, {3}} {
		top := typedTopology(t, rand.New(rand.NewPCG(5, 7)), linked...)
		c := &top.Columns
		type edge struct {
			relation int
			graph.Link
		}
		var all []edge
		var links []graph.Link
		for v := range graph.VertexID(120) {
			kind, first, _ := c.Of(v)
			for k, r := range c.Into(kind) {
				column := int(first) + k
				for i, u := range top.Graph.Indices[c.Indptr[column]:c.Indptr[column+1]] {
					all = append(all, edge{r, graph.Link{Source: u, Target: v}})
					if r == linked[0] && i < 3 && u != v {
						links = append(links, graph.Link{Source: u, Target: v})
					}
				}
			}
		}
		numbers := make([]graph.VertexID, len(links))
		for i := range numbers {
			numbers[i] = graph.VertexID(i)
		}
		s, err := NewStreams([][]graph.VertexID{numbers}, StreamOptions{Batch: 20, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		source, _, _ := c.Of(links[0].Source)
		target, _, _ := c.Of(links[0].Target)
		l, err := s.Rate(links, nil, top, LinkOptions{Negatives: Negatives{NegativesUniform, 2},
			Corrupt: CorruptBoth, Exclude: true, Source: source, Target: target})
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []Spec{Neighbours(5, 3), Neighbours(All, 4)} {
			plain := spec
			spec.Links = l
			sampler, err := New(top, Options{Spec: spec, Workers: 2, minParallel: 1})
			if err != nil {
				t.Fatal(err)
			}
			for step := range s.Steps() {
				pairs := map[graph.Link]bool{}
				for _, n := range s.numbers(1, step, 0, nil) {
					pairs[links[n]], pairs[links[n].Reverse()] = true, true
				}
				less := &Topology{Original: top.Original, Columns: *c}
				less.Graph.Indptr, less.Columns.Indptr = []int64{0}, []int64{0}
				at, lost := 0, 0
				for v := range graph.VertexID(120) {
					kind, _, _ := c.Of(v)
					for _, r := range c.Into(kind) {
						for ; at < len(all) && all[at].relation == r && all[at].Target == v; at++ {
							if slices.Contains(linked, r) && pairs[all[at].Link] {
								lost++
								continue
							}
							less.Graph.Indices = append(less.Graph.Indices, all[at].Source)
						}
						less.Columns.Indptr = append(less.Columns.Indptr,
							int64(len(less.Graph.Indices)))
					}
					less.Graph.Indptr = append(less.Graph.Indptr, int64(len(less.Graph.Indices)))
				}
				key := Key{Seed: 7, Epoch: 1, Step: step}
				seeds := s.Piece(1, step, 0, nil)
				var mb Minibatch
				if err := sampler.Sample(&mb, seeds, key); err != nil {
					t.Fatal(err)
				}
				if want := Reference(less, plain, seeds, key).Digest(); lost == 0 ||
					mb.Digest() != want || Reference(top, spec, seeds, key).Digest() != want {
					t.Fatalf("links of %v, step %d, %d edges lost: not the graph's without them",
						linked, step, lost)
				}
				l.withMinibatch(1, step, 0, func(r *rated) {
					for pairs := r.truth[2:]; len(pairs) > 0; pairs = pairs[2:] {
						for end, want := range []int{source, target} {
							if pairs[end] < 0 {
								continue
							}
							if kind, _, _ := c.Of(r.seeds[pairs[end]]); kind != want {
								t.Fatalf("end %d of a pair is of type %d, want %d", end, kind, want)
							}
						}
					}
				})
			}
			sampler.Free()
		}
	}
}
