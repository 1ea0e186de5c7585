package parallel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/pipeline"
	"halognn/src/sample"
	"halognn/src/trace"
)

// weighed returns the world with weights of its edges.
func (w *world) weighed() *world {
	other, t := *w, &w.topology
	other.topology.Weights = make([]float32, len(t.Graph.Indices))
	other.topology.WeightSums = make([]float32, vertices)
	for v := range vertices {
		for e := t.Graph.Indptr[v]; e < t.Graph.Indptr[v+1]; e++ {
			x := float32(1+e%7) / 4
			other.topology.Weights[e] = x
			other.topology.WeightSums[v] += x
		}
	}
	return &other
}

// sharedModels are the models whose minibatches ranks may share: every kind, with dropout.
func sharedModels() map[string]nn.Config {
	models := map[string]nn.Config{}
	add := func(name, kind string, set func(*nn.Config)) {
		c := nn.Config{Kind: kind, Layers: 3, In: cols, Hidden: 4, Out: classes, Dropout: 0.4,
			Norm: nn.NormNone, Task: nn.Multiclass, Heads: 2, Slope: 0.2}
		if set != nil {
			set(&c)
		}
		models[name] = c
	}
	add("sage", "sage", nil)
	add("sage max", "sage", func(c *nn.Config) { c.Aggregation = nn.AggregateMax })
	add("sage weighted", "sage", func(c *nn.Config) { c.EdgeWeights = true })
	add("sage, one layer", "sage", func(c *nn.Config) { c.Layers = 1 })
	add("sage, many labels", "sage", func(c *nn.Config) { c.Task = nn.Multilabel })
	add("gcn right", "gcn", nil)
	add("gcn both", "gcn", func(c *nn.Config) { c.GCNNorm = nn.GCNBoth })
	add("gcn both weighted", "gcn", func(c *nn.Config) {
		c.GCNNorm, c.EdgeWeights = nn.GCNBoth, true
	})
	add("gin", "gin", nil)
	add("gat", "gat", nil)
	add("gat, ELU, mean of heads", "gat", func(c *nn.Config) {
		c.Activation, c.HeadMerge = nn.ELU, nn.HeadsMean
	})
	add("gatv2", "gatv2", nil)
	add("mlp", "mlp", nil)
	add("norm, residual, jumping", "sage", func(c *nn.Config) {
		c.Norm, c.Residual, c.Jumping = nn.NormLayer, true, nn.JumpCat
	})
	add("residual, jumping max", "gat", func(c *nn.Config) {
		c.Residual, c.Jumping = true, nn.JumpMax
	})
	return models
}

// counting counts what is handed to the transport by all-to-alls, what a rank sends itself included,
// and by all-gathers, on all communicators made of it.
type counting struct {
	comm.Comm
	bytes *atomic.Int64 // the pipeline's lane and the training goroutine add to it
}

func (c counting) StartAlltoallv(send, recv []byte, out, in []int, width int) comm.Request {
	for _, n := range out {
		c.bytes.Add(int64(n * width))
	}
	return c.Comm.StartAlltoallv(send, recv, out, in, width)
}

func (c counting) StartAllgatherv(send, recv []byte, in []int, width int) comm.Request {
	c.bytes.Add(int64((c.Size() - 1) * in[c.Rank()] * width))
	return c.Comm.StartAllgatherv(send, recv, in, width)
}

func (c counting) Dup() (comm.Comm, error) {
	made, err := c.Comm.Dup()
	return counting{made, c.bytes}, err
}

// sharer is a rank that trains in some mode.
type sharer struct {
	model     *nn.Model
	gradients *Gradients
	strategy  Strategy
	exchanged comm.Comm
	moved     *atomic.Int64 // bytes handed to the transport, without those of gradients
}

func (w *world) sharer(c comm.Comm, device compute.Device, mode string, config nn.Config,
	apart bool) (*sharer, error) {
	l := &sharer{moved: new(atomic.Int64)}
	var err error
	if l.model, err = nn.NewModel(device, config, 5); err != nil {
		return nil, err
	}
	if l.gradients, err = NewGradients(c, l.model.Params, config.Layers,
		GradientOptions{Device: device, Transport: TransportStaged}); err != nil {
		return nil, err
	}
	counted := counting{c, l.moved}
	if l.exchanged, err = counted.Dup(); err != nil {
		return nil, err
	}
	per := (len(w.offsets) - 1) / c.Size()
	first, end, tables := 0, cols, w.tables(c.Rank(), per, compute.Float16)
	if HoldsColumns(mode) { // the last rank has the most
		if first = c.Rank(); first < c.Size()-1 {
			end = first + 1
		}
		for p := range tables {
			tables[p] = w.table(p, first, end, compute.Float16)
		}
	}
	x, err := exchange.New(l.exchanged, exchange.Options{
		Offsets: w.offsets, Tables: tables, Cols: end - first, Type: compute.Float16,
		Host: ref.Host{},
	})
	if err != nil {
		return nil, err
	}
	o := Options{
		Comm: counted, Topology: &w.topology, MaxSeeds: 64, Exchange: x, FirstCol: first,
		Cols: end - first,
		Host: ref.Host{}, Device: device, Model: l.model, Gradients: l.gradients,
		Labels: w.labels, Workers: 2, Partitioned: apart, SeedsElsewhere: true,
	}
	if config.Task == nn.Multilabel {
		o.Labels, o.Targets, o.Classes = nil, w.targets, classes
	}
	if config.ReadsNeighbours() {
		o.Sample = sample.Neighbours([]int{4, 3, 3}[:config.Layers]...)
	}
	if apart {
		o.Topology, o.Rows = w.partitioned(c)
		o.Topology.Rows = w.topology.Graph.Indptr // degrees of all vertices
	}
	o.Rows = nil
	for r := range c.Size() + 1 {
		o.Rows = append(o.Rows, w.offsets[r*per])
	}
	l.strategy, err = New(mode, o)
	return l, err
}

func (l *sharer) close() error {
	err := errors.Join(l.strategy.Close(), l.gradients.Close(), l.exchanged.Free())
	l.model.Close()
	return err
}

// grads returns the gradients in host memory.
func (l *sharer) grads(device compute.Device) []float32 {
	host := make([]float32, len(l.model.Params.Grads))
	device.Download(host, l.model.Params.Grads)
	return host
}

// result is what a minibatch comes to on a rank.
type result struct {
	loss   float64
	grads  []float32 // of the last minibatch of a step
	edges  uint64
	scored int
	own    int64 // bytes of rows that the rank sends itself in the step
	trace.Counters
}

// schedule says which minibatches ranks train: items of them, the last of which is not trained but
// evaluated. each belong to a step.
type schedule struct {
	items, each int
	seeds       func(rank, item int) []graph.VertexID
	global      func(item int) int // seeds of the item's step over all ranks
	stream      func(rank, item int) int
}

// together are minibatches that all ranks train, each a step.
func together() schedule {
	seeds := func(_, i int) []graph.VertexID { return seedsOf(i, 40-13*i) }
	return schedule{3, 1, seeds, func(i int) int { return len(seeds(0, i)) },
		func(int, int) int { return 0 }}
}

// separate are minibatches of each rank, two of which are a step. Some have no seeds.
func separate(ranks int) schedule {
	seeds := func(r, i int) []graph.VertexID { return seedsOf(5*i+r, (7*i+3*r+4)%9) }
	return schedule{5, 2, seeds, func(i int) (n int) {
		for r := range ranks {
			n += len(seeds(r, i/2*2)) + len(seeds(r, i/2*2+1))
		}
		return n
	}, func(r, i int) int { return 2*r + i%2 }}
}

// run trains the minibatches of a rank, and evaluates the last.
func (l *sharer) run(device compute.Device, rank int, s schedule, depth int) (all []result,
	err error) {
	pipe, err := NewPipe(l.strategy, pipeline.Options{Depth: depth, Workers: 2})
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	admit := func(i int, m *Minibatch) {
		m.Key = sample.Key{Seed: 3, Epoch: 1, Step: i / s.each, Stream: s.stream(rank, i)}
		m.Train = i < s.items-1
		m.SetSeeds(s.seeds(rank, i))
		m.GlobalSeeds = s.global(i)
	}
	err = pipe.Run(context.Background(), s.items, admit, func(i int, m *Minibatch) error {
		var r result
		if last := i%s.each == s.each-1; m.Train {
			var phases heard
			t, err := l.strategy.Step(m, last, &phases)
			if err != nil || t.Fault != nil {
				return fmt.Errorf("fault %v, %w", t.Fault, err)
			}
			if last {
				r.loss, r.grads = t.Stats.Loss, l.grads(device)
			}
		} else {
			y, err := l.strategy.Forward(m)
			if err != nil {
				return err
			}
			share, _ := l.model.Loss(&m.Batch, y)
			r.loss = share.Loss
		}
		var err error
		if r.Counters, err = l.strategy.Counters(m); err != nil {
			return err
		}
		r.edges, r.scored = m.Edges, len(m.Scored)
		if sums := m.pushed.rows; sums != nil {
			_, width := l.model.Config.Widths(0)
			r.own = int64(4 * width * sums[rank])
		}
		all = append(all, r)
		return nil
	})
	return all, err
}

// onRef runs ranks with the reference device.
func onRef(ranks int, rank func(comm.Comm, compute.Device) error) error {
	return comm.RunWorld(ranks, func(c comm.Comm) error {
		device := ref.New()
		return errors.Join(rank(c, device), device.Close())
	})
}

// training is what ranks train, and in which mode.
type training struct {
	mode        string
	config      nn.Config
	partitioned bool
	schedule
	depth int
}

// train trains on ranks that run starts. It returns what minibatches come to, by rank, and the bytes
// that each rank handed to the transport.
func (w *world) train(t training, ranks int,
	run func(ranks int, rank func(comm.Comm, compute.Device) error) error) (results [][]result,
	moved []int64, err error) {
	results, moved = make([][]result, ranks), make([]int64, ranks)
	err = run(ranks, func(c comm.Comm, device compute.Device) error {
		l, err := w.sharer(c, device, t.mode, t.config, t.partitioned)
		if err != nil {
			return err
		}
		results[c.Rank()], err = l.run(device, c.Rank(), t.schedule, t.depth)
		moved[c.Rank()] = l.moved.Load()
		_, pinned := l.strategy.Memory()
		if compute.CapabilitiesOf(device).Accelerator != nil && ranks > 1 && pinned.Sum() == 0 {
			err = errors.Join(err, fmt.Errorf("no pinned memory: %v", pinned))
		}
		return errors.Join(err, l.close())
	})
	return results, moved, err
}

// closeTo reports whether two lists differ by round-off alone.
func closeTo(got, want []float32) bool {
	most := 0.0
	for _, x := range want {
		most = max(most, math.Abs(float64(x)))
	}
	for i, x := range want {
		if math.Abs(float64(got[i])-float64(x)) > 4e-6*most {
			return false
		}
	}
	return len(got) == len(want)
}

// Whatever the mode, ranks come to the loss and to every gradient of data parallelism, up to
// round-off, with dropout, for every kind of model: where they share minibatches, to those of a rank
// alone. Together they draw the same edges, and compute and read as much as they say; and what they
// count as sent is what the transport was given.
func TestModesAgree(t *testing.T) {
	plain := newWorld(t, 8)
	before := mem.Allocated()
	for name, config := range sharedModels() {
		w := plain
		if config.EdgeWeights {
			w = plain.weighed()
		}
		err := w.modesAgree(config, []int{1, 2, 4, 8}, onRef)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// modesAgree trains a model in all modes on ranks that run starts, and compares what they come to
// with data parallelism on the reference device.
func (w *world) modesAgree(config nn.Config, numbers []int,
	run func(ranks int, rank func(comm.Comm, compute.Device) error) error) error {
	alone, _, err := w.train(training{ModeData, config, false, together(), 0}, 1, onRef)
	if err != nil {
		return err
	}
	var errs []error
	for _, ranks := range numbers {
		own := separate(ranks)
		apart, _, err := w.train(training{ModeData, config, false, own, 0}, ranks, onRef)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			training
			want [][]result
		}{
			{training{ModeSplit, config, false, together(), ranks % 3 * 2}, alone},
			{training{ModeSplit, config, true, together(), ranks % 3 * 2}, alone},
			{training{ModePushPull, config, false, own, ranks % 3 * 2}, apart},
			{training{ModePushPull, config, true, own, ranks % 3 * 2}, apart},
		} {
			if c.partitioned && config.EdgeWeights {
				continue // ranks do not send each other weights of edges: package job
			}
			if c.mode == ModePushPull && !config.Linear() {
				continue // refused: TestModesRefuseByName
			}
			results, moved, err := w.train(c.training, ranks, run)
			if err == nil {
				err = compareRanks(results, c.want, moved)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %d ranks, partitioned %v: %w", c.mode, ranks,
					c.partitioned, err))
			}
		}
	}
	return errors.Join(errs...)
}

// total adds up a minibatch over the ranks. Loss and gradients of a step are those of all of them
// already.
func total(results [][]result, i int) (sum result) {
	for _, of := range results {
		r := of[i]
		sum.edges += r.edges
		sum.scored += r.scored
		sum.own += r.own
		sum.Counters.Add(r.Counters)
		if sum.grads = r.grads; r.grads != nil {
			sum.loss = r.loss
		} else {
			sum.loss += r.loss
		}
	}
	return sum
}

// compareRanks returns an error unless ranks came to what others did, and count what was moved.
func compareRanks(results, others [][]result, moved []int64) error {
	var bytes, handed int64
	for i := range others[0] {
		want := total(others, i)
		for r, of := range results {
			if want.grads != nil && (math.Abs(of[i].loss-want.loss) > 2e-6*math.Abs(want.loss) ||
				!closeTo(of[i].grads, want.grads)) {
				return fmt.Errorf("rank %d, minibatch %d: loss %v, want %v; gradients\n%v\n%v", r, i,
					of[i].loss, want.loss, of[i].grads, want.grads)
			}
		}
		sum := total(results, i)
		if math.Abs(sum.loss-want.loss) > 2e-6*math.Abs(want.loss) {
			return fmt.Errorf("minibatch %d: loss %v, want %v", i, sum.loss, want.loss)
		}
		c := sum.Counters
		if sum.edges != want.edges || sum.scored != want.scored || c.Edges != want.Edges {
			return fmt.Errorf("minibatch %d: edges %x, %d of them, %d seeds; want %x, %d, %d", i,
				sum.edges, c.Edges, sum.scored, want.edges, want.Edges, want.scored)
		}
		if c.Loaded != want.Loaded || c.Remote != 0 || c.Shuffle.Bytes != c.Shuffle.Got ||
			c.Sampling.Asked != c.Sampling.Answered {
			return fmt.Errorf("minibatch %d: %+v, want %d rows", i, c, want.Loaded)
		}
		bytes += c.Shuffle.Bytes + c.CountBytes + c.IDBytes + c.Sampling.Bytes + sum.own
	}
	for _, b := range moved {
		handed += b
	}
	if handed != bytes {
		return fmt.Errorf("%d bytes counted, %d handed to the transport", bytes, handed)
	}
	return nil
}

// What has no meaning in a mode is refused by name, on all ranks.
func TestModesRefuseByName(t *testing.T) {
	w, models := newWorld(t, 2), sharedModels()
	normed := models["sage"]
	normed.Norm = nn.NormBatch
	for _, c := range []struct {
		mode   string
		config nn.Config
		want   string
	}{
		{ModeSplit, normed, "model.norm batch"},
		{ModePushPull, models["gat"], "model kind gat is no sum over the columns"},
		{ModePushPull, models["gatv2"], "model kind gatv2"},
		{ModePushPull, models["sage max"], "choose sage with means"},
	} {
		err := comm.RunWorld(2, func(rank comm.Comm) error {
			if _, err := w.sharer(rank, ref.New(), c.mode, c.config, false); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%v, want %q", err, c.want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
