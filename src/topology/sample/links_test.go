package sample

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/topology/graph"
)

// rateEdges makes minibatches of links of a graph's first edges.
func rateEdges(t *testing.T, top *Topology, batch int, o LinkOptions) (*Streams, *Links) {
	t.Helper()
	var links []graph.Link
	var numbers []graph.VertexID
	g := &top.Graph
	for v := range g.NumVertices() {
		for i, u := range g.InNeighbours(graph.VertexID(v)) {
			if i < 3 && int(u) != v {
				numbers = append(numbers, graph.VertexID(len(links)))
				links = append(links, graph.Link{Source: u, Target: graph.VertexID(v)})
			}
		}
	}
	s, err := NewStreams([][]graph.VertexID{numbers}, StreamOptions{Batch: batch, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Rate(links, []graph.VertexID{0, graph.VertexID(g.NumVertices())}, top, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// Every sampler leaves the edges of a minibatch's links out before it draws, both ways, and draws
// what the reference draws of the rest: fanouts stay full.
func TestLinksAreLeftOutBeforeDrawing(t *testing.T) {
	top := randomTopology(rand.New(rand.NewPCG(1, 3)), 400)
	for _, spec := range []Spec{
		Neighbours(5, 3), Neighbours(All, 4), {Kind: Labor, Fanouts: []int{4, 3}},
		{Kind: Poisson, Fanouts: []int{4, 3}},
		{Kind: Poisson, Fanouts: []int{4, 3}, Numbers: Numbers{Shared: true}}, ladies(60, 90),
	} {
		s, l := rateEdges(t, top, 40, LinkOptions{Negatives: Negatives{NegativesUniform, 2},
			Corrupt: CorruptBoth, Exclude: true})
		spec = spec.InJob(s.Steps(), 1, 1, 1)
		spec.Links = l
		sampler, err := New(top, Options{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		for step := range 5 {
			key := Key{Seed: 7, Epoch: 1, Step: step}
			seeds := s.Piece(1, step, 0, nil)
			var mb Minibatch
			if err := sampler.Sample(&mb, seeds, key); err != nil {
				t.Fatal(err)
			}
			want := Reference(top, spec, seeds, key)
			if mb.Digest() != want.Digest() {
				t.Fatalf("%s, step %d: not the reference's minibatch", spec, step)
			}
			pairs := map[graph.Link]bool{}
			for _, n := range s.numbers(1, step, 0, nil) {
				pairs[l.links[n]], pairs[l.links[n].Reverse()] = true, true
			}
			shorter := 0
			if alone, ok := sampler.(*Fused); ok && spec.kind() == Labor && step == 0 {
				turns, skipped := 0, false
				for i := range alone.hop.skips.end() {
					if skips := len(alone.hop.skips.skippedPlaces(i)) > 0; skips != skipped {
						turns, skipped = turns+1, skips
					}
				}
				if turns < 10 {
					t.Errorf("%d turns between vertices that skip and others, so none can be "+
						"passed over", turns)
				}
			}
			for h := range mb.Blocks {
				b := &mb.Blocks[h]
				for d := range b.NumDst {
					v, drawn := mb.Frontier[d], b.Indices[b.Indptr[d]:b.Indptr[d+1]]
					left := 0
					for _, u := range top.Graph.InNeighbours(v) {
						if !pairs[graph.Link{Source: u, Target: v}] {
							left++
						}
					}
					if d < len(seeds) && left < len(top.Graph.InNeighbours(v)) {
						shorter++
					}
					if spec.kind() == Neighbour || spec.kind() == Labor {
						fanout := spec.Fanouts[len(mb.Blocks)-1-h]
						if d < len(seeds) && fanout != All && len(drawn) != min(fanout, left) {
							t.Fatalf("%s: %d of %d left are drawn with fanout %d", spec, len(drawn),
								left, fanout)
						}
					}
					for _, i := range drawn {
						if pairs[graph.Link{Source: mb.Frontier[i], Target: v}] {
							t.Fatalf("%s: the link from %d to %d is drawn", spec, mb.Frontier[i], v)
						}
					}
				}
			}
			if shorter == 0 {
				t.Fatal("no row has lost an edge, so nothing is tested")
			}
			if err := sampler.SampleEval(&mb, seeds, key); err != nil {
				t.Fatal(err)
			}
			plain := spec
			plain.Links = nil
			if mb.Digest() != Reference(top, plain, seeds, key).Digest() {
				t.Fatalf("%s: evaluation leaves edges out", spec)
			}
		}
	}
}

// Owners of rows leave out what a rank's minibatch leaves out, whichever rank asks them.
func TestOwnersLeaveLinksOut(t *testing.T) {
	whole := randomTopology(rand.New(rand.NewPCG(1, 5)), 400)
	for _, spec := range []Spec{
		Neighbours(5, 3), Neighbours(All, 4), {Kind: Labor, Fanouts: []int{4, 3}},
		{Kind: Poisson, Fanouts: []int{4, 3}},
		{Kind: Poisson, Fanouts: []int{4, 3}, Numbers: Numbers{Shared: true}}, ladies(60, 90),
	} {
		s, l := rateEdges(t, whole, 40, LinkOptions{Negatives: Negatives{NegativesUniform, 2},
			Corrupt: CorruptBoth, Exclude: true})
		spec = spec.InJob(s.Steps(), 1, 1, 1)
		spec.Links = l
		c := newCluster(t, whole, []int64{0, 150, 170, 400}, Options{Spec: spec})
		alone, err := New(whole, Options{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		var mbs [3]Minibatch
		var seeds [3][]graph.VertexID
		var keys [3]Key
		for k := range keys {
			keys[k] = Key{Seed: 7, Epoch: 1, Step: 2}
			seeds[k] = slices.Clone(s.Piece(1, 2, 0, nil))
		}
		if err := c.sample(mbs[:], seeds[:], keys[:], 2, true); err != nil {
			t.Fatal(err)
		}
		for k := range keys {
			want, without := Reference(whole, spec, seeds[k], keys[k]), spec
			if d := difference(&mbs[k], want); d != "" {
				t.Errorf("%s, rank %d: %s", spec, k, d)
			}
			without.Links = nil
			if mbs[k].Digest() == Reference(whole, without, seeds[k], keys[k]).Digest() {
				t.Errorf("%s, rank %d: nothing is left out, so nothing is tested", spec, k)
			}
			var one Minibatch
			if err := alone.Sample(&one, seeds[k], keys[k]); err != nil {
				t.Fatal(err)
			}
			a := &c.asking[k]
			got := Asked{a.Vertices(), len(a.Neighbours) / a.Reply.words(), len(mbs)*AskBytes +
				VertexBytes*len(a.IDs) + len(a.Sizes) + VertexBytes*len(a.Neighbours)}
			ends := [...]graph.VertexID{0, 150, 170, 400}
			if want := one.Asks(&Askers{Spec: spec, Topology: whole, Ranks: len(mbs),
				Elsewhere: true, First: ends[k], End: ends[k+1],
				Draws: func(graph.VertexID) bool { return true },
				Key:   keys[k]})[0]; got != want {
				t.Errorf("%s, rank %d: the last hop asks %+v, predicted %+v", spec, k, got, want)
			}
			if len(one.Totals) == 0 || !slices.Equal(one.Totals, mbs[k].Totals) {
				t.Errorf("%s, rank %d: the totals of the rows that are left differ", spec, k)
			}
		}
		c.free()
	}
}

// Destinations that skip nothing are drawn together, wherever those are that do, and none is passed
// over.
func TestRunsOfSkips(t *testing.T) {
	k := skips{start: []int32{0, 0, 0, 1, 3, 3}, place: []int64{4, 1, 2}}
	for _, c := range []struct {
		from, hi, end int
		skip          bool
	}{{0, 9, 2, false}, {1, 2, 2, false}, {2, 9, 4, true}, {2, 3, 3, true}, {4, 9, 9, false},
		{7, 9, 9, false}} {
		if end, skip := k.run(c.from, c.hi); end != c.end || skip != c.skip {
			t.Errorf("from %d to %d: %d, %v, want %d, %v", c.from, c.hi, end, skip, c.end, c.skip)
		}
	}
	if end, skip := new(skips).run(3, 8); end != 8 || skip {
		t.Errorf("where nothing is skipped: %d, %v", end, skip)
	}
}

// Seeds that are not those of the key would train with a leak: whoever draws refuses them.
func TestLinksOfOtherSeeds(t *testing.T) {
	top := randomTopology(rand.New(rand.NewPCG(1, 6)), 400)
	for _, spec := range []Spec{Neighbours(5, 3), ladies(60, 90)} {
		s, l := rateEdges(t, top, 40, LinkOptions{Negatives: Negatives{NegativesUniform, 2},
			Corrupt: CorruptBoth, Exclude: true})
		spec.Links = l
		alone, err := New(top, Options{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, top, []int64{0, 400}, Options{Spec: spec})
		swapped := slices.Clone(s.Piece(1, 2, 0, nil))
		swapped[0], swapped[1] = swapped[1], swapped[0]
		for _, seeds := range [][]graph.VertexID{swapped, swapped[2:], nil} {
			key, mbs := Key{Seed: 7, Epoch: 1, Step: 2}, make([]Minibatch, 1)
			for who, err := range map[string]error{"a sampler": alone.Sample(&mbs[0], seeds, key),
				"a remote": c.sample(mbs, [][]graph.VertexID{seeds}, []Key{key}, 2, true)} {
				if err == nil || !strings.Contains(err.Error(),
					"is not at position 0 of the frontier; this is a bug in halognn") {
					t.Errorf("%s, %d seeds of other links: %s: %v", spec, len(seeds), who, err)
				}
			}
		}
		c.free()
		alone.Free()
	}
}

// Samplers are made for the bound of a piece, also where no vertex is named twice and the last
// chunk of joint negatives is not full.
func TestPiecesOfLinksAreBounded(t *testing.T) {
	const n = 1000
	top := &Topology{Graph: graph.CSC{Indptr: make([]int64, n+1)}, Original: make([]int32, n)}
	var links []graph.Link
	var numbers []graph.VertexID
	for i := range graph.VertexID(5) {
		links = append(links, graph.Link{Source: 2 * i, Target: 2*i + 1})
		numbers = append(numbers, i)
	}
	for _, kind := range []string{NegativesUniform, NegativesJoint, NegativesLocal} {
		for _, corrupt := range []string{CorruptTarget, CorruptBoth, CorruptPair} {
			s, err := NewStreams([][]graph.VertexID{numbers}, StreamOptions{Batch: 5, Seed: 7})
			if err != nil {
				t.Fatal(err)
			}
			o := LinkOptions{Negatives: Negatives{kind, 16}, Corrupt: corrupt}
			if _, err := s.Rate(links, []graph.VertexID{0, n}, top, o); err != nil {
				t.Fatal(err)
			}
			if seeds := s.Piece(1, 0, 0, nil); len(seeds) > s.MaxPiece() {
				t.Errorf("%v: %d seeds, and at most %d were expected", o, len(seeds), s.MaxPiece())
			}
		}
	}
}

// Negatives are no ends of their link, are of the stream's vertices where they are local, and with
// the filter no edges; seeds are distinct, and the truth names them.
func TestNegatives(t *testing.T) {
	top := randomTopology(rand.New(rand.NewPCG(1, 4)), 300)
	for _, o := range []LinkOptions{
		{Negatives: Negatives{NegativesUniform, 5}, Corrupt: CorruptBoth, Filter: true},
		{Negatives: Negatives{NegativesJoint, 8}, Corrupt: CorruptTarget},
		{Negatives: Negatives{NegativesLocal, 5}, Corrupt: CorruptSource},
		{Negatives: Negatives{NegativesUniform, 5}, Corrupt: CorruptPair, Filter: true},
		{Negatives: Negatives{NegativesJoint, 8}, Corrupt: CorruptPair},
		{Negatives: Negatives{Kind: NegativesBatch}, Corrupt: CorruptTarget},
	} {
		s, l := rateEdges(t, top, 32, o)
		seeds := slices.Clone(s.Piece(2, 1, 0, nil))
		if len(seeds) > s.MaxPiece() {
			t.Errorf("%v: %d seeds, and at most %d were expected", o, len(seeds), s.MaxPiece())
		}
		if sorted := slices.Sorted(slices.Values(seeds)); len(slices.Compact(sorted)) !=
			len(seeds) {
			t.Errorf("%v: seeds are not distinct", o)
		}
		l.withMinibatch(2, 1, 0, func(r *rated) {
			links, k, pairs := int(r.truth[0]), int(r.truth[1]), r.truth[2:]
			if links != s.PieceLen(1, 0) || len(pairs) != 2*links*(1+k) {
				t.Fatalf("%v: %d links, %d negatives, %d rows", o, links, k, len(pairs))
			}
			missing := 0
			for i := range links {
				own := pairs[2*i*(1+k):]
				link := graph.Link{Source: seeds[own[0]], Target: seeds[own[1]]}
				for j := 1; j <= k; j++ {
					if own[2*j] < 0 {
						missing++
						continue
					}
					n := graph.Link{Source: seeds[own[2*j]], Target: seeds[own[2*j+1]]}
					if n == link || n.Source == n.Target ||
						(o.Corrupt == CorruptPair) !=
							(n.Source != link.Source && n.Target != link.Target) {
						t.Fatalf("%v: %v is no negative of %v", o, n, link)
					}
					if o.Filter && slices.Contains(top.Graph.InNeighbours(n.Target), n.Source) {
						t.Fatalf("%v: the negative %v is an edge", o, n)
					}
				}
			}
			if missing > links*k/4 {
				t.Errorf("%v: %d of %d negatives are missing", o, missing, links*k)
			}
		})
		if again := s.Piece(2, 1, 0, nil); !slices.Equal(again, seeds) {
			t.Errorf("%v: seeds change", o)
		}
	}
	s, _ := rateEdges(t, top, 32, LinkOptions{Negatives: Negatives{NegativesUniform, 1},
		Corrupt: CorruptTarget})
	if _, err := s.Rate(nil, nil, top,
		LinkOptions{Negatives: Negatives{NegativesUniform, 300}}); err == nil {
		t.Error("more negatives than vertices are not refused")
	}
}
