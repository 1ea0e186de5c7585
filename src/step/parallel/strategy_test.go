package parallel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// learner is a rank's training state in these tests.
type learner struct {
	device    *ref.Device
	model     *nn.Model
	gradients *Gradients
	strategy  *Strategy
}

func (l *learner) close() error {
	err := errors.Join(l.strategy.Close(), l.gradients.Close())
	l.model.Close()
	return errors.Join(err, l.device.Close())
}

func newModel(device compute.Device) (*nn.Model, error) {
	return nn.NewModel(device, nn.Config{
		Kind: "sage", Layers: 2, In: cols, Hidden: 4, Out: classes,
		Dropout: 0.5, Norm: nn.NormLayer, Task: task.Multiclass,
	}, 5)
}

// learn makes a rank of data parallelism. If change is not nil, it changes the
// strategy. Collective.
func (w *world) learn(
	c comm.Comm, change func(*Strategy, comm.Comm) (*Strategy, error),
) (*learner, error) {
	l := &learner{device: ref.New()}
	var err error
	if l.model, err = newModel(l.device); err != nil {
		return nil, err
	}
	l.gradients, err = NewGradients(c, l.model.Params, 2, GradientOptions{Device: l.device})
	if err != nil {
		return nil, err
	}
	l.strategy, err = w.data(c, compute.Float32, Options{
		Device: l.device, Model: l.model, Gradients: l.gradients,
		Drawing: Drawing{Sample: sample.Neighbours(4, 3), Labels: w.oneLabel()},
	}, l.model.Needs(), 2)
	if err == nil && change != nil {
		l.strategy, err = change(l.strategy, c)
	}
	return l, err
}

// heard records phases.
type heard []string

func (h *heard) Begin(p trace.Phase) { *h = append(*h, "begin "+p.String()) }
func (h *heard) End(p trace.Phase)   { *h = append(*h, "end "+p.String()) }

// admitted sets the seeds of minibatch i of a rank; some have none. A step has each minibatches.
func admitted(c comm.Comm, each int) func(int, *Minibatch) {
	return func(i int, m *Minibatch) {
		m.Key = sample.Key{Seed: 3, Epoch: 1, Step: i / each, Stream: c.Rank()*each + i%each}
		m.Train, m.GlobalSeeds = true, 30
		m.SetSeeds(seedsOf(c.Rank()+i, 5*((i+c.Rank())%3)))
	}
}

// steps trains and returns the bits of every step's gradients.
func (l *learner) steps(c comm.Comm, n, each, depth int) (all [][]uint32, err error) {
	pipe, err := NewPipe(l.strategy, pipeline.Options{Depth: depth, Workers: 1})
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	err = pipe.Run(context.Background(), n*each, admitted(c, each), func(i int,
		m *Minibatch) error {
		last := i%each == each-1
		var phases heard
		trained, err := l.strategy.Step(m, last, &phases)
		if err != nil {
			return err
		}
		want := []string{"begin forward", "end forward", "begin backward", "end backward"}
		if last {
			want = append(want, "begin sync", "end sync")
		}
		if !slices.Equal(phases, want) || trained.Fault != nil {
			return fmt.Errorf("phases %v, fault %v", phases, trained.Fault)
		}
		if !last {
			return nil
		}
		if got := l.model.Params.Stats(); got != trained.Stats {
			return fmt.Errorf("stats %+v, in the gradients %+v", trained.Stats, got)
		}
		all = append(all, bitsOf(l.model.Params.Grads))
		return nil
	})
	return all, err
}

func bitsOf(x []float32) []uint32 {
	bits := make([]uint32, len(x))
	for i := range x {
		bits[i] = math.Float32bits(x[i])
	}
	return bits
}

// expected computes the gradients of a step without a strategy: the model's own forward and
// backward on every minibatch, added as they are on a rank and then in rank order.
func (w *world) expected(t *testing.T, ranks, step, each int) []uint32 {
	t.Helper()
	var total []float32
	for rank := range ranks {
		var own []float32
		for k := range each {
			err := comm.RunWorld(1, func(c comm.Comm) error {
				l, err := w.learn(c, nil)
				if err != nil {
					return err
				}
				defer l.close()
				var m Minibatch
				defer m.Free()
				admitted(comm.NewWorld(ranks).Rank(rank), each)(step*each+k, &m)
				if err := prepare(l.strategy.Stages(), &m); err != nil {
					return err
				}
				logits, err := l.model.Forward(&m.Batch)
				if err != nil {
					return err
				}
				_, grad := l.model.Loss(&m.Batch, logits)
				l.model.Backward(grad, nil)
				own = added(own, l.model.Params.Grads)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		total = added(total, own)
	}
	return bitsOf(total)
}

// added returns sum + x, in the memory of sum unless that is nil.
func added(sum, x []float32) []float32 {
	if sum == nil {
		return slices.Clone(x)
	}
	for i := range x {
		sum[i] += x[i]
	}
	return sum
}

// A step of data parallelism has the bits of the model's own loops over its layers, summed in rank
// order, whatever the ranks, the minibatches of a step and the depth.
func TestStepHasTheBitsOfTheModel(t *testing.T) {
	const n = 3
	w := newWorld(t, 4)
	before := mem.Allocated()
	for _, ranks := range []int{1, 2, 4} {
		for _, each := range []int{1, 3} {
			var want [n][]uint32
			for s := range want {
				want[s] = w.expected(t, ranks, s, each)
			}
			for _, depth := range []int{0, 2} {
				err := comm.RunWorld(ranks, func(c comm.Comm) error {
					l, err := w.learn(c, nil)
					if err != nil {
						return err
					}
					got, err := l.steps(c, n, each, depth)
					if err != nil {
						return err
					}
					for s := range want {
						if !slices.Equal(got[s], want[s]) {
							return fmt.Errorf("rank %d, step %d: other gradients than the model's",
								c.Rank(), s)
						}
					}
					return l.close()
				})
				if err != nil {
					t.Errorf("%d ranks, %d minibatches a step, depth %d: %v", ranks, each, depth,
						err)
				}
			}
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// talkative answers Draw and Between with additional exchanges, each on its own communicator:
// rounds before the counts, with an ordered stage between them, and between the layers of a step,
// forward and backward.
type talkative struct {
	Draw
	rounds         int
	asks, shuffles comm.Comm
	ordered        int // minibatches that have passed the ordered stage
	said           int // collectives between layers
}

func newTalkative(rounds int) func(*Strategy, comm.Comm) (*Strategy, error) {
	return func(s *Strategy, c comm.Comm) (*Strategy, error) {
		t := &talkative{Draw: s.draw, rounds: rounds}
		s.draw = t
		talk := talking{t}
		s.between = Between{forward: talk.forward, weigh: talk.weigh, backward: talk.backward}
		var err error
		if t.asks, err = c.Dup(); err == nil {
			t.shuffles, err = c.Dup()
		}
		return s, err
	}
}

func (s *talkative) close() error {
	return errors.Join(s.Draw.close(), s.asks.Free(), s.shuffles.Free())
}

// all sends a number to every rank, on c, and checks the numbers received.
func (s *talkative) all(c comm.Comm, number int64) (request, error) {
	ones, send, got := make([]int, c.Size()), make([]int64, c.Size()), make([]int64, c.Size())
	for r := range ones {
		ones[r], send[r] = 1, number
	}
	return told{c.StartAlltoallv(mem.Bytes(send), mem.Bytes(got), ones, ones, 8), number, got}, nil
}

// told is a request that checks that all ranks have sent the same number.
type told struct {
	comm.Request
	number int64
	got    []int64
}

func (t told) Wait() error {
	if err := t.Request.Wait(); err != nil {
		return err
	}
	for r, x := range t.got {
		if x != t.number {
			return fmt.Errorf("rank %d is at %x, this one at %x", r, x, t.number)
		}
	}
	return nil
}

func (s *talkative) stages() []Stage {
	stages := s.Draw.stages()
	for k := range s.rounds {
		stages = append(stages,
			collective(trace.Exchange, fmt.Sprintf("ask %d", k), func(m *Minibatch) (request,
				error) {
				return s.all(s.asks, int64(m.Key.Step)<<32|int64(k))
			}, nil),
			local(trace.Sample, fmt.Sprintf("draw %d", k), func(*Minibatch) error { return nil }))
		if k == s.rounds/2 {
			stages = append(stages, ordered(trace.Plan, "in order", nil, func(m *Minibatch) error {
				if s.ordered++; s.ordered != m.Key.Step+1 {
					return fmt.Errorf("step %d is number %d", m.Key.Step, s.ordered)
				}
				return nil
			}))
		}
	}
	return stages
}

// talking exchanges between two layers of a step.
type talking struct{ *talkative }

func (t talking) say(m *Minibatch, what int) error {
	t.said++
	r, err := t.all(t.shuffles, int64(m.Key.Step)<<32|int64(what))
	return errors.Join(err, r.Wait())
}

func (t talking) forward(m *Minibatch, l int, _ *nn.Input, _ Phases) error { return t.say(m, l) }

func (t talking) weigh(m *Minibatch, l int, _ compute.Matrix, _ Phases) error {
	return t.say(m, -1-l)
}

// backward exchanges while the gradients of the layer are summed.
func (t talking) backward(m *Minibatch, l int, grad compute.Matrix, _ Phases) (compute.Matrix,
	error) {
	return grad, t.say(m, -9-l)
}

// A strategy may have its own rounds before the counts (a partitioned topology needs two a layer),
// ordered decisions between them, and exchanges between the layers of a step (as split parallelism
// has), while gradients are summed: nothing hangs, all collectives match, and the bits are the
// same.
func TestAStrategyMayExchangeAnywhere(t *testing.T) {
	const n = 6
	w := newWorld(t, 4)
	for _, ranks := range []int{2, 4} {
		for _, rounds := range []int{1, 4} {
			for _, depth := range []int{0, 1, 2, 5} {
				err := comm.RunWorld(ranks, func(c comm.Comm) error {
					plain, err := w.learn(c, nil)
					if err != nil {
						return err
					}
					want, err := plain.steps(c, n, 1, depth)
					if err := errors.Join(err, plain.close()); err != nil {
						return err
					}
					l, err := w.learn(c, newTalkative(rounds))
					if err != nil {
						return err
					}
					got, err := l.steps(c, n, 1, depth)
					if err != nil {
						return err
					}
					s := l.strategy.draw.(*talkative)
					if s.said != n*7 || s.ordered != n {
						return fmt.Errorf("%d exchanges between layers, %d minibatches in order",
							s.said, s.ordered)
					}
					for k := range want {
						if !slices.Equal(got[k], want[k]) {
							return fmt.Errorf("step %d: other gradients than without the exchanges",
								k)
						}
					}
					return l.close()
				})
				if err != nil {
					t.Errorf("%d ranks, %d rounds, depth %d: %v", ranks, rounds, depth, err)
				}
			}
		}
	}
}

// Forward gives the output of the model, of all layers or of one, and only a strategy with
// gradients trains.
func TestForwardOfAStrategy(t *testing.T) {
	w := newWorld(t, 1)
	err := comm.RunWorld(1, func(c comm.Comm) error {
		l, err := w.learn(c, nil)
		if err != nil {
			return err
		}
		defer l.close()
		var m Minibatch
		defer m.Free()
		m.Key, m.GlobalSeeds = sample.Key{Seed: 3}, 9
		m.SetSeeds(seedsOf(0, 9))
		if err := prepare(l.strategy.Stages(), &m); err != nil {
			return err
		}
		y, err := l.strategy.Forward(&m)
		if err != nil {
			return err
		}
		got := slices.Clone(y.Data)
		want, err := l.model.Forward(&m.Batch)
		if err != nil || !slices.Equal(got, want.Data) || !slices.Equal(m.Scored, m.Seeds) {
			return fmt.Errorf("logits %v of %v, want %v of %v, %v", got, m.Scored, want.Data,
				m.Seeds, err)
		}
		o := l.strategy.o
		o.Sample, o.Gradients, o.Labels = sample.Neighbours(sample.All), nil, task.Labels{}
		layer, err := NewLayer(o, 0)
		if err != nil {
			return err
		}
		defer layer.Close()
		var one Minibatch
		defer one.Free()
		one.SetSeeds(seedsOf(0, 9))
		if err := prepare(layer.Stages(), &one); err != nil {
			return err
		}
		if y, err = layer.Forward(&one); err != nil {
			return err
		}
		got = slices.Clone(y.Data)
		in := one.Batch.Input(0, compute.Matrix{})
		want, err = l.model.ForwardLayer(0, &in)
		if err != nil || y.Rows != 9 || y.Cols != 4 || !slices.Equal(got, want.Data) {
			return fmt.Errorf("layer 0 gives %v, want %v, %v", y, want, err)
		}
		if _, err := layer.Step(&one, true, new(heard)); !errors.Is(err, errUntrained) {
			return fmt.Errorf("a step without gradients: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// If the loss is not finite, the rank that computed it names the first place that was not.
func TestStepFindsTheFault(t *testing.T) {
	w := newWorld(t, 1)
	err := comm.RunWorld(1, func(c comm.Comm) error {
		l, err := w.learn(c, nil)
		if err != nil {
			return err
		}
		defer l.close()
		var m Minibatch
		defer m.Free()
		admitted(c, 1)(1, &m)
		if err := prepare(l.strategy.Stages(), &m); err != nil {
			return err
		}
		m.Batch.Own.Data[0] = float32(math.NaN())
		trained, err := l.strategy.Step(&m, true, new(heard))
		const want = "features of vertex"
		if err != nil || trained.Fault == nil || !strings.Contains(trained.Fault.What, want) {
			return fmt.Errorf("fault %+v, %v", trained.Fault, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestUnknownMode(t *testing.T) {
	_, err := New("guess", Options{})
	if err == nil || !strings.Contains(err.Error(),
		`parallel.mode "guess" is unknown; choose one of [data split `) {
		t.Errorf("an unknown mode: %v", err)
	}
}

// Counters returns the counters of the minibatch's exchange; rows that do not add up are an error.
func TestCountersOfAMinibatch(t *testing.T) {
	d := &Strategy{rows: &fetched{readers: frontier{}}}
	var m Minibatch
	m.Fetch.Counters = trace.Counters{Frontier: 2, Local: 1, Remote: 1, Collectives: 3}
	m.Sampled.Frontier = make([]graph.VertexID, 2)
	if c, err := d.Counters(&m); err != nil || c.Collectives != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	m.Fetch.Remote = 2
	if _, err := d.Counters(&m); err == nil ||
		!strings.Contains(err.Error(), "rows do not add up") {
		t.Errorf("three rows for two vertices: %v", err)
	}
}
