package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/dataset"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/partition"
	"halognn/src/sample"
	"halognn/src/shard"
)

// generated is a small graph in six parts.
func generated(t *testing.T) *shard.Shards {
	t.Helper()
	return generatedOf(t, 600)
}

func generatedOf(t *testing.T, vertices int) *shard.Shards {
	t.Helper()
	return ordered(t, vertices, func(d *dataset.Dataset, part []int32) []float32 {
		var score []float32
		for _, n := range partition.InDegrees(d.Graph) {
			score = append(score, float32(n))
		}
		return score
	})
}

// ordered is generated with the vertices of a part in order of a score.
func ordered(t *testing.T, vertices int, score func(d *dataset.Dataset, part []int32) []float32) *shard.Shards {
	t.Helper()
	data, parts := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "parts")
	if err := dataset.Generate(data, dataset.GenerateOptions{Vertices: vertices, Degree: 6, Features: 2, Classes: 4, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	o := partition.Options{Parts: 6, Seed: 1}
	part, err := partition.LDG(d.Graph, partition.Weights{}, o)
	if err != nil {
		t.Fatal(err)
	}
	newID, offsets := partition.Order(part, o.Parts, score(d, part))
	report := partition.Measure(d.Graph, part, o.Parts, d.Split)
	if err := shard.Write(parts, d, shard.Layout{NewID: newID, Offsets: offsets, Report: report}); err != nil {
		t.Fatal(err)
	}
	s, err := shard.Open(parts, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func options() Options {
	return Options{
		Fanouts: []int{3, 2}, Batch: 16, Seed: 4, Epochs: 2, Policies: Policies(), Alphas: []float64{0, 0.1, 0.5, 1, 5},
		Gamma: 0.9, Delta: 3, Initial: access.PolicyDegree, Workers: 2,
	}
}

func simulated(t *testing.T, s *shard.Shards, o Options) *Result {
	t.Helper()
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	r, err := sim.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// trail is one rank's remote vertices, minibatch after minibatch, found with the plain sampler and a search for the owner.
type trail struct {
	epochs  [][][]graph.VertexID // [epochs][minibatches]
	seeds   []graph.VertexID
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
			if r == rank || o.GlobalSeeds {
				x.seeds = append(x.seeds, s.Train(p)...)
			}
		}
		if r/nodes == rank/nodes {
			for _, p := range partsOf(r) {
				x.local = append(x.local, access.Range{First: graph.VertexID(s.Offsets[p]), End: graph.VertexID(s.Offsets[p+1])})
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
					piece = shuffled[min(step*o.Batch, len(shuffled)):min((step+1)*o.Batch, len(shuffled))]
				}
				mb := sample.Reference(s.Topology(), o.Fanouts, piece, sample.Key{Seed: o.Seed, Epoch: epoch, Step: step, Stream: stream})
				var remote []graph.VertexID
				for _, v := range mb.Frontier {
					if !slices.ContainsFunc(x.local, func(r access.Range) bool { return v >= r.First && v < r.End }) {
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

// Every count is what looking each remote vertex up in a map of what is held comes to, however the run is set up.
func TestCountsEqualANaiveRecount(t *testing.T) {
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
		{"halo fractions", 3, func(o *Options) { o.Alphas, o.HaloFractions = nil, []float64{0.1, 0.5, 1} }},
		{"one hop", 3, func(o *Options) { o.HaloHops, o.Initial = 1, access.PolicyVIP }},
		{"a given window, level", 3, func(o *Options) { o.Window, o.Level = 2, true }},
		{"a window beyond the epoch", 3, func(o *Options) { o.Window = 1000 }},
		{"no eviction", 3, func(o *Options) { o.Delta = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.Ranks = c.ranks
			c.set(&o)
			got := simulated(t, s, o)
			want := make([][]int64, len(o.Policies))
			var all int64
			for rank := range o.Ranks {
				recount(t, s, o, rank, got.Windows, want, &all)
			}
			for p, name := range o.Policies {
				if !slices.Equal(got.Rows[p], want[p]) {
					t.Errorf("%s: %d rows, recounted %d", name, got.Rows[p], want[p])
				}
			}
			if got.Remote != all || (all == 0) != (c.ranks == 1) {
				t.Errorf("%d remote rows, recounted %d", got.Remote, all)
			}
			checkTraces(t, got)
		})
	}
}

// checkTraces holds the steps to the sums.
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
			if decides := slices.Contains(dynamic, name) && name != PolicyOptimum; decides != (done != nil) {
				t.Errorf("%s has a trace: %t", name, done != nil)
				continue
			}
			var rows int64
			for _, d := range done {
				rows += d.Fetched + d.Early
			}
			if done != nil && rows != r.Rows[p][i] {
				t.Errorf("%s: the steps transfer %d rows, all together %d", name, rows, r.Rows[p][i])
			}
		}
	}
}

// recount adds the rows of one rank.
func recount(t *testing.T, s *shard.Shards, o Options, rank int, windows []int, rows [][]int64, all *int64) {
	t.Helper()
	x := naive(t, s, o, rank)
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	steps := x.streams.Steps()
	if o.LastShort {
		steps = (len(x.seeds) + o.Batch - 1) / o.Batch
	}
	reader := &access.Reader{
		Local: x.local, Seeds: x.seeds, PerStep: float64(len(x.seeds)) / float64(steps), Fanouts: o.Fanouts, Hops: o.HaloHops, Topology: s.Topology(),
		Streams: x.streams, First: rank * x.perStep, Count: x.perStep, Seed: o.Seed, Epochs: o.Epochs,
	}
	if o.GlobalSeeds {
		reader.PerStep /= float64(o.Ranks)
	}
	sizes, _ := o.sizes()
	if rows[0] == nil {
		for p := range rows {
			rows[p] = make([]int64, len(sizes))
		}
	}
	for _, remote := range x.all() {
		*all += int64(len(remote))
	}
	halo := map[graph.VertexID]bool{}
	for _, r := range x.local {
		for v := r.First; v < r.End; v++ {
			for _, u := range s.Topology().Graph.InNeighbours(v) {
				if !slices.ContainsFunc(x.local, func(r access.Range) bool { return u >= r.First && u < r.End }) {
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
			window := 0
			if windows != nil {
				window = windows[i]
			}
			rows[p][i] += transferred(t, m, reader, x, o, name, min(capacity, int(s.Vertices)), window)
		}
	}
}

// transferred plays one policy of one size.
func transferred(t *testing.T, m *access.Graph, r *access.Reader, x *trail, o Options, name string, capacity, window int) (rows int64) {
	t.Helper()
	n := len(r.Topology.Original)
	d := access.Dynamic{
		Policy: name, Capacity: capacity, Gamma: o.Gamma, Delta: o.Delta, Initial: o.Initial, Window: window, Level: o.Level,
	}
	switch name {
	case cache.NameSieve, cache.NamePrefetch, cache.NameLookahead:
		items := x.all()
		p, held, err := m.NewPolicy(r, d, slices.Values(items[:min(window+1, len(items))]))
		if err != nil {
			t.Fatal(err)
		}
		mem.Free(held)
		defer p.Free()
		var d cache.Decision
		defer d.Free()
		fed := 0
		for i, remote := range items {
			for l, ok := p.(*cache.Lookahead); ok && fed < len(items) && fed <= i+window; fed++ {
				l.Feed(items[fed])
			}
			p.Step(remote, &d)
			rows += int64(d.Transferred())
		}
		return rows
	case PolicyOptimum:
		best, err := cache.NewOptimum(n, capacity, true)
		if err != nil {
			t.Fatal(err)
		}
		defer best.Free()
		for _, remote := range x.all() {
			rows += int64(best.Step(remote))
		}
		return rows
	}
	held := map[graph.VertexID]bool{}
	if name != access.PolicyNone {
		score := make([]float32, n)
		if name == access.PolicyOracle {
			for _, remote := range x.all() {
				for _, v := range remote {
					score[v]++
				}
			}
		} else {
			var err error
			if score, err = m.Score(name, r); err != nil {
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
	return rows
}

// Parts that were ordered for a run begin, each of them, with what the run's minibatches of that very part read most.
func TestPartsOrderedForARun(t *testing.T) {
	o := options()
	s := ordered(t, 600, func(d *dataset.Dataset, part []int32) []float32 {
		m, err := access.New(d.Graph, access.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		train := make([][]graph.VertexID, 6)
		for _, v := range d.Split.Train {
			train[part[v]] = append(train[part[v]], v)
		}
		heat, err := m.OwnParts(part, train, o.Batch, o.Fanouts)
		if err != nil {
			t.Fatal(err)
		}
		return heat
	})
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for k := range s.Parts {
		r := sim.reader(k, 1)
		p, err := m.Inclusion(r.Seeds, r.PerStep, r.Fanouts)
		if err != nil {
			t.Fatal(err)
		}
		for v := s.Offsets[k] + 1; v < s.Offsets[k+1]; v++ {
			if p[v] > p[v-1]+1e-6 {
				t.Errorf("part %d: row %d is read with %g, the one before with %g", k, v-s.Offsets[k], p[v], p[v-1])
			}
		}
		mem.Free(p)
	}
}

// A planned window is as good as seeing everything, also where the run has many epochs; without evictions, a buffer is the
// static cache that it is filled by.
func TestPlannedWindowIsTheOptimum(t *testing.T) {
	s := generated(t)
	o := options()
	o.Alphas, o.Epochs, o.Delta = []float64{0.05, 0.1, 0.2, 0.5, 1}, 6, 0
	o.Ranks, o.Batch = 3, 20
	r := simulated(t, s, o)
	at := func(policy string) []int64 { return r.Rows[slices.Index(o.Policies, policy)] }
	for i, alpha := range o.Alphas {
		got, best := at(cache.NameLookahead)[i], at(PolicyOptimum)[i]
		t.Logf("alpha %g: a window of %d of %d steps transfers %d rows, the optimum %d, the static oracle %d", alpha, r.Windows[i], r.Steps, got, best, at(access.PolicyOracle)[i])
		if float64(got) > 1.01*float64(best) {
			t.Errorf("alpha %g: a window of %d steps transfers %d rows, the optimum %d", alpha, r.Windows[i], got, best)
		}
		if at(cache.NamePrefetch)[i] != at(access.PolicyDegree)[i] {
			t.Errorf("alpha %g: a buffer that evicts nothing transfers %d rows, a static cache %d", alpha, at(cache.NamePrefetch)[i], at(access.PolicyDegree)[i])
		}
	}
}

// What holds for any graph: no static cache beats the oracle, nothing beats the optimum, and more room never costs an oracle rows.
func TestBounds(t *testing.T) {
	o := options()
	r := simulated(t, generated(t), o)
	at := func(policy string) []int64 { return r.Rows[slices.Index(o.Policies, policy)] }
	for p, name := range o.Policies {
		for a, alpha := range o.Alphas {
			rows := r.Rows[p][a]
			if rows < at(PolicyOptimum)[a] {
				t.Errorf("alpha %g: %s fetches %d rows, fewer than the optimum's %d", alpha, name, rows, at(PolicyOptimum)[a])
			}
			if slices.Contains(access.Policies(), name) && rows < at(access.PolicyOracle)[a] {
				t.Errorf("alpha %g: %s fetches %d rows, fewer than the oracle's %d", alpha, name, rows, at(access.PolicyOracle)[a])
			}
			if alpha == 0 && rows != r.Remote {
				t.Errorf("%s without room fetches %d rows, want all %d", name, rows, r.Remote)
			}
			if name == access.PolicyOracle && alpha == 5 && rows != 0 {
				t.Errorf("an oracle with room for everything fetches %d rows", rows)
			}
		}
	}
	none := slices.Index(o.Policies, access.PolicyNone)
	counted, _ := r.PerEpoch(none, 0)
	if off := math.Abs(r.Predicted[none][0]/counted - 1); off > 0.05 {
		t.Errorf("%.1f rows an epoch predicted, %.1f counted", r.Predicted[none][0], counted)
	}
}

// hue returns a policy's colour as SVG has it. No two have the same.
func hue(policy string) string {
	c := colors[slices.Index(Policies(), policy)]
	return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
}

func TestEveryPolicyHasAColor(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Policies() {
		seen[hue(p)] = true
	}
	if len(seen) != len(Policies()) {
		t.Errorf("%d colours for %d policies", len(seen), len(Policies()))
	}
}

func TestBadOptions(t *testing.T) {
	s := generated(t)
	for _, c := range []struct {
		name string
		bad  func(*Options)
		want []string
	}{
		{"all at once", func(o *Options) { o.Batch, o.Epochs, o.Fanouts = 0, 0, nil }, []string{"batch is 0", "epochs is 0", "no fanouts"}},
		{"fanout", func(o *Options) { o.Fanouts = []int{3, 0} }, []string{"fanout 2 is 0"}},
		{"unknown policy", func(o *Options) { o.Policies = []string{"lru"} }, []string{`"lru"`, "vip"}},
		{"policy twice", func(o *Options) { o.Policies = []string{"vip", "vip"} }, []string{"vip is named twice"}},
		{"no policy", func(o *Options) { o.Policies = nil }, []string{"no policies"}},
		{"no alpha", func(o *Options) { o.Alphas = nil }, []string{"no alphas"}},
		{"alphas fall", func(o *Options) { o.Alphas = []float64{0.2, 0.1} }, []string{"0.1 comes after 0.2"}},
		{"alpha", func(o *Options) { o.Alphas = []float64{-1} }, []string{"alpha -1"}},
		{"gamma", func(o *Options) { o.Gamma = 0 }, []string{"gamma is 0"}},
		{"ranks", func(o *Options) { o.Ranks = 4 }, []string{"6 parts, 4 ranks"}},
		{"two kinds of sizes", func(o *Options) { o.HaloFractions = []float64{0.1} }, []string{"alphas and halo fractions"}},
		{"halo fraction", func(o *Options) { o.Alphas, o.HaloFractions = nil, []float64{0.5, 0.1} }, []string{"halo fraction 0.1 comes after 0.5"}},
		{"fill", func(o *Options) { o.Initial = "wpr" }, []string{`initial is "wpr"`, "degree"}},
		{"window", func(o *Options) { o.Window = -1 }, []string{"window is -1"}},
		{"more than can be", func(o *Options) { o.Batch, o.Epochs, o.Workers = math.MaxInt, math.MaxInt, math.MaxInt }, []string{"batch is 9223372036854775807; it must be 1 to", "epochs is", "workers is"}},
		{"last short", func(o *Options) { o.LastShort, o.GlobalSeeds = true, true }, []string{"last-short"}},
	} {
		o := options()
		c.bad(&o)
		_, err := New(s, o)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		if options := c.name != "ranks"; errors.Is(err, ErrOptions) != options {
			t.Errorf("%s: %v is ErrOptions: %t, want %t", c.name, err, !options, options)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.name, err, want)
			}
		}
	}
}

// Rounds come after so many minibatches, of which a rank may train several in a step.
func TestRoundsAreCountedInMinibatches(t *testing.T) {
	for _, c := range []struct {
		name        string
		minibatches int // of a step
		delta       int
		want        []string // hit rates: before the first round, and after those that are shown
	}{
		{"one a step", 1, 4, []string{"after 0 rounds 0.1500", "after 1 rounds 0.5500"}},
		{"two a step", 2, 4, []string{"after 0 rounds 0.0500", "after 1 rounds 0.2500", "after 3 rounds 0.6500"}},
		{"a round within a step", 3, 4, []string{"after 0 rounds 0.0000", "after 1 rounds 0.1000", "after 2 rounds 0.2500", "after 5 rounds 0.6500"}},
		{"several rounds in a step", 8, 2, []string{"after 0 rounds 0.0000", "after 31 rounds 0.7000"}},
		{"no round", 1, 8, nil},
	} {
		r := &Result{
			Options: Options{Policies: []string{cache.NamePrefetch}, Alphas: []float64{1}, Delta: c.delta}, Minibatches: c.minibatches,
			Traces: [][]Trace{{nil}},
		}
		for step := range int64(8) { // the hit rate of a step is a tenth of its number
			r.Each, r.Traces[0][0] = append(r.Each, 10), append(r.Traces[0][0], Decided{Fetched: 10 - step})
		}
		table := r.rounds(func(string) []string { return nil })
		var rows []string
		for _, row := range table {
			rows = append(rows, strings.Join(row, " "))
		}
		for _, want := range c.want {
			if !slices.Contains(rows, want) {
				t.Errorf("%s: %q is not in %q", c.name, want, rows)
			}
		}
		if (c.want == nil) != (table == nil) {
			t.Errorf("%s: %q", c.name, rows)
		}
	}
}

// No simulation holds more than the formula says, nor much less: neither static caches, nor counting them (sim), nor those that decide step by step.
func TestMemoryIsThatOfTheFormula(t *testing.T) {
	s := generatedOf(t, 60000)
	for _, c := range []struct {
		policies []string
		ranks    int
	}{
		{[]string{access.PolicyNone, access.PolicyVIP, access.PolicyOracle}, 3}, {[]string{access.PolicyDegree}, 3}, {[]string{access.PolicySim}, 1},
		{[]string{access.PolicySim}, 6}, {[]string{cache.NameSieve, PolicyOptimum}, 3}, {[]string{cache.NamePrefetch}, 3}, {[]string{cache.NameLookahead}, 3},
	} {
		o := options()
		o.Policies, o.Ranks, o.Batch, o.Epochs, o.Alphas = c.policies, c.ranks, 6000, 1, []float64{0.1, 0.5}
		sim, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		before, done, most := mem.Allocated(), make(chan bool), make(chan int64)
		go func() {
			peak := int64(0)
			for {
				select {
				case <-done:
					most <- peak
					return
				default:
					peak = max(peak, mem.Allocated()-before)
					runtime.Gosched()
				}
			}
		}()
		r, err := sim.Run()
		close(done)
		peak := <-most
		if err != nil {
			t.Fatal(err)
		}
		together := min(o.Workers, o.Ranks)
		arrays := int64(together) * sim.rankBytes(o.Workers/together, r.used, r.Capacity)
		arrays += 12 * int64(sim.streams.Streams()*sim.streams.Steps()*o.Batch) // orders of seeds
		if slack := int64(1 << 18); peak > arrays+slack || arrays > 4*peak {
			t.Errorf("%v, %d ranks: %d bytes are said to be held, and %d are", c.policies, c.ranks, arrays, peak)
		}
		t.Logf("%v, %d ranks: %d bytes are said to be held, and %d are", c.policies, c.ranks, arrays, peak)
		if r.Bytes < arrays {
			t.Errorf("%v: %d bytes in all, %d of them arrays", c.policies, r.Bytes, arrays)
		}
		sim.Close()
	}
}

// Files have every policy and size; the plot can show what has no rows, and a single size.
func TestWritten(t *testing.T) {
	s := generated(t)
	for _, alphas := range [][]float64{{0.1, 0.5, 5}, {9}} {
		o := options()
		o.Alphas = alphas
		r := simulated(t, s, o)
		var csv, steps, svg, table bytes.Buffer
		for _, err := range []error{r.WriteCSV(&csv), r.WriteStepsCSV(&steps), r.WriteSVG(&svg), r.Print(&table)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(svg.String(), `<svg role="img"`) || !strings.Contains(svg.String(), "<title>Remote rows") || xml.Unmarshal(svg.Bytes(), new(struct{})) != nil {
			t.Errorf("simulate.svg begins with %.300s", &svg)
		}
		if lines := strings.Count(csv.String(), "\n"); lines != 1+len(o.Policies)*len(alphas) {
			t.Errorf("%d lines of CSV for %d policies and %d sizes", lines, len(o.Policies), len(alphas))
		}
		if lines := strings.Count(steps.String(), "\n"); lines != 1+3*len(alphas)*len(r.Each) {
			t.Errorf("%d lines of steps for 3 policies, %d sizes and %d steps", lines, len(alphas), len(r.Each))
		}
		if !strings.Contains(table.String(), "after 0 rounds") || !strings.Contains(table.String(), "window of lookahead") {
			t.Errorf("rounds or windows are missing in %s", table.String())
		}
		for _, name := range o.Policies {
			if !strings.Contains(svg.String(), ">"+name+"<") || !strings.Contains(svg.String(), strings.ToUpper(hue(name))) || !strings.Contains(table.String(), "  "+name+" ") {
				t.Errorf("%s is missing in the plot or the table", name)
			}
		}
		for _, bad := range []string{"NaN", "Inf"} {
			if strings.Contains(svg.String()+csv.String()+table.String(), bad) {
				t.Errorf("%d sizes: %s was written", len(alphas), bad)
			}
		}
	}
}
