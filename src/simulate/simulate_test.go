package simulate

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
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
	data, parts := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "parts")
	if err := dataset.Generate(data, dataset.GenerateOptions{Vertices: 600, Degree: 6, Features: 2, Classes: 4, Seed: 1}); err != nil {
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
	newID, offsets := partition.Order(part, o.Parts, partition.InDegrees(d.Graph))
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
		Gamma: 0.9, Delta: 3, Workers: 2,
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

// naive is one rank's remote vertices, step after step of all epochs, found with the plain sampler and a search for the owner.
func naive(t *testing.T, s *shard.Shards, o Options, rank int) (steps [][]graph.VertexID, seeds []graph.VertexID, local []access.Range) {
	t.Helper()
	var own [][]graph.VertexID
	perRank := s.Parts / o.Ranks
	for r := range o.Ranks {
		own = append(own, nil)
		for p := r * perRank; p < (r+1)*perRank; p++ {
			own[r] = append(own[r], s.Train(p)...)
		}
	}
	streams, err := sample.NewStreams(own, sample.StreamOptions{Batch: o.Batch, Seed: o.Seed, Original: s.Topology().Original})
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Free()
	local = []access.Range{{First: graph.VertexID(s.Offsets[rank*perRank]), End: graph.VertexID(s.Offsets[(rank+1)*perRank])}}
	for epoch := 1; epoch <= o.Epochs; epoch++ {
		var shuffled []graph.VertexID
		var cuts []int
		for step := range streams.Steps() {
			cuts = append(cuts, len(shuffled))
			shuffled = append(shuffled, streams.Piece(epoch, step, rank, nil)...)
		}
		cuts = append(cuts, len(shuffled))
		for step := range streams.Steps() {
			piece := shuffled[cuts[step]:cuts[step+1]]
			if o.LastShort {
				piece = shuffled[min(step*o.Batch, len(shuffled)):min((step+1)*o.Batch, len(shuffled))]
			}
			mb := sample.Reference(s.Topology(), o.Fanouts, piece, sample.Key{Seed: o.Seed, Epoch: epoch, Step: step, Stream: rank})
			var remote []graph.VertexID
			for _, v := range mb.Frontier {
				if v < local[0].First || v >= local[0].End {
					remote = append(remote, v)
				}
			}
			mb.Free()
			steps = append(steps, remote)
		}
	}
	return steps, own[rank], local
}

// Every count is what looking each remote vertex up in a map of what is held comes to.
func TestCountsEqualANaiveRecount(t *testing.T) {
	s := generated(t)
	for _, c := range []struct {
		ranks     int
		lastShort bool
	}{{6, false}, {3, false}, {2, true}, {1, false}} {
		t.Run(fmt.Sprintf("%d ranks, last short: %t", c.ranks, c.lastShort), func(t *testing.T) {
			o := options()
			o.Ranks, o.LastShort = c.ranks, c.lastShort
			got := simulated(t, s, o)
			want := make([][]int64, len(o.Policies))
			var all int64
			for rank := range o.Ranks {
				recount(t, s, o, rank, want, &all)
			}
			for p, name := range o.Policies {
				if !slices.Equal(got.Rows[p], want[p]) {
					t.Errorf("%s: %d rows, recounted %d", name, got.Rows[p], want[p])
				}
			}
			if got.Remote != all || (all == 0) != (c.ranks == 1) {
				t.Errorf("%d remote rows, recounted %d", got.Remote, all)
			}
		})
	}
}

// recount adds the rows of one rank.
func recount(t *testing.T, s *shard.Shards, o Options, rank int, rows [][]int64, all *int64) {
	t.Helper()
	steps, seeds, local := naive(t, s, o, rank)
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	perEpoch := len(steps) / o.Epochs
	if o.LastShort {
		perEpoch = (len(seeds) + o.Batch - 1) / o.Batch
	}
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	reader := &access.Reader{
		Local: local, Seeds: seeds, PerStep: float64(len(seeds)) / float64(perEpoch), Fanouts: o.Fanouts, Topology: s.Topology(),
		Streams: sim.streams, First: rank, Count: 1, Seed: o.Seed, Epochs: o.Epochs,
	}
	used := make([]float32, s.Vertices)
	for _, remote := range steps {
		*all += int64(len(remote))
		for _, v := range remote {
			used[v]++
		}
	}
	for p, name := range o.Policies {
		if rows[p] == nil {
			rows[p] = make([]int64, len(o.Alphas))
		}
		for a, alpha := range o.Alphas {
			capacity := int(alpha * float64(s.Vertices) / float64(o.Ranks))
			top := func(policy string) []graph.VertexID {
				score, err := used, error(nil)
				if policy != access.PolicyOracle {
					if score, err = m.Score(policy, reader); err != nil {
						t.Fatal(err)
					}
					defer mem.Free(score)
				}
				held, err := m.Top(score, local, capacity)
				if err != nil {
					t.Fatal(err)
				}
				return held
			}
			var policy cache.Policy
			switch name {
			case PolicySieve:
				policy, err = cache.NewSieve(int(s.Vertices), capacity)
			case PolicyPrefetch:
				policy, err = cache.NewPrefetch(cache.PrefetchOptions{
					Vertices: int(s.Vertices), Capacity: capacity, Initial: top(access.PolicyDegree), Gamma: o.Gamma, Delta: o.Delta,
					Degree: func(v graph.VertexID) int { g := s.Topology().Graph; return int(g.Indptr[v+1] - g.Indptr[v]) },
				})
			case PolicyOptimum:
				var best *cache.Optimum
				if best, err = cache.NewOptimum(int(s.Vertices), capacity, true); err == nil {
					for _, remote := range steps {
						rows[p][a] += int64(best.Step(remote))
					}
					best.Free()
				}
			default:
				held := map[graph.VertexID]bool{}
				if name != access.PolicyNone {
					for _, v := range top(name) {
						held[v] = true
					}
				}
				for _, remote := range steps {
					for _, v := range remote {
						if !held[v] {
							rows[p][a]++
						}
					}
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if policy != nil {
				var d cache.Decision
				for _, remote := range steps {
					policy.Step(remote, &d)
					rows[p][a] += int64(d.Transferred())
				}
				d.Free()
				policy.Free()
			}
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
	} {
		o := options()
		c.bad(&o)
		_, err := New(s, o)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.name, err, want)
			}
		}
	}
}

// Files have every policy and size; the plot can show what has no rows, and a single size.
func TestWritten(t *testing.T) {
	s := generated(t)
	for _, alphas := range [][]float64{{0.1, 0.5, 5}, {9}} {
		o := options()
		o.Alphas = alphas
		r := simulated(t, s, o)
		var csv, svg, table bytes.Buffer
		for _, err := range []error{r.WriteCSV(&csv), r.WriteSVG(&svg), r.Print(&table)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if lines := strings.Count(csv.String(), "\n"); lines != 1+len(o.Policies)*len(alphas) {
			t.Errorf("%d lines of CSV for %d policies and %d sizes", lines, len(o.Policies), len(alphas))
		}
		for _, name := range o.Policies {
			if !strings.Contains(svg.String(), ">"+name+"<") || !strings.Contains(table.String(), "  "+name+" ") {
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
