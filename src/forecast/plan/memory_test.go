package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

type transpose = graph.BlockTranspose

// What is predicted of a minibatch and of the model's activations is what they take, as far as it
// is written.
func TestMinibatchBytes(t *testing.T) {
	for _, model := range []nn.Config{
		{Kind: "sage"}, {Kind: "sage", Aggregation: nn.AggregateMax}, {Kind: "gcn"},
		{Kind: "gcn", GCNNorm: nn.GCNBoth}, {Kind: "gin"},
		{Kind: "sage", EdgeWeights: true}, {Kind: "gcn", EdgeWeights: true},
		{Kind: "gin", EdgeWeights: true}, {Kind: "sage", Estimates: true},
		{Kind: "gcn", EdgeWeights: true, GCNNorm: nn.GCNBoth},
		{Kind: "gat", Heads: 2, Slope: 0.2}, {Kind: "gatv2", Heads: 2, Slope: 0.2},
		{Kind: "sage", Jumping: nn.JumpCat}, {Kind: "sage", Jumping: nn.JumpMax},
	} {
		j := planJob()
		model.Layers, model.Hidden, model.Norm, model.Dropout = 3, 16, "layer", 0.5
		j.Model = model
		name := model.Kind + model.Aggregation + model.GCNNorm + model.Jumping
		if model.EdgeWeights {
			name += " weights"
		}
		if model.Estimates {
			name += " estimates"
			j.Sample.Kind = sample.Poisson
		}
		t.Run(name, func(t *testing.T) { testMemory(t, j) })
	}
}

func testMemory(t *testing.T, j Job) {
	graph := generatedOptions
	graph.EdgeWeights = j.Model.EdgeWeights
	s := shardtest.Open(t, graph, shardtest.Options{Parts: 4})
	p := laidOut(t, s, &j)
	l := p.job.Job
	sampler, err := sample.New(s.Topology(),
		sample.Options{Spec: j.Sample, MaxSeeds: l.Streams.MaxPiece(),
			Weights: j.Model.EdgeWeights})
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.Free()
	var mb sample.Minibatch
	defer mb.Free()
	if err := sampler.Sample(&mb, l.Streams.Piece(1, 0, 0, nil),
		sample.Key{Seed: 1, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	r := l.Workload(0, 1)
	size := shapeOf(&mb, r.Local)
	needs := j.Model.Needs()

	first := &mb.Blocks[0]
	drawn := min(int64(first.NumDst+first.NumEdges()), s.Vertices)
	want := int64(len(mb.Frontier))*(4+8+2+4) + 4*drawn + 4
	for i := range mb.Blocks {
		b, tr := &mb.Blocks[i], &mb.Transposes[i]
		if needs.SelfEdges {
			tr = new(transpose)
		}
		want += int64(len(b.Weights)) * 4
		want += int64(len(b.Indptr)+len(tr.Indptr))*8 +
			int64(len(b.Indices)+len(tr.Indices)+len(tr.Edges))*4
	}
	var edges parallel.LayerEdges
	defer edges.Free()
	edges.Build(&mb, needs, true, s.Topology())
	for l := range mb.Blocks {
		h := edges.Hop(&mb, l, needs, true)
		want += int64(len(h.Weights)) * 8 // in both orders
		if !needs.SelfEdges {
			continue
		}
		want += int64(len(h.Forward.Indptr)+len(h.Transposed.Indptr)) * 8
		want += int64(len(h.Forward.Indices)+2*len(h.Transposed.Indices)) * 4
	}
	if got := p.sizedWaiting(&size, &Traffic{}); got != want {
		t.Errorf("a sampled minibatch is said to take %d bytes, and takes %d", got, want)
	}
	if cap := mb.Bytes(); !needs.SelfEdges && needs.Weights == nn.NoWeights &&
		cap < want-int64(len(mb.Frontier))*(8+2+4) {
		t.Errorf("Bytes says %d of arrays with %d in use", cap, want)
	}

	rank := &rankPlan{rank: 0, reader: r, most: size}
	model, err := p.modelBytes(rank)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nn.NewModel(ref.New(), j.Model, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	batch := nn.Batch{GlobalSeeds: 1, Train: true, Labels: make([]byte, 4*size.seeds)}
	d := mb.Blocks[0].NumDst
	if n := len(mb.Frontier); needs.Sources {
		batch.X = compute.Matrix{Rows: n, Cols: s.Features, Data: make([]float32, n*s.Features)}
	} else {
		batch.Own = compute.Matrix{Rows: d, Cols: s.Features, Data: make([]float32, d*s.Features)}
		batch.Aggregate = batch.Own
	}
	for l := range mb.Blocks {
		h := edges.Hop(&mb, l, needs, true)
		h.Vertices = mb.Original[:h.Destinations]
		batch.Hops = append(batch.Hops, h)
	}
	logits, err := m.Forward(&batch)
	if err != nil {
		t.Fatal(err)
	}
	_, gradient := m.Loss(&batch, logits)
	m.Backward(gradient, nil)
	if got := m.ActivationBytes(); got != model.activations {
		t.Errorf("activations are said to take %d bytes, and take %d", model.activations, got)
	}
}

// The predicted bytes of dynamic caches equal those that the caches report.
func TestCacheBytes(t *testing.T) {
	s := generated(t, 2)
	for _, name := range []string{policy.VIP, policy.Sieve, policy.Prefetch, policy.Lookahead} {
		j := planJob()
		j.Cache = policy.Settings{
			Policy: name, Alpha: j.Cache.Alpha, Gamma: 0.9, Delta: 4, Evict: true,
			Initial: policy.VIP,
		}
		p := planned(t, s, j, given)
		rows := int64(access.Capacity(j.Cache.Alpha, s.Vertices, 2)) * int64(s.RowBytes())
		got := p.Memory.Of(trace.MemCacheRows)
		if math.Abs(float64(got-rows)) > 0.02*float64(rows) {
			t.Errorf("%s: rows take %d bytes of %d asked for", name, got, rows)
		}
		if got := p.Memory.Of(trace.MemCacheIndex); got < 1000 {
			t.Errorf("%s: the index takes %d bytes", name, got)
		}
		if (p.Memory.Of(trace.MemWindow) > 0) != (name == policy.Lookahead) {
			t.Errorf("%s: the window takes %d bytes", name, p.Memory.Of(trace.MemWindow))
		}
	}
}

func TestNodeSharesWhatItCan(t *testing.T) {
	m := trace.Memory{{Name: "a", Bytes: 10, Shared: true}, {Name: "b", Bytes: 3}}
	if m.Sum() != 13 || m.Node(4) != 22 || m.Of("b") != 3 || m.Of("c") != 0 {
		t.Errorf("sum %d, node %d, b %d, c %d", m.Sum(), m.Node(4), m.Of("b"), m.Of("c"))
	}
}

// Evaluation with larger fanouts than training needs larger minibatches, as large as those of
// validation vertices; with smaller fanouts it adds no memory, but that it fetches rows of a
// look-ahead cache. Traffic and time are those of training.
func TestMemoryOfEvaluationWithItsOwnFanouts(t *testing.T) {
	s := generated(t, 4)
	for _, name := range []string{policy.None, policy.Lookahead} {
		j := planJob()
		j.Cache = policy.Settings{Policy: name, Alpha: j.Cache.Alpha}
		want := planned(t, s, j, given)
		j.Eval = sample.Neighbours(1, 1, 1)
		few := planned(t, s, j, given)
		j.Eval = sample.Neighbours(20, 20, 20)
		many := planned(t, s, j, given)
		for _, item := range trace.MemoryItems {
			fetches := name == policy.Lookahead && item == trace.MemMinibatches // past the cache
			if got := few.Memory.Of(item); got > want.Memory.Of(item) ||
				got < want.Memory.Of(item) && !fetches {
				t.Errorf("%s: fewer neighbours: %s takes %d bytes instead of %d", name, item,
					few.Memory.Of(item), want.Memory.Of(item))
			}
			grows := item == trace.MemMinibatches || item == trace.MemActivations ||
				item == trace.MemSamplers
			if got := many.Memory.Of(item) > want.Memory.Of(item); grows && !got {
				t.Errorf("%s: more neighbours: %s takes %d bytes, and %d without", name, item,
					many.Memory.Of(item), want.Memory.Of(item))
			}
		}
		if many.Memory.Of(trace.MemWindow) != want.Memory.Of(trace.MemWindow) ||
			many.Traffic.Rows != want.Traffic.Rows || many.Times.Remote != want.Times.Remote {
			t.Errorf("%s: %+v, %+v, without %+v, %+v", name, many.Traffic, many.Times, want.Traffic,
				want.Times)
		}
	}
	// The largest minibatch of validation vertices, drawn by the reference sampler.
	j := planJob()
	j.Eval = sample.Neighbours(20, 20, 20)
	p := laidOut(t, s, &j)
	r := probed(t, p, 1)
	valid, size, largest := s.Valid(1), p.job.Streams.MaxPiece(), 0
	for at := 0; at < len(valid); at += size {
		mb := sample.Reference(s.Topology(), j.Eval, valid[at:min(at+size, len(valid))],
			sample.Key{Seed: 1, Step: at})
		largest = max(largest, len(mb.Frontier))
		mb.Free()
	}
	got := r.evaluated.frontier()
	if math.Abs(float64(got-largest)) > 0.05*float64(largest) || r.slot().frontier() != got ||
		r.most.frontier() >= got {
		t.Errorf("evaluation reads up to %d rows, expected %d; training reads %d", got, largest,
			r.most.frontier())
	}
}

// While layer l makes its rows, those that it reads are kept; with jumping knowledge those of all
// layers are. In files they take no memory. Embeddings are kept, in memory; logits are not.
func TestLayerRows(t *testing.T) {
	for _, c := range []struct {
		task, jumping string
		scratch       bool
		want          []int64 // bytes a vertex, of each layer
	}{
		{task.Multiclass, "", false, []int64{4 * 16, 4 * (16 + 2*5), 4 * 2 * 5}},
		{task.Multiclass, "", true, []int64{0, 0, 0}},
		{task.Links, "", false, []int64{4 * 16, 4 * (16 + 2*5), 4 * (2*5 + 5)}},
		{task.Links, "", true, []int64{0, 0, 4 * 5}},
		{task.Multiclass, nn.JumpCat, false, []int64{4 * 16, 4 * 32, 4 * 48}},
		{task.Multiclass, nn.JumpCat, true, []int64{0, 0, 0}},
	} {
		j := planJob()
		j.Model = nn.Config{Kind: "sage", Layers: 3, In: 7, Hidden: 16, Out: 5, Jumping: c.jumping,
			Task: c.task}
		j.Scratch = c.scratch
		p := &planner{job: j.lay(&job.Job{Spec: j.Spec})}
		for l, want := range c.want {
			if got := p.layerRows(10, l); got != 10*want {
				t.Errorf("task %s, jumping %q, files %v: layer %d needs %d bytes for 10 "+
					"vertices, want %d",
					c.task, c.jumping, c.scratch, l, got, 10*want)
			}
		}
	}
}

// Rows of ranks that share minibatches are no traffic of a cache, and held all the same.
func TestSharedMinibatchesHoldTheirRows(t *testing.T) {
	j := planJob()
	j.Mode.Name, j.Mode.Sharing = "split", sample.Together
	p := lookedAt(t, generated(t, 4), &j)
	traffic, err := p.traffic(&j.Cache)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range p.ranks {
		m, err := p.rankMemory(r, &traffic, traffic.each(i, p.job.Minibatches()))
		if err != nil {
			t.Fatal(err)
		}
		held := r.held()
		got, want := m.Of(trace.MemMinibatches), int64(j.Depth+1)*(held.Waiting+held.Lent)
		if got < want || held.Messages < int64(2*r.most.remote*p.shards.RowBytes()) {
			t.Errorf("rank %d: minibatches take %d bytes of %d, messages %d for %d rows", i, got,
				want, held.Messages, r.most.remote)
		}
	}
}

// Minibatches that are not prepared, as there is room for them, change nothing of what is held.
func TestMinibatchesThatHaveRoom(t *testing.T) {
	s := generated(t, 4)
	for _, kind := range []string{"sage", "gat"} {
		j := planJob()
		j.Model.Kind, j.Model.Heads, j.Model.Slope, j.Batch = kind, 2, 0.2, 256
		p := laidOut(t, s, &j)
		some := probed(t, p, 0)
		all := &rankPlan{reader: p.job.Workload(0, 1)}
		var err error
		if all.trial, err = p.newTrial(trialOf{train: true, layer: -1}); err != nil {
			t.Fatal(err)
		}
		defer all.trial.close()
		if all.trial.plain = false; !some.trial.plain {
			t.Fatalf("%s is looked at minibatch by minibatch", kind)
		}
		if err := p.probe(all); err != nil {
			t.Fatal(err)
		}
		if got, want := some.held(), all.held(); got != want {
			t.Errorf("%s: %+v are held, and %+v if all are prepared", kind, got, want)
		}
		if got, want := some.slot().hops, all.slot().hops; !slices.Equal(got, want) {
			t.Errorf("%s: layers read %v, and %v if all are prepared", kind, got, want)
		}
		again, left := &trial{room: map[bool][]int{}}, 0
		for _, of := range some.probes {
			if again.hasRoom(&of, true) {
				left++
			}
		}
		if n := len(some.probes); left < n/2 || left == n {
			t.Errorf("%s: %d of %d minibatches have room", kind, left, n)
		}
	}
}

// A run has no more minibatches in its pipeline than it trains.
func TestPipelinesHoldWhatIsTrained(t *testing.T) {
	j := planJob()
	j.Batch, j.Epochs = 256, 1
	p := laidOut(t, generated(t, 2), &j)
	all := int64(p.job.Items())
	for window, want := range map[int][2]int64{0: {3, 0}, 1: {3, 1}, 1 << 20: {3, all - 3}} {
		if slots, waits := p.filled(window); slots != want[0] || waits != want[1] || all < 5 {
			t.Errorf("of %d minibatches and a window of %d, %d are prepared and %d wait", all,
				window, slots, waits)
		}
	}
	p.job.Depth = 1 << 20
	if slots, waits := p.filled(8); slots != all || waits != 0 {
		t.Errorf("of %d minibatches %d are prepared and %d wait", all, slots, waits)
	}
}

// Evaluation takes as many slots as it has minibatches, and none without.
func TestEvaluationTakesFewSlots(t *testing.T) {
	s := generated(t, 4)
	valid := 0 // of the part with the most
	for k := range s.Parts {
		valid = max(valid, len(s.Valid(k)))
	}
	j := planJob()
	j.Batch, j.Depth, j.Epochs, j.Eval = valid/2, 4, 100, sample.Neighbours(20, 20, 20)
	size := laidOut(t, s, &j).job.MaxSeeds()
	n := int64(valid+size-1) / int64(size)
	minibatches := func(evaluations int) int64 {
		j.Evaluations = evaluations
		o := given
		o.Analyse = 1 // the same rank
		return planned(t, s, j, o).Memory.Of(trace.MemMinibatches)
	}
	none, once, often := minibatches(-1), minibatches(1), minibatches(5)
	if each := (often - none) / 5; n < 2 || n > 4 || each <= 0 || once != none+n*each {
		t.Errorf("five slots take %d bytes, with %d minibatches of evaluation %d, with %d %d",
			none, n, once, 5*n, often)
	}
}

// An evaluation has as many minibatches as the group of ranks, or the part, with the most
// validation vertices.
func TestMinibatchesOfEvaluation(t *testing.T) {
	m := shard.Meta{Format: shard.Format, Parts: 4, Vertices: 4000, Edges: 8000, Classes: 4,
		Features: 8, FeatureType: dataset.Float32, Task: task.Multiclass,
		Offsets: []int64{0, 1000, 2000, 3000, 4000}}
	for _, valid := range []int{400, 400, 0, 0} {
		m.Splits = append(m.Splits, shard.SplitSizes{Train: 800, Valid: valid})
	}
	for _, c := range []struct {
		sharing        sample.Sharing
		ranks, perNode int
		want           int64
	}{
		{sample.Alone, 4, 1, 4}, {sample.Alone, 2, 1, 2 * 4}, {sample.Alone, 8, 1, 2},
		{sample.Together, 4, 1, 800 / 400}, {sample.Together, 8, 1, 1},
		{sample.InNodes, 4, 2, 800 / 200}, {sample.InNodes, 8, 4, 800 / 400},
		{sample.InNodes, 8, 2, 400 / 200}, {sample.InNodes, 2, 1, 2 * 4},
	} {
		j := planJob()
		j.Ranks, j.RanksPerNode, j.Batch, j.Mode.Sharing = c.ranks, c.perNode, 100, c.sharing
		j.Mode.Name = []string{"data", "split", "hybrid"}[c.sharing]
		p := laidOut(t, shard.Sizes(&m, "parts"), &j)
		if got := p.judgedMinibatches(); got != c.want {
			t.Errorf("%s, %d ranks, %d a node: %d minibatches of up to %d, not %d", j.Mode.Name,
				c.ranks, c.perNode, got, p.job.MaxSeeds(), c.want)
		}
	}
}

// Where nothing is evaluated, larger fanouts of evaluation add nothing to minibatches and to those
// that wait; a window has those that are trained alone in any case.
func TestEvaluationIsApartFromTraining(t *testing.T) {
	s, o := generated(t, 4), givenGPU
	o.Analyse = 1 // the same rank
	for name, change := range map[string]func(j *Job){
		"data":      func(*Job) {},
		"push-pull": func(j *Job) { j.Mode.Name, j.Mode.Columns = "push-pull", true },
		"split":     func(j *Job) { j.Mode.Name, j.Mode.Sharing = "split", sample.Together },
		"hybrid":    func(j *Job) { j.Mode.Name, j.Mode.Sharing = "hybrid", sample.InNodes },
		"hybrid, partitioned": func(j *Job) {
			j.Mode.Name, j.Mode.Sharing, j.Partitioned = "hybrid", sample.InNodes, true
		},
		"partitioned": func(j *Job) { j.Partitioned = true },
		"gpu":         func(j *Job) { j.GPU = &GPU{Memory: 1e9} },
	} {
		for _, cache := range []string{policy.None, policy.Lookahead} {
			j := planJob()
			j.RanksPerNode, j.Depth, j.Epochs, j.Cache.Policy = 2, 4, 100, cache
			if change(&j); j.Mode.Columns && cache != policy.None {
				continue // it has no cache
			}
			memory := func(evaluations int) trace.Memory {
				j.Evaluations = evaluations
				return planned(t, s, j, o).Memory
			}
			j.Eval = sample.Spec{}
			without := memory(-1)
			j.Eval = sample.Neighbours(20, 20, 20)
			none, often := memory(-1), memory(100)
			for _, item := range []string{trace.MemMinibatches, trace.MemWindow} {
				if got, want := none.Of(item), without.Of(item); got != want {
					t.Errorf("%s, cache %s: %s take %d bytes instead of %d", name, cache, item, got,
						want)
				}
			}
			if got, want := often.Of(trace.MemWindow), without.Of(trace.MemWindow); got != want {
				t.Errorf("%s, cache %s: the window takes %d bytes instead of %d", name, cache, got,
					want)
			}
			got, least := often.Of(trace.MemMinibatches), none.Of(trace.MemMinibatches)
			if got <= least {
				t.Errorf("%s, cache %s: minibatches take %d bytes, and %d without evaluation", name,
					cache, got, least)
			}
		}
	}
}

// The ranks of a node keep the rows of a shared cache together, each as many as in a cache of its
// own.
func TestSharedCachesCountEveryRank(t *testing.T) {
	s := generated(t, 4)
	rows := func(placement string) (bytes int64, shared bool) {
		j := planJob()
		j.Ranks, j.RanksPerNode = 4, 2
		j.Cache = policy.Settings{Policy: policy.Degree, Alpha: 0.05, Placement: placement}
		for _, item := range planned(t, s, j, given).Memory {
			if item.Name == trace.MemCacheRows {
				return item.Bytes, item.Shared
			}
		}
		return 0, false
	}
	own, apart := rows(policy.PlacementOwn)
	both, together := rows(policy.PlacementGroup)
	if own == 0 || both != 2*own || apart || !together {
		t.Errorf("a rank's cache has %d bytes, that of a node's two ranks %d; shared: %t and %t",
			own, both, apart, together)
	}
}

// Rows in files are read where they lie: chunks of the final test get none of other ranks, as where
// all rows are in the memory of one node.
func TestChunksReadFiles(t *testing.T) {
	s := generated(t, 4)
	evaluation := func(change func(*Job)) int64 {
		j := planJob()
		j.Ranks, j.RanksPerNode, j.Model.Hidden = 4, 2, 2 // the most is read for the first layer
		change(&j)
		return planned(t, s, j, given).Memory.Of(trace.MemEvaluation)
	}
	fetched := evaluation(func(*Job) {})
	near := evaluation(func(j *Job) { j.RanksPerNode = 4 })
	files := evaluation(func(j *Job) { j.Cache.Source = policy.SourceFiles })
	if files != near || files >= fetched {
		t.Errorf("chunks take %d bytes of files, %d of one node, %d of several", files, near,
			fetched)
	}
}

// A slot keeps the room of the largest chunk that has passed it, of a vertex with very many
// neighbours too.
func TestSlotsKeepTheLargestChunk(t *testing.T) {
	p := &planner{job: &laid{Job: new(job.Job)}}
	p.job.Model = nn.Config{Kind: "sage", Layers: 2, Hidden: 8, In: 8, Out: 8}
	r := &rankPlan{chunks: map[[3]int64]chunk{{0, 8, 0}: {vertices: 1, bytes: 30000},
		{0, 8, 1}: {vertices: 49, bytes: 900}, {0, 8, 50}: {vertices: 150, bytes: 1000}}}
	c := chunking{some: [][2]int64{{0, 1}, {1, 50}, {50, 200}}, rows: []int64{10000, 90, 50},
		budget: 100}
	for _, of := range []struct {
		slots []int64
		want  int64
		of    int
	}{{[]int64{10000, 90}, 30000 + 1800, 1 << 20}, {[]int64{10000, 20000}, 90000, 1 << 20},
		{[]int64{100, 50, 0}, 3000, 1 << 20}, {[]int64{100, 50, 0}, 2250, 3}} {
		c.slots, c.of = of.slots, of.of
		if got, err := p.chunksHeld(r, 0, c); err != nil || math.Abs(float64(got-of.want)) > 2 {
			t.Errorf("slots of %d rows hold %d bytes, not %d (%v)", of.slots, got, of.want, err)
		}
	}
}

// What a chunk of few rows takes beside them does not count for each row of large ones.
func TestSmallChunksSayNothingOfLargeOnes(t *testing.T) {
	p := &planner{job: &laid{Job: new(job.Job)}}
	p.job.Model = nn.Config{Kind: "sage", Layers: 2, Hidden: 8, In: 8, Out: 8}
	r := &rankPlan{chunks: map[[3]int64]chunk{{0, 8, 0}: {vertices: 50, bytes: 1000},
		{0, 8, 50}: {vertices: 2, bytes: 900}}}
	c := chunking{some: [][2]int64{{0, 50}, {50, 52}}, rows: []int64{100, 5}, budget: 100, of: 2,
		slots: []int64{100, 5}}
	if got, err := p.chunksHeld(r, 0, c); err != nil || got != 1050 {
		t.Errorf("slots hold %d bytes, not 1050 (%v)", got, err)
	}
}

// A hub is a chunk that the plan samples, wherever it is.
func TestHubsAreSampled(t *testing.T) {
	var g graph.CSC
	const hub, edges, n = 37, 1000, 100
	for v := range n + 1 {
		if g.Indptr = append(g.Indptr, int64(v)); v > hub {
			g.Indptr[v] += edges
		}
	}
	bounds := [][2]int64{}
	for lo := int64(0); lo < n; {
		hi := g.NextChunk(lo, n, 10)
		bounds, lo = append(bounds, [2]int64{lo, hi}), hi
	}
	for _, of := range sampled(&g, bounds) {
		if of[0] <= hub && hub < of[1] {
			return
		}
	}
	t.Errorf("of chunks %v the plan samples %v, none with vertex %d", bounds, sampled(&g, bounds),
		hub)
}

// Files have the features of all edges.
func TestFilesHaveAllEdgeRows(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true}),
		shardtest.Options{Parts: 4})
	p := &planner{job: &laid{Job: &job.Job{}}, shards: s, options: &Options{}}
	p.job.Model.EdgeIn, p.job.Cache.Source = s.EdgeFeatures, policy.SourceFiles
	if got, want := p.edgeRowBytes(0, 1), s.Edges*int64(4*s.EdgeFeatures); got != want {
		t.Errorf("a rank maps %d bytes of features of edges, not %d", got, want)
	}
}

// What a model takes for features of edges is what a device that only counts is asked for, as far
// as the arrays have no room to grow.
func TestRowsOfEdgesAreCounted(t *testing.T) {
	const sources, destinations, edges = 500, 100, 3000
	of := compute.Segments{Indptr: make([]int64, destinations+1), Indices: make([]int32, edges)}
	for d := range of.Indptr {
		of.Indptr[d] = int64(d) * edges / destinations
	}
	for _, kind := range []string{"gine", "gatv2"} {
		bytes := func(dev compute.Device, hop nn.Hop) int64 {
			m, err := nn.NewModel(dev, nn.Config{Kind: kind, Layers: 2, Hidden: 8, In: 8, Out: 8,
				EdgeIn: 4, Heads: 2, Slope: 0.2, Norm: "none", EdgeFeatures: true,
				Task: task.Multiclass}, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for l := range 2 {
				if err := m.Reserve(l, &nn.Input{Hop: hop, Train: true,
					Gradient: true}); err != nil {
					t.Fatal(err)
				}
			}
			return m.ActivationBytes()
		}
		hop := nn.Hop{Sources: sources, Destinations: destinations, Edges: edges}
		planned := bytes(new(counter), hop)
		hop.Forward = of
		if got := bytes(ref.New(), hop); got < planned || got > planned+edges*28/8+1000 {
			t.Errorf("%s takes %d bytes, and %d are counted", kind, got, planned)
		}
		none := bytes(new(counter), nn.Hop{Sources: sources, Destinations: destinations})
		// messages, numbers of edges
		if each := int64(2*2*4*8 + 20 + 2*4); planned-none < edges*each {
			t.Errorf("%s: an edge takes %d bytes at least, and %d are counted of %d", kind, each,
				planned-none, edges)
		}
	}
}

// Of few chunks each is looked at: the last may be small.
func TestFewChunksAreAllSampled(t *testing.T) {
	s := generated(t, 2)
	j := planJob()
	p := laidOut(t, s, &j)
	rows := p.rows(0) + s.Topology().Graph.Indptr[p.rows(0)]
	for n := range 3 {
		c := p.chunks(0, int(job.ChunkBytes*int64(n+1)*10/(rows*12)))
		covered := int64(0)
		for _, bounds := range c.some {
			covered += bounds[1] - bounds[0]
		}
		kept := int64(0)
		for _, rows := range c.slots { // a chunk each
			kept += rows
		}
		if c.of != n+1 || covered != p.rows(0) || kept != rows {
			t.Errorf("of %d vertices in %d chunks %d are looked at, and of %d rows %d kept",
				p.rows(0), c.of, covered, rows, kept)
		}
	}
}

// Learned rows that a step under way changes come late, beside a look-ahead cache too, and take
// room for it.
func TestLearnedRowsComeLate(t *testing.T) {
	s := shardtest.Open(t, dataset.GenerateOptions{Kind: "mag", Vertices: 600, Features: 8,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 2})
	waiting := func(depth int) int64 {
		j := planJob()
		j.Model.Learned, j.Depth, j.Batch, j.Cache.Policy = 8, depth, 16, policy.Lookahead
		r := probed(t, laidOut(t, s, &j), 0)
		return r.held().Waiting
	}
	if none, some := waiting(0), waiting(4); some <= none {
		t.Errorf("minibatches take %d bytes with four under way, and %d with none", some, none)
	}
}

// What is predicted of a CPU's scratch memory is what it keeps once it has trained: with fewer rows
// than a wave of sums has chunks, with more, and with so many that weights are turned.
func TestScratchBytes(t *testing.T) {
	const many = (compute.ChunkWave + 2) * compute.ChunkRows
	for _, c := range []struct {
		model nn.Config
		rows  int
		over  float64 // prediction over truth at most; weights of few rows are not turned
	}{
		{nn.Config{Kind: "sage"}, 1500, 1.35}, {nn.Config{Kind: "sage"}, 12 * compute.ChunkRows,
			1.05},
		{nn.Config{Kind: "sage"}, many, 1.05}, {nn.Config{Kind: "gcn"}, many, 1.05},
		{nn.Config{Kind: "gin"}, many, 1.05},
		{nn.Config{Kind: "mlp", Jumping: nn.JumpCat}, many, 1.1},
		{nn.Config{Kind: "gatv2", Heads: 2, Slope: 0.2}, many, 1.05},
	} {
		c.model.Layers, c.model.In, c.model.Hidden, c.model.Out = 2, 32, 64, 32
		c.model.Norm, c.model.Task = nn.NormNone, task.Multiclass
		t.Run(fmt.Sprintf("%s%s %d", c.model.Kind, c.model.Jumping, c.rows), func(t *testing.T) {
			dev, err := cpu.New(cpu.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			scratch := dev.Capabilities().Scratch
			if scratch == nil {
				t.Skip("built without cgo: the device keeps nothing")
			}
			m, err := nn.NewModel(dev, c.model, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			batch, hops := edgeless(c.model, c.rows)
			logits, err := m.Forward(batch)
			if err != nil {
				t.Fatal(err)
			}
			_, gradient := m.Loss(batch, logits)
			m.Backward(gradient, nil)
			held, said := scratch(), scratchBytes(m, hops, false)
			if over := float64(said) / float64(held); over < 0.95 || over > c.over {
				t.Errorf("%d bytes are said to be kept, and %d are", said, held)
			}
		})
	}
}

// edgeless returns a minibatch of vertices without edges, except to themselves where the model has
// those.
func edgeless(c nn.Config, rows int) (*nn.Batch, []hopShape) {
	x := compute.Matrix{Rows: rows, Cols: c.In, Data: make([]float32, rows*c.In)}
	s := compute.Segments{Indptr: make([]int64, rows+1)}
	if c.Needs().SelfEdges {
		for v := range rows {
			s.Indptr[v+1] = int64(v + 1)
			s.Indices, s.Edges = append(s.Indices, int32(v)), append(s.Edges, int32(v))
		}
	}
	b := &nn.Batch{X: x, GlobalSeeds: rows, Train: true, Labels: make([]byte, 4*rows)}
	var hops []hopShape
	for range c.Layers {
		b.Hops = append(b.Hops, nn.Hop{Sources: rows, Destinations: rows, Forward: s,
			Transposed: s})
		hops = append(hops, hopShape{sources: rows, destinations: rows})
	}
	return b, hops
}
