package simulate

import (
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// trail is one rank's remote vertices, minibatch after minibatch, found with the plain sampler and
// a search for the owner.
type trail struct {
	epochs  [][][]graph.VertexID // [epochs][minibatches]
	sources []access.Source
	local   []access.Range
	perStep int // minibatches
	streams *sample.Streams
}

// all returns the minibatches of all epochs.
func (x *trail) all() [][]graph.VertexID { return slices.Concat(x.epochs...) }

func naive(t *testing.T, s *shard.Shards, o Options, rank int) *trail {
	t.Helper()
	perRank, nodes := s.Parts/o.Ranks, max(o.RanksPerNode, 1)
	x := &trail{perStep: 1}
	partsOf := func(rank int) []int {
		var parts []int
		for p := rank * perRank; p < (rank+1)*perRank; p++ {
			parts = append(parts, p)
		}
		return parts
	}
	var own [][]graph.VertexID
	for r := range o.Ranks {
		for i, p := range partsOf(r) {
			if i == 0 || o.StreamPerPart {
				own = append(own, nil)
			}
			own[len(own)-1] = append(own[len(own)-1], s.Train(p)...)
		}
		if r/nodes == rank/nodes {
			for _, p := range partsOf(r) {
				x.local = append(x.local,
					access.Range{First: graph.VertexID(s.Offsets[p]),
						End: graph.VertexID(s.Offsets[p+1])})
			}
		}
	}
	if o.StreamPerPart {
		x.perStep = perRank
	}
	so := sample.StreamOptions{Batch: o.Batch, Seed: o.Seed, Original: s.Topology().Original}
	if o.GlobalBatch {
		so.Scope = sample.ScopeGlobal
	}
	if o.GlobalSeeds {
		so.Seeds = sample.SeedsGlobal
	}
	var err error
	if x.streams, err = sample.NewStreams(own, so); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.streams.Free)
	steps := x.streams.Steps()
	if mine := own[rank*x.perStep : (rank+1)*x.perStep]; o.GlobalSeeds {
		all := slices.Concat(own...)
		x.sources = []access.Source{{Seeds: all,
			PerBatch: float64(len(all)) / float64(steps*len(own)), Minibatches: x.perStep}}
	} else {
		for _, seeds := range mine {
			if o.LastShort {
				steps = (len(seeds) + o.Batch - 1) / o.Batch
			}
			x.sources = append(x.sources,
				access.Source{Seeds: seeds, PerBatch: float64(len(seeds)) / float64(steps),
					Minibatches: 1})
		}
	}
	for epoch := 1; epoch <= o.Epochs; epoch++ {
		x.epochs = append(x.epochs, nil)
		var shuffled []graph.VertexID
		for step := range x.streams.Steps() {
			shuffled = append(shuffled, x.streams.Piece(epoch, step, rank*x.perStep, nil)...)
		}
		for step := range x.streams.Steps() {
			for i := range x.perStep {
				stream := rank*x.perStep + i
				piece := x.streams.Piece(epoch, step, stream, nil)
				if o.LastShort {
					piece = shuffled[min(step*o.Batch, len(shuffled)):min((step+1)*o.Batch,
						len(shuffled))]
				}
				mb := sample.Reference(s.Topology(), o.Sample, piece,
					sample.Key{Seed: o.Seed, Epoch: epoch, Step: step, Stream: stream})
				var remote []graph.VertexID
				for _, v := range mb.Frontier {
					if !slices.ContainsFunc(x.local,
						func(r access.Range) bool { return v >= r.First && v < r.End }) {
						remote = append(remote, v)
					}
				}
				mb.Free()
				x.epochs[epoch-1] = append(x.epochs[epoch-1], remote)
			}
		}
	}
	return x
}

// Every count equals that of looking up each remote vertex in a map of the cached vertices, for any
// settings.
func TestCountsEqualANaiveRecount(t *testing.T) {
	race.Alone(t)
	s := generated(t)
	for _, c := range []struct {
		name  string
		ranks int
		set   func(o *Options)
	}{
		{"a rank for each part", 6, func(*Options) {}},
		{"ranks of two parts", 3, func(*Options) {}},
		{"full batches and a short one", 2, func(o *Options) { o.LastShort = true }},
		{"one rank", 1, func(*Options) {}},
		{"two ranks a node", 6, func(o *Options) { o.RanksPerNode = 2 }},
		{"the last node has fewer ranks", 6, func(o *Options) { o.RanksPerNode = 4 }},
		{"streams of parts", 3, func(o *Options) { o.StreamPerPart = true }},
		{"seeds from anywhere", 3, func(o *Options) { o.GlobalSeeds, o.Batch = true, 40 }},
		{"global batch", 6, func(o *Options) { o.GlobalBatch = true }},
		{"halo fractions", 3,
			func(o *Options) { o.Alphas, o.HaloFractions = nil, []float64{0.1, 0.5, 1} }},
		{"one hop", 3, func(o *Options) { o.Cache.HaloHops, o.Cache.Initial = 1, policy.VIP }},
		{"a given window, level", 3, func(o *Options) { o.Cache.Window, o.Cache.Level = 2, true }},
		{"a window beyond the epoch", 3, func(o *Options) { o.Cache.Window = 1000 }},
		{"neighbours drawn one by one", 3, func(o *Options) { o.Sample.Kind = sample.Poisson }},
		{"layers drawn as a whole", 3, func(o *Options) {
			o.Sample = sample.Spec{Kind: sample.LADIES, Vertices: []int{20, 40}}
			o.Policies = slices.DeleteFunc(slices.Clone(o.Policies), func(name string) bool {
				return policy.Find(name).Fanouts
			})
		}},
		{"no eviction", 3, func(o *Options) { o.Cache.Evict = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.Ranks = c.ranks
			c.set(&o)
			got := simulated(t, s, o)
			want, filled := make([][]int64, len(o.Policies)), make([][]int64, len(o.Policies))
			var all int64
			for rank := range o.Ranks {
				recount(t, s, o, rank, got.Windows, want, filled, &all)
			}
			for p, name := range o.Policies {
				if !slices.Equal(got.Rows[p], want[p]) {
					t.Errorf("%s: %d rows, recounted %d", name, got.Rows[p], want[p])
				}
				if !slices.Equal(got.Filled[p], filled[p]) {
					t.Errorf("%s: %d rows before the first step, recounted %d", name, got.Filled[p],
						filled[p])
				}
			}
			if got.Remote != all || (all == 0) != (c.ranks == 1) {
				t.Errorf("%d remote rows, recounted %d", got.Remote, all)
			}
			checkTraces(t, got)
		})
	}
}

// checkTraces checks that the steps add up to the sums.
func checkTraces(t *testing.T, r *Result) {
	t.Helper()
	var remote int64
	for _, n := range r.Each {
		remote += n
	}
	if remote != r.Remote || len(r.Each) != r.Steps*r.Options.Epochs {
		t.Errorf("%d remote rows in %d steps, %d in all", remote, len(r.Each), r.Remote)
	}
	for p, name := range r.Options.Policies {
		for i, done := range r.Traces[p] {
			if decides := !policy.Find(name).Static() &&
				!policy.Find(name).Hindsight; decides != (done != nil) {
				t.Errorf("%s has a trace: %t", name, done != nil)
				continue
			}
			var rows int64
			for _, d := range done {
				rows += d.Remote
			}
			if done != nil && rows != r.Rows[p][i] {
				t.Errorf("%s: the steps transfer %d rows, all together %d", name, rows,
					r.Rows[p][i])
			}
		}
	}
}

// recount adds the rows of one rank.
func recount(t *testing.T, s *shard.Shards, o Options, rank int, windows [][]int, rows,
	filled [][]int64, all *int64) {
	t.Helper()
	x := naive(t, s, o, rank)
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	reader := &access.Workload{
		Local: x.local, Sources: x.sources, Sample: o.Sample, Hops: o.Cache.HaloHops,
		Topology: s.Topology(), Epochs: o.Epochs, Reader: sample.Reader{Streams: x.streams,
			First: rank * x.perStep, Count: x.perStep, Seed: o.Seed},
	}
	sizes, _ := o.sizes()
	if rows[0] == nil {
		for p := range rows {
			rows[p], filled[p] = make([]int64, len(sizes)), make([]int64, len(sizes))
		}
	}
	for _, remote := range x.all() {
		*all += int64(len(remote))
	}
	halo := map[graph.VertexID]bool{}
	for _, r := range x.local {
		for v := r.First; v < r.End; v++ {
			for _, u := range s.Topology().Graph.InNeighbours(v) {
				if !slices.ContainsFunc(x.local,
					func(r access.Range) bool { return u >= r.First && u < r.End }) {
					halo[u] = true
				}
			}
		}
	}
	for p, name := range o.Policies {
		for i, size := range sizes {
			capacity := int(size * float64(s.Vertices) / float64(o.Ranks))
			if len(o.HaloFractions) > 0 {
				capacity = int(size * float64(len(halo)))
			}
			fetched, begin := transferred(t, m, reader, x, o, name, min(capacity, int(s.Vertices)),
				windows[p][i])
			rows[p][i] += fetched
			filled[p][i] += begin
		}
	}
}

// transferred plays one policy of one size, and returns the numbers of rows fetched and of rows in
// the first fill.
func transferred(t *testing.T, m *access.Graph, r *access.Workload, x *trail, o Options,
	name string, capacity, window int) (rows, begin int64) {
	t.Helper()
	n := len(r.Topology.Original)
	switch name {
	case policy.Sieve, policy.Prefetch, policy.Lookahead:
		items := x.all()
		p, held, err := policy.Find(name).Open(&policy.Setup{
			Graph: m, Workload: r, Settings: &o.Cache, Capacity: capacity, Window: window,
			Ahead: slices.Values(items[:min(window+1, len(items))]),
		})
		if err != nil {
			t.Fatal(err)
		}
		begin = int64(len(held))
		mem.Free(held)
		defer p.Free()
		var d cache.Decision
		defer d.Free()
		fed := 0
		for i, remote := range items {
			for l, ok := p.(*cache.Lookahead); ok && fed < len(items) && fed <= i+window; fed++ {
				l.Feed(items[fed], nil)
			}
			p.Step(remote, &d)
			rows += d.Counters().Remote
		}
		return rows, begin
	case policy.Optimum:
		best, err := cache.NewOptimum(n, capacity, true)
		if err != nil {
			t.Fatal(err)
		}
		defer best.Free()
		for _, remote := range x.all() {
			rows += int64(best.Step(remote))
		}
		return rows, int64(best.Filled())
	}
	held := map[graph.VertexID]bool{}
	if name != policy.None {
		score := make([]float32, n)
		if name == policy.Oracle {
			for _, remote := range x.all() {
				for _, v := range remote {
					score[v]++
				}
			}
		} else {
			var err error
			if score, err = policy.Find(name).Rank(m, r); err != nil {
				t.Fatal(err)
			}
			defer mem.Free(score)
		}
		top, err := m.Top(score, r.Local, capacity)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Free(top)
		for _, v := range top {
			held[v] = true
		}
	}
	for _, remote := range x.all() {
		for _, v := range remote {
			if !held[v] {
				rows++
			}
		}
	}
	return rows, int64(len(held))
}
