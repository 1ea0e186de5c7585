package simulate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

func modeOptions() ModeOptions {
	return ModeOptions{Spec: job.Spec{Sample: sample.Neighbours(3, 2), Batch: 24, Seed: 4,
		Epochs: 2, Model: nn.Config{Layers: 2, Hidden: 8}}, Workers: 3}
}

// builtIn returns the counts of the modes that recountMode knows.
func builtIn(m *Modes) (counts []ModeCounts) {
	known := []string{parallel.ModeData, parallel.ModeSplit, parallel.ModeHybrid,
		parallel.ModePushPull}
	for _, c := range m.Counts {
		if slices.Contains(known, c.Mode) {
			counts = append(counts, c)
		}
	}
	return counts
}

// recountMode counts by the definitions, with minibatches of the reference sampler.
func recountMode(t *testing.T, s *shard.Shards, o ModeOptions, mode string, ranks int) ModeCounts {
	t.Helper()
	spec := o.Spec
	spec.Ranks = ranks
	size := 1
	switch mode {
	case parallel.ModeSplit:
		spec.Mode.Sharing, size = sample.Together, ranks
	case parallel.ModeHybrid:
		spec.Mode.Sharing, size = sample.InNodes, o.RanksPerNode
	}
	j, err := job.New(s, spec)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	owner := func(v graph.VertexID) int {
		for r := range ranks {
			if first, end := j.Vertices(r); int64(v) >= first && int64(v) < end {
				return r
			}
		}
		return -1
	}
	node := func(rank int) int { return rank / max(1, o.RanksPerNode) }
	c := ModeCounts{Mode: mode, Ranks: ranks, Steps: j.Steps()}
	var far [2]int64 // feature rows and hidden rows of other nodes
	for epoch := 1; epoch <= o.Epochs; epoch++ {
		for step := range j.Steps() {
			edges := make([]float64, ranks)
			for stream := range j.Streams.Streams() {
				key := sample.Key{Seed: o.Seed, Epoch: epoch, Step: step, Stream: stream}
				mb := sample.Reference(s.Topology(), o.Sample,
					j.Streams.Piece(epoch, step, stream, nil), key)
				c.Loaded += int64(len(mb.Frontier))
				if mode != parallel.ModeSplit && mode != parallel.ModePushPull {
					for _, v := range mb.Frontier {
						if node(owner(v)) != node(stream*size) {
							c.Features++
							far[0]++
						}
					}
				}
				for l, b := range mb.Blocks {
					received := map[[2]int]bool{}
					c.Computed += int64(b.NumDst)
					for d := range b.NumDst {
						r := stream*size + owner(mb.Frontier[d])%size
						// shares of all other ranks come here
						if mode == parallel.ModePushPull && l == 0 {
							c.Hidden += int64(ranks - 1)
							for q := range ranks {
								if node(q) != node(r) {
									far[1]++
								}
							}
						}
						for _, u := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
							c.Edges++
							switch { // in shares of an edge, as many as there are ranks
							case mode != parallel.ModePushPull:
								edges[r]++
							case l == 0:
								for q := range edges {
									edges[q]++
								}
							default:
								edges[r] += float64(ranks)
							}
							if from := stream*size + owner(mb.Frontier[u])%size; from != r {
								c.Cross++
								if key := [2]int{r, int(u)}; !received[key] &&
									node(from) != node(r) {
									far[min(l, 1)]++
								}
								received[[2]int{r, int(u)}] = true
							}
						}
					}
					if l == 0 {
						c.Features += int64(len(received))
					} else {
						c.Hidden += int64(len(received))
					}
				}
				mb.Free()
			}
			most, total := 0.0, 0.0
			for _, x := range edges {
				most, total = max(most, x), total+x
			}
			c.Imbalance += most * float64(ranks) / total / float64(o.Epochs*j.Steps())
		}
	}
	width := o.Model.Hidden
	if mode == parallel.ModePushPull && o.Model.Layers == 1 { // sums of the only layer are logits
		width = s.Classes
	}
	c.Bytes = c.Features*int64(s.RowBytes()) + 2*c.Hidden*4*int64(width)
	c.Network = far[0]*int64(s.RowBytes()) + 2*far[1]*4*int64(width)
	return c
}

func TestModesAreCountedByTheirDefinitions(t *testing.T) {
	s := generated(t)
	for _, c := range []struct {
		name   string
		hybrid int // numbers of ranks that are several nodes of several ranks
		change func(o *ModeOptions)
	}{
		{"batch of a rank", 0, func(*ModeOptions) {}},
		{"global batch and seeds", 0,
			func(o *ModeOptions) { o.GlobalBatch, o.GlobalSeeds = true, true }},
		{"nodes of two", 1, func(o *ModeOptions) { o.RanksPerNode = 2 }},
		{"nodes of three, global seeds", 1,
			func(o *ModeOptions) { o.RanksPerNode, o.GlobalSeeds = 3, true }},
		{"one layer", 0,
			func(o *ModeOptions) { o.Sample, o.Model.Layers = sample.Neighbours(3), 1 }},
	} {
		o := modeOptions()
		c.change(&o)
		m, err := CompareModes(s, o)
		if err != nil {
			t.Fatal(err)
		}
		counts := builtIn(m)
		if len(counts) != 3*4+c.hybrid { // 1, 2, 3 and 6 ranks
			t.Fatalf("%s: %d counts", c.name, len(counts))
		}
		for _, got := range counts {
			want := recountMode(t, s, o, got.Mode, got.Ranks)
			if d := got.Imbalance - want.Imbalance; math.Abs(d) > 1e-12 {
				t.Errorf("%s: %s on %d ranks: imbalance %g, want %g", c.name, got.Mode, got.Ranks,
					got.Imbalance, want.Imbalance)
			}
			want.Imbalance = got.Imbalance
			if got != want {
				t.Errorf("%s: got %+v, want %+v", c.name, got, want)
			}
		}
	}
}

// Ranks that share minibatches draw and load as much as one rank would, and ranks that do not,
// more.
func TestSharingSavesWork(t *testing.T) {
	o := modeOptions()
	o.GlobalBatch = true
	m, err := CompareModes(generated(t), o)
	if err != nil {
		t.Fatal(err)
	}
	counts := builtIn(m)
	alone := counts[0]
	if alone.Ranks != 1 || alone.Bytes+counts[1].Bytes+counts[2].Bytes != 0 {
		t.Errorf("one rank: %+v", counts[:3])
	}
	for i := 3; i < len(counts); i += 3 {
		data, split := counts[i], counts[i+1]
		if split.Edges != counts[1].Edges || split.Loaded != counts[1].Loaded ||
			split.Computed != counts[1].Computed {
			t.Errorf("%d ranks together do other work than one: %+v", split.Ranks, split)
		}
		if data.Edges <= split.Edges || data.Loaded <= split.Loaded ||
			data.Computed <= split.Computed || split.Hidden == 0 {
			t.Errorf("%d ranks: data %+v, split %+v", data.Ranks, data, split)
		}
	}
}

// With more ranks than columns of features there is no push-pull to count.
func TestPushPullNeedsColumns(t *testing.T) {
	s := *generated(t)
	s.Features = 2
	m, err := CompareModes(&s, modeOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Counts {
		if c.Mode == parallel.ModePushPull && c.Ranks > 2 {
			t.Errorf("%d ranks share 2 columns: %+v", c.Ranks, c)
		}
	}
	if counts := builtIn(m); len(counts) != 2*4+2 {
		t.Errorf("%d counts", len(counts))
	}
}

func TestModesThatCannotBeCounted(t *testing.T) {
	s := generated(t)
	for _, c := range []struct {
		change func(o *ModeOptions)
		want   string
	}{
		{func(o *ModeOptions) { o.RankCounts = []int{2, 2} },
			"names 2, which is below 1 or comes twice"},
		{func(o *ModeOptions) { o.RankCounts = []int{0} }, "--ranks names 0"},
		{func(o *ModeOptions) { o.Model.Hidden = 0 }, "hidden is 0"},
		{func(o *ModeOptions) { o.Batch = 0 }, "batch is 0"},
		{func(o *ModeOptions) { o.Sample = sample.Neighbours() }, "no fanouts"},
		{func(o *ModeOptions) { o.Model.Kind = "mlp" }, "mlp reads no neighbours"},
		{func(o *ModeOptions) { o.StreamPerPart = true }, "streams of parts"},
		{func(o *ModeOptions) { o.Epochs = math.MaxInt32 }, "lower --epochs"},
	} {
		o := modeOptions()
		c.change(&o)
		if _, err := CompareModes(s, o); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	o := modeOptions()
	o.RankCounts = []int{4}
	if _, err := CompareModes(s, o); !errors.Is(err, shard.ErrRanks) {
		t.Errorf("4 ranks on 6 parts: %v", err)
	}
}
