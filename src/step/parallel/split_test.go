package parallel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/topology/sample"
	"halognn/tests/race"
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
			Norm: nn.NormNone, Task: task.Multiclass, Heads: 2, Slope: 0.2}
		if set != nil {
			set(&c)
		}
		models[name] = c
	}
	add("sage", "sage", nil)
	add("sage max", "sage", func(c *nn.Config) { c.Aggregation = nn.AggregateMax })
	add("sage weighted", "sage", func(c *nn.Config) { c.EdgeWeights = true })
	add("sage, one layer", "sage", func(c *nn.Config) { c.Layers = 1 })
	add("sage, many labels", "sage", func(c *nn.Config) { c.Task = task.Multilabel })
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
	add("mlp, batch norm", "mlp", func(c *nn.Config) { c.Norm = nn.NormBatch })
	add("batch norm, residual, jumping", "gcn", func(c *nn.Config) {
		c.Norm, c.Residual, c.Jumping, c.Activation = nn.NormBatch, true, nn.JumpCat, nn.ELU
	})
	add("residual, jumping max", "gat", func(c *nn.Config) {
		c.Residual, c.Jumping = true, nn.JumpMax
	})
	return models
}

// counting counts what is handed to the transport by all-to-alls and all-gathers, on all
// communicators made of it.
type counting struct {
	comm.Comm
	bytes *atomic.Int64 // the pipeline's issuer and the training goroutine add to it
}

func (c counting) StartAlltoallv(send, recv []byte, out, in []int, width int) comm.Request {
	for _, n := range out {
		c.bytes.Add(int64(n * width))
	}
	return c.Comm.StartAlltoallv(send, recv, out, in, width)
}

func (c counting) StartAlltoallThen(send, recv []byte, out, in []int, width int,
	then comm.Then) comm.Request {
	for r, n := range out {
		if !then.ToAll || r != c.Rank() { // as of an all-gather
			c.bytes.Add(int64(n*width + then.SendRows[r]*then.RowBytes))
		}
	}
	return c.Comm.StartAlltoallThen(send, recv, out, in, width, then)
}

func (c counting) StartAllgatherv(send, recv []byte, in []int, width int) comm.Request {
	c.bytes.Add(int64((c.Size() - 1) * in[c.Rank()] * width))
	return c.Comm.StartAllgatherv(send, recv, in, width)
}

func (c counting) Dup() (comm.Comm, error) {
	made, err := c.Comm.Dup()
	return counting{made, c.bytes}, err
}

func (c counting) Split(color, key int) (comm.Comm, error) {
	made, err := c.Comm.Split(color, key)
	return counting{made, c.bytes}, err
}

// grouping says which ranks train each minibatch together: all of a node.
type grouping struct {
	mode           string
	nodes, perNode int
}

func (g grouping) ranks() int { return g.nodes * g.perNode }

func (g grouping) columns() bool { return g.mode == ModePushPull }

func (g grouping) String() string {
	return fmt.Sprintf("%s, %d nodes of %d ranks", g.mode, g.nodes, g.perNode)
}

// lone is the grouping whose numbers those of g are to have: a rank for each node.
func (g grouping) lone() grouping { return grouping{ModeData, g.nodes, 1} }

// sharer is a rank that trains in some mode.
type sharer struct {
	model     *nn.Model
	gradients *Gradients
	strategy  *Strategy
	exchanged comm.Comm
	moved     *atomic.Int64 // bytes handed to the transport, without those of gradients
}

func (w *world) sharer(c comm.Comm, device compute.Device, g grouping, config nn.Config,
	apart bool, policy cache.Policy, depth int) (*sharer, error) {
	l := &sharer{moved: new(atomic.Int64)}
	var err error
	if l.model, err = nn.NewModel(device, config, 5); err != nil {
		return nil, err
	}
	over := cmp.Or(w.over, TransportStaged)
	if l.gradients, err = NewGradients(c, l.model.Params, config.Layers,
		GradientOptions{Device: device, Transport: over}); err != nil {
		return nil, err
	}
	counted := counting{c, l.moved}
	if l.exchanged, err = counted.Dup(); err != nil {
		return nil, err
	}
	per := (len(w.offsets) - 1) / c.Size()
	dtype := compute.Float16
	if w.wide {
		dtype = compute.Float32
	}
	first, end, tables := 0, cols, w.tables(c.Rank(), per, dtype)
	if g.columns() { // one of them, but the last rank all others
		if first = c.Rank(); first < c.Size()-1 {
			end = first + 1
		}
		for p := range tables {
			tables[p] = w.table(p, first, end, compute.Float16)
		}
	}
	var buffer []byte
	if policy != nil {
		buffer = make([]byte, policy.Slots()*cols*dtype.Size())
	}
	x, err := exchange.New(l.exchanged, exchange.Options{
		Offsets: w.offsets, Tables: tables,
		Kinds: []exchange.Kind{{Cols: end - first, Type: dtype}}, Host: ref.Host{}, Buffer: buffer,
		Sums: w.sums,
	})
	if err != nil {
		return nil, err
	}
	o := Options{
		Comm: counted, Host: ref.Host{}, Device: device, Model: l.model, Gradients: l.gradients,
		Drawing: Drawing{Topology: &w.topology, MaxSeeds: 64, Labels: w.oneLabel(), Workers: 2,
			Partitioned: apart, GroupSize: g.perNode, SeedsElsewhere: g.mode != ModeSplit},
		Reading: Reading{Exchange: x, FirstCol: first, Cols: end - first, Policy: policy,
			Depth: depth},
	}
	if config.Task == task.Multilabel {
		o.Labels = w.manyLabels()
	}
	if config.ReadsNeighbours() {
		o.Sample = sample.Neighbours([]int{4, 3, 3}[:config.Layers]...)
		if w.spec.Kind != "" {
			o.Sample = w.spec
		}
	}
	if apart {
		o.Topology, _ = w.partitioned(c)
		o.Topology.Rows = w.topology.Graph.Indptr // degrees of all vertices
	}
	for r := range c.Size() + 1 {
		o.Rows = append(o.Rows, w.offsets[r*per])
	}
	l.strategy, err = New(g.mode, o)
	l.moved.Store(0) // what ranks agree on before the first step is not counted
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

// result is what a step comes to on a rank.
type result struct {
	loss   float64
	grads  []float32
	edges  uint64
	blocks uint64
	scored int
	own    int64 // bytes of sums that the rank sends itself
	trace.Counters
}

// step trains steps of a minibatch on each of so many nodes, and evaluates the seeds of the last.
func (l *sharer) step(device compute.Device, n, depth, node, nodes int) (all []result, err error) {
	pipe, err := NewPipe(l.strategy, pipeline.Options{Depth: depth, Workers: 2})
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	admit := func(i int, m *Minibatch) {
		m.Key = sample.Key{Seed: 3, Epoch: 1, Step: i, Stream: node}
		m.Train = i < n-1
		seeds := seedsOf(i, 40-13*(i%4))
		m.GlobalSeeds = len(seeds)
		m.SetSeeds(seeds[node*len(seeds)/nodes : (node+1)*len(seeds)/nodes])
	}
	err = pipe.Run(context.Background(), n, admit, func(i int, m *Minibatch) error {
		var r result
		if m.Train {
			var phases heard
			t, err := l.strategy.Step(m, true, &phases)
			if err != nil || t.Fault != nil {
				return fmt.Errorf("fault %v, %w", t.Fault, err)
			}
			r.loss, r.grads = t.Stats.Loss, l.grads(device)
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
		r.edges, r.blocks, r.scored = m.Edges, m.Digest, len(m.Scored)
		if sums := m.pushed.mine; sums != nil {
			_, width := l.model.Config.Widths(0)
			r.own = int64(4 * width * sums[0])
		}
		all = append(all, r)
		return nil
	})
	return all, err
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

// steps is what n steps come to on every rank of a grouping, and the bytes that each hands to the
// transport.
func (w *world) steps(g grouping, config nn.Config, apart bool, n, depth int) (
	results [][]result, moved []int64, err error,
) {
	results, moved = make([][]result, g.ranks()), make([]int64, g.ranks())
	err = comm.RunWorld(g.ranks(), func(c comm.Comm) error {
		device := ref.New()
		defer device.Close()
		l, err := w.sharer(c, device, g, config, apart, nil, depth)
		if err != nil {
			return err
		}
		if results[c.Rank()], err = l.step(device, n, depth, c.Rank()/g.perNode,
			g.nodes); err != nil {
			return err
		}
		moved[c.Rank()] = l.moved.Load()
		return l.close()
	})
	return results, moved, err
}

// Ranks that share a minibatch come to the loss and to every gradient of a rank alone, up to
// round-off, with dropout, for every kind of model; together they draw the same edges, compute them
// once, read every feature row once, and fetch each row of another node once; and what they count
// as sent is what the transport was given. Nodes of a rank each come to the bits of data
// parallelism, and one node of all ranks to those of split parallelism. Ranks that hold columns
// come to what ranks do that hold rows, and fetch none.
func TestModesAgree(t *testing.T) {
	const n = 3
	plain := newWorld(t, 8)
	before := mem.Allocated()
	for name, config := range sharedModels() {
		if race.Detector && config.Kind != "gat" && config.Norm != nn.NormBatch &&
			!config.EdgeWeights {
			continue // ranks share the same of every kind
		}
		w := plain
		if config.EdgeWeights {
			w = plain.weighed()
		}
		done := map[grouping][][]result{}
		for _, g := range []grouping{
			{ModeData, 1, 1}, {ModeData, 2, 1}, {ModeData, 4, 1}, {ModeData, 8, 1},
			{ModeSplit, 1, 1}, {ModeSplit, 1, 2}, {ModeSplit, 1, 4}, {ModeSplit, 1, 8},
			{ModeHybrid, 1, 1}, {ModeHybrid, 1, 2}, {ModeHybrid, 1, 8},
			{ModeHybrid, 2, 1}, {ModeHybrid, 2, 2}, {ModeHybrid, 2, 4}, {ModeHybrid, 4, 2},
			{ModePushPull, 1, 1}, {ModePushPull, 2, 1}, {ModePushPull, 4, 1}, {ModePushPull, 8, 1},
		} {
			if g.mode == ModePushPull && !config.Linear() {
				continue // refused: TestModesRefuseByName
			}
			for _, apart := range []bool{false, true} {
				if apart && g.mode == ModeData {
					continue // TestPartitionedSamplersHaveTheBitsOfReplicated
				}
				results, moved, err := w.steps(g, config, apart, n, g.ranks()%3*2)
				if want := done[g.lone()]; err == nil && want != nil {
					err = compareShares(g, results, want, moved)
				}
				if same := done[grouping{ModeSplit, 1, g.perNode}]; err == nil && g.nodes == 1 &&
					same != nil && g.mode != ModePushPull {
					err = sameBits(results, same)
				}
				if err == nil && g.perNode == 1 && g.nodes > 1 && g.mode == ModeHybrid {
					err = sameBits(results, done[g.lone()])
				}
				if err != nil {
					t.Errorf("%s, %v, partitioned %v: %v", name, g, apart, err)
				}
				if before := done[g]; err == nil && apart {
					if err = sameBits(results, before); err != nil {
						t.Errorf("%s, %v: partitioned, not replicated: %v", name, g, err)
					}
				}
				done[g] = results
			}
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// Where a node's ranks pass rows on, a cache that changes leaves the bits as they are: rows that
// are passed on, and those that the rank reads itself, are read before the next minibatch replaces
// them.
func TestRowsOfACacheThatChangesArePassedOn(t *testing.T) {
	const n = 8
	w := newWorld(t, 8)
	for name, config := range map[string]nn.Config{"sage": sharedModels()["sage"],
		"gat": sharedModels()["gat"]} {
		for _, g := range []grouping{{ModeHybrid, 2, 2}, {ModeHybrid, 4, 1}, {ModeHybrid, 2, 4}} {
			plain, _, err := w.steps(g, config, false, n, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range changing {
				if k.ahead > 0 {
					continue // its gate comes before the frontiers
				}
				for _, depth := range []int{0, 3} {
					got := make([][]result, g.ranks())
					err := comm.RunWorld(g.ranks(), func(c comm.Comm) error {
						device := ref.New()
						defer device.Close()
						policy, err := k.make(capacity / 4)
						if err != nil {
							return err
						}
						defer policy.Free()
						l, err := w.sharer(c, device, g, config, false, policy, depth)
						if err != nil {
							return err
						}
						if got[c.Rank()], err = l.step(device, n, depth, c.Rank()/g.perNode,
							g.nodes); err != nil {
							return err
						}
						return l.close()
					})
					if err == nil {
						err = sameBits(got, plain)
					}
					var cached, changed int64
					for r := range got {
						for i := range got[r] {
							cached += got[r][i].Cached
							changed += got[r][i].Evictions + got[r][i].Replacements
						}
					}
					if err != nil || cached == 0 || changed == 0 {
						t.Errorf("%s, %v, %s, depth %d: %d rows of the cache, %d replaced: %v",
							name, g, k.name, depth, cached, changed, err)
					}
				}
			}
		}
	}
}

// Where owners add rows for the ranks of a node, the bits are those without sums, on a topology
// that all hold or none, with a cache that changes or none; fewer bytes travel, and some as sums.
func TestSumsInANodeLeaveTheBits(t *testing.T) {
	const n = 5
	for i, name := range []string{"sage", "sage max", "gcn both weighted", "gin", "sage", "gin"} {
		plain := newWorld(t, 8)
		if plain.wide = i < 4; !plain.wide { // only large groups are worth a sum of float32 numbers
			plain = newWorld(t, 4)
		}
		plain.spec = sample.Neighbours(2, 1, 20)
		config, w := sharedModels()[name], plain
		if config.EdgeWeights {
			w = plain.weighed()
		}
		needs := config.Needs()
		summing := *w
		summing.sums = &exchange.Sums{How: needs.Aggregate, Own: needs.Own,
			Weighted: needs.Weights != nn.NoWeights}
		for _, g := range []grouping{{ModeHybrid, 2, 2}, {ModeHybrid, 4, 1}, {ModeHybrid, 2, 4}} {
			if g.ranks() > len(w.offsets)-1 {
				continue
			}
			rows, _, err := w.steps(g, config, false, n, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range changing {
				if k.ahead > 0 {
					continue // its gate comes before the frontiers
				}
				for _, cached := range []bool{false, true} {
					got := make([][]result, g.ranks())
					err := comm.RunWorld(g.ranks(), func(c comm.Comm) error {
						device := ref.New()
						defer device.Close()
						var policy cache.Policy
						if cached {
							var err error
							if policy, err = k.make(capacity / 4); err != nil {
								return err
							}
							defer policy.Free()
						}
						l, err := summing.sharer(c, device, g, config, !cached, policy, 3)
						if err != nil {
							return err
						}
						if got[c.Rank()], err = l.step(device, n, 3, c.Rank()/g.perNode,
							g.nodes); err != nil {
							return err
						}
						l.strategy.o.Exchange.Free()
						return l.close()
					})
					if err == nil {
						err = sameBits(got, rows)
					}
					var all, before trace.Counters
					for r := range got {
						for i := range got[r] {
							all.Add(got[r][i].Counters)
							before.Add(rows[r][i].Counters)
						}
					}
					if err != nil || all.Sums == 0 || all.RowBytes > before.RowBytes {
						t.Errorf("%s, float32 %v, %v, %s %v: %d rows and %d sums, %d rows "+
							"without: %v", name, w.wide, g, k.name, cached, all.Remote, all.Sums,
							before.Remote, err)
					}
				}
			}
		}
	}
}

// sameBits returns an error unless two runs have the same numbers on every rank.
func sameBits(got, want [][]result) error {
	for r := range want {
		for i := range want[r] {
			g, w := got[r][i], want[r][i]
			if g.loss != w.loss || !slices.Equal(g.grads, w.grads) || g.edges != w.edges ||
				g.blocks != w.blocks {
				return fmt.Errorf("rank %d, step %d: loss %v, blocks %x, gradients\n%v\nwant %v, "+
					"%x\n%v", r, i, g.loss, g.blocks, g.grads, w.loss, w.blocks, w.grads)
			}
		}
	}
	return nil
}

// compareShares compares every rank of a grouping, and the sums over each node, with a rank alone
// for each node.
func compareShares(g grouping, results, want [][]result, moved []int64) error {
	var all trace.Counters
	var own, handed int64
	for node := range g.nodes {
		for i, one := range want[node] {
			var sum result
			for r := range g.perNode {
				got := results[node*g.perNode+r][i]
				if one.grads != nil && (math.Abs(got.loss-one.loss) > 2e-6*math.Abs(one.loss) ||
					!closeTo(got.grads, one.grads)) {
					return fmt.Errorf("rank %d, step %d: loss %v, want %v; gradients\n%v\n%v",
						node*g.perNode+r, i, got.loss, one.loss, got.grads, one.grads)
				}
				sum.edges += got.edges
				sum.loss += got.loss
				sum.scored += got.scored
				sum.own += got.own
				sum.Counters.Add(got.Counters)
			}
			if one.grads == nil && math.Abs(sum.loss-one.loss) > 2e-6*math.Abs(one.loss) {
				return fmt.Errorf("evaluation: loss %v, want %v", sum.loss, one.loss)
			}
			c := sum.Counters
			if sum.edges != one.edges || sum.scored != one.scored || c.Edges != one.Edges {
				return fmt.Errorf("step %d: edges %x, %d of them, %d seeds; want %x, %d, %d", i,
					sum.edges, c.Edges, sum.scored, one.edges, one.Edges, one.scored)
			}
			fetched := one.Remote
			if g.columns() {
				fetched = 0
			}
			if c.Loaded != one.Loaded || c.Remote != fetched {
				return fmt.Errorf("step %d: %+v, want %d rows, %d of other nodes", i, c, one.Loaded,
					fetched)
			}
			all.Add(c)
			own += sum.own
		}
	}
	for _, b := range moved {
		handed += b
	}
	bytes := all.Shuffles.Bytes + all.CountBytes + all.IDBytes + all.Sampling.Bytes + all.RowBytes +
		own
	if handed != bytes || all.Served != all.Remote || all.Shuffles.Bytes != all.Shuffles.Got ||
		all.Sampling.Asked != all.Sampling.Answered {
		return fmt.Errorf("%d bytes counted, %d handed to the transport: %+v", bytes, handed, all)
	}
	return nil
}
