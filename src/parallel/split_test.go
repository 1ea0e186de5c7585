package parallel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/exchange"
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

// counting counts what is handed to the transport by all-to-alls, on all communicators made of it.
type counting struct {
	comm.Comm
	bytes *int64
}

func (c counting) StartAlltoallv(send, recv []byte, out, in []int, width int) comm.Request {
	for _, n := range out {
		*c.bytes += int64(n * width)
	}
	return c.Comm.StartAlltoallv(send, recv, out, in, width)
}

func (c counting) Dup() (comm.Comm, error) {
	made, err := c.Comm.Dup()
	return counting{made, c.bytes}, err
}

// sharer is a rank that trains in some mode.
type sharer struct {
	learner
	exchanged comm.Comm
	moved     *int64 // bytes of all-to-alls, without those of gradients
}

func (w *world) sharer(c comm.Comm, mode string, config nn.Config, apart bool) (*sharer, error) {
	l := &sharer{learner: learner{device: ref.New()}, moved: new(int64)}
	var err error
	if l.model, err = nn.NewModel(l.device, config, 5); err != nil {
		return nil, err
	}
	if l.gradients, err = NewGradients(c, l.model.Params, config.Layers,
		GradientOptions{Device: l.device}); err != nil {
		return nil, err
	}
	counted := counting{c, l.moved}
	if l.exchanged, err = counted.Dup(); err != nil {
		return nil, err
	}
	per := (len(w.offsets) - 1) / c.Size()
	x, err := exchange.New(l.exchanged, exchange.Options{
		Offsets: w.offsets, Tables: w.tables(c.Rank(), per, compute.Float16),
		Cols: cols, Type: compute.Float16, Host: ref.Host{},
	})
	if err != nil {
		return nil, err
	}
	o := Options{
		Comm: counted, Topology: &w.topology, MaxSeeds: 64, Exchange: x, Cols: cols,
		Host: ref.Host{}, Device: l.device, Model: l.model, Gradients: l.gradients,
		Labels: w.labels, Workers: 2, Partitioned: apart,
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

func (l *sharer) close() error { return errors.Join(l.learner.close(), l.exchanged.Free()) }

// result is what a step comes to on a rank.
type result struct {
	loss   float64
	grads  []float32
	edges  uint64
	scored int
	trace.Counters
}

// step trains minibatches that all ranks share, and evaluates the last one's seeds.
func (l *sharer) step(n, depth int) (all []result, err error) {
	pipe, err := NewPipe(l.strategy, pipeline.Options{Depth: depth, Workers: 2})
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	admit := func(i int, m *Minibatch) {
		m.Key = sample.Key{Seed: 3, Epoch: 1, Step: i}
		m.Train = i < n-1
		m.SetSeeds(seedsOf(i, 40-13*i))
		m.GlobalSeeds = len(m.Seeds)
	}
	err = pipe.Run(context.Background(), n, admit, func(i int, m *Minibatch) error {
		var r result
		if m.Train {
			var phases heard
			t, err := l.strategy.Step(m, true, &phases)
			if err != nil || t.Fault != nil {
				return fmt.Errorf("fault %v, %w", t.Fault, err)
			}
			r.loss, r.grads = t.Stats.Loss, slices.Clone(l.model.Params.Grads)
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

// Ranks that share a minibatch come to the loss and to every gradient of a rank alone, up to
// round-off, with dropout, for every kind of model; together they draw the same edges, compute them
// once, and read every feature row once; and what they count as sent is what the transport was
// given.
func TestSplitIsOneRank(t *testing.T) {
	const n = 3
	plain := newWorld(t, 8)
	before := mem.Allocated()
	for name, config := range sharedModels() {
		w := plain
		if config.EdgeWeights {
			w = plain.weighed()
		}
		var want []result
		err := comm.RunWorld(1, func(c comm.Comm) (err error) {
			l, err := w.sharer(c, ModeData, config, false)
			if err != nil {
				return err
			}
			if want, err = l.step(n, 0); err != nil {
				return err
			}
			return l.close()
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, ranks := range []int{1, 2, 4, 8} {
			for _, apart := range []bool{false, true} {
				if apart && config.EdgeWeights {
					continue // ranks do not send each other weights of edges: package job
				}
				results := make([][]result, ranks)
				moved := make([]int64, ranks)
				err := comm.RunWorld(ranks, func(c comm.Comm) error {
					l, err := w.sharer(c, ModeSplit, config, apart)
					if err != nil {
						return err
					}
					if results[c.Rank()], err = l.step(n, ranks%3*2); err != nil {
						return err
					}
					moved[c.Rank()] = *l.moved
					return l.close()
				})
				if err == nil {
					err = compareShares(results, want, moved)
				}
				if err != nil {
					t.Errorf("%s, %d ranks, partitioned %v: %v", name, ranks, apart, err)
				}
			}
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

func compareShares(results [][]result, want []result, moved []int64) error {
	var bytes, handed int64
	for i, one := range want {
		var sum result
		for r := range results {
			got := results[r][i]
			if one.grads != nil && (math.Abs(got.loss-one.loss) > 2e-6*math.Abs(one.loss) ||
				!closeTo(got.grads, one.grads)) {
				return fmt.Errorf("rank %d, step %d: loss %v, want %v; gradients\n%v\n%v", r, i,
					got.loss, one.loss, got.grads, one.grads)
			}
			sum.edges += got.edges
			sum.loss += got.loss
			sum.scored += got.scored
			sum.Counters.Add(got.Counters)
		}
		if one.grads == nil && math.Abs(sum.loss-one.loss) > 2e-6*math.Abs(one.loss) {
			return fmt.Errorf("evaluation: loss %v, want %v", sum.loss, one.loss)
		}
		c := sum.Counters
		if sum.edges != one.edges || sum.scored != one.scored || c.Edges != one.Edges {
			return fmt.Errorf("step %d: edges %x, %d of them, %d seeds; want %x, %d, %d", i, sum.edges,
				c.Edges, sum.scored, one.edges, one.Edges, one.scored)
		}
		if c.Loaded != one.Loaded || c.Remote != 0 || c.Shuffle.Bytes != c.Shuffle.Got ||
			c.Sampling.Asked != c.Sampling.Answered {
			return fmt.Errorf("step %d: %+v, want %d rows", i, c, one.Loaded)
		}
		bytes += c.Shuffle.Bytes + c.CountBytes + c.IDBytes + c.Sampling.Bytes
	}
	for _, b := range moved {
		handed += b
	}
	if handed != bytes {
		return fmt.Errorf("%d bytes counted, %d handed to the transport", bytes, handed)
	}
	return nil
}

// What has no meaning where ranks share minibatches is refused by name, on all of them.
func TestSplitRefusesByName(t *testing.T) {
	w := newWorld(t, 2)
	refused := func(config nn.Config, want string) {
		t.Helper()
		err := comm.RunWorld(2, func(c comm.Comm) error {
			if _, err := w.sharer(c, ModeSplit, config, false); err == nil ||
				!strings.Contains(err.Error(), want) {
				return fmt.Errorf("%v, want %q", err, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	config := sharedModels()["sage"]
	config.Norm = nn.NormBatch
	refused(config, "model.norm batch")
}
