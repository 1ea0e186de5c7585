package parallel

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/base/fault"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
)

// Strategy runs steps: it prepares minibatches by stages, runs the layers on them and sums the
// gradients. It has four parts, each of which answers one question; a mode chooses them:
//
//	Draw     which blocks follow from the seeds
//	Rows     where the rows that the first layer reads come from
//	Between  what crosses ranks between two layers
//	sum      how gradients are added: Gradients
//
// All ranks have the same strategy and call it in the same order; a Pipe calls Stages and Release.
//
//	Pipe      prepare:  Draw, Rows ── local, ordered, collective ──> Minibatch
//	caller    consume:  Step or Forward, with Between, then Counters
//	Pipe                Release
//
// Step and Forward are called on one goroutine, while stages of later minibatches run. They may
// start collectives on communicators of their own, as the proof in docs/design/03-tick-schedule.md
// allows.
type Strategy struct {
	o       Options
	needs   nn.Needs // what the first layer that runs needs
	first   int      // index of the first layer of the model that runs
	layers  int      // number of layers that run
	output  bool     // whether Model.Output follows the layers
	inputs  []nn.Input
	draw    Draw
	rows    Rows
	between Between
	landing landing
	queue   *stepQueue // nil if the host waits in every step
	drawsOn DrawnOn
}

// Draw makes the blocks of minibatches, from the seeds on.
type Draw interface {
	// stages returns the first stages of a minibatch.
	stages() []Stage
	// Bytes returns the memory of the samplers. No sampler may be drawing.
	Bytes() int64
	// close frees everything. No sampler may be drawing.
	close() error
}

// Rows finds the rows that the first layer reads, and makes the layer's inputs from them.
type Rows interface {
	// stages returns the stages after those of Draw, up to the batch of the model.
	stages() []Stage
	// counters returns the rows and collectives of a minibatch, and an error, which means a bug,
	// if rows do not add up.
	counters(*Minibatch) (trace.Counters, error)
	// release takes back buffers of a consumed minibatch.
	release(*Minibatch)
	// bytes returns the memory of the exchange, and the memory of idle buffers for minibatches.
	bytes() (exchange, idle int64)
	close() error
}

// Between is what crosses ranks between two layers of a step. A nil field means that nothing does:
// each rank runs the layers on minibatches of its own.
type Between struct {
	// forward completes what layer l reads. If l is the number of layers, it completes what the
	// loss reads.
	forward func(m *Minibatch, l int, in *nn.Input, phases Phases) error
	// weigh completes the weight gradients of layer l before they are summed over the ranks. The
	// argument `grad` is the gradient of the layer's input, as BackwardLayer returns it.
	weigh func(m *Minibatch, l int, grad compute.Matrix, phases Phases) error
	// end waits for what weigh has begun but not waited for. If the step sums gradients over ranks,
	// these sums have begun before.
	end func(m *Minibatch, phases Phases) error
	// backward takes the gradient with respect to the input of layer l > 0. It returns, in the same
	// memory, the gradient with respect to what this rank has computed in the layer below.
	backward func(m *Minibatch, l int, grad compute.Matrix, phases Phases) (compute.Matrix, error)
	carries  carries
}

// carries does the work of carrying rows between layers.
type carries interface {
	// arrived returns an error if rows that should have crossed so far have not arrived. Call it
	// once kernels are done.
	arrived() error
	way() Shuffling
	// bytes returns the host memory: allocated by package mem, or pinned.
	bytes() (allocated, pinned int64)
	close() error
}

func (b *Between) arrived() error {
	if b.carries == nil {
		return nil
	}
	return b.carries.arrived()
}

func (b *Between) close() error {
	if b.carries == nil {
		return nil
	}
	return b.carries.close()
}

// newStrategy makes everything but the parts that a mode chooses. The argument `needs` is what the
// first layer needs.
func newStrategy(o Options, needs nn.Needs, first, layers int) *Strategy {
	return &Strategy{o: o, needs: needs, first: first, layers: layers,
		inputs: make([]nn.Input, layers), landing: newLanding(&o)}
}

// bound tells the landing how large inputs may become.
func (s *Strategy) bound() {
	if p, ok := s.landing.(*stagingPool); ok {
		p.limits, p.alone = limitsOf(&s.o), s.o.Comm.Size() == 1
		p.most = mostPinned / max(1, s.o.Here) / (p.depth + 1)
	}
}

// closeAfter frees the parts of a strategy that were made before the next one failed with err.
func (s *Strategy) closeAfter(err error) error {
	if s.draw != nil {
		err = errors.Join(err, s.draw.close())
	}
	if s.rows != nil {
		err = errors.Join(err, s.rows.close())
	}
	return errors.Join(err, s.queue.close(), s.between.close(), s.landing.close())
}

// Close frees everything. No stage may be running. Collective.
func (s *Strategy) Close() error {
	return errors.Join(s.queue.close(), s.draw.close(), s.between.close(), s.rows.close(),
		s.landing.close())
}

// Stages returns the stages that prepare a minibatch, from its seeds to the inputs of Step and
// Forward, in order. Several pipelines may run the stages of one strategy, one at a time.
func (s *Strategy) Stages() []Stage { return append(s.draw.stages(), s.rows.stages()...) }

// Release takes back the strategy's buffers from a consumed minibatch. m.Batch must not be read
// after it.
func (s *Strategy) Release(m *Minibatch) error {
	err := s.landing.release(m)
	s.rows.release(m)
	return err
}

// Shuffling returns how rows travel between layers; "" if none do.
func (s *Strategy) Shuffling() Shuffling {
	if s.between.carries == nil {
		return ""
	}
	return s.between.carries.way()
}

// Memory returns the strategy's memory besides the minibatches: allocated by package mem, and
// pinned for a device. No stage may be running.
func (s *Strategy) Memory() (allocated, pinned trace.Memory) {
	exchange, idle := s.rows.bytes()
	var moving, pinnedMoving int64
	if s.between.carries != nil {
		moving, pinnedMoving = s.between.carries.bytes()
	}
	allocated = trace.Memory{
		{Name: trace.MemSamplers, Bytes: s.draw.Bytes() + exchange},
		{Name: trace.MemMinibatches, Bytes: idle},
		{Name: trace.MemActivations, Bytes: moving},
	}
	ofMinibatches := s.landing.pinned()
	if d, ok := s.draw.(*deviceDraws); ok {
		ofMinibatches += d.pinned()
	}
	return allocated, trace.Memory{
		{Name: trace.MemMinibatches, Bytes: ofMinibatches},
		{Name: trace.MemActivations, Bytes: pinnedMoving},
	}
}

// PinnedGrowths returns how often more memory was pinned for training minibatches than at first. No
// stage may be running.
func (s *Strategy) PinnedGrowths() int { return s.landing.growths() }

// Counters returns this rank's rows and collectives for a minibatch, complete after Step. It
// returns an error, which means a bug, if rows do not add up.
func (s *Strategy) Counters(m *Minibatch) (trace.Counters, error) {
	c, err := s.rows.counters(m)
	if c.Edges = int64(m.Sampled.NumEdges()); m.card.drawn != nil {
		c.Edges = int64(m.card.drawn.NumEdges())
	}
	c.Sampling = m.asked
	c.Add(trace.Counters{Shuffles: m.moved})
	c.Collectives += c.Sampling.Collectives + c.Shuffles.Collectives
	return c, err
}

// Forward returns the model's output [len(m.Scored), width] for a minibatch that is not trained, in
// device memory. It is valid until the next Forward or Step.
func (s *Strategy) Forward(m *Minibatch) (compute.Matrix, error) {
	if err := s.landing.receive(m); err != nil {
		return compute.Matrix{}, err
	}
	y, err := s.forward(m, unheard{})
	if err == nil {
		err = s.between.arrived()
	}
	return y, err
}

// forward runs the layers one by one, from the input rows to the output of the last. A strategy
// without layers returns the aggregates that the layers would read.
func (s *Strategy) forward(m *Minibatch, phases Phases) (compute.Matrix, error) {
	x := m.Batch.Aggregate
	for i := range s.layers {
		in := &s.inputs[i]
		*in = m.Batch.Input(i, x)
		err := s.complete(m, i, in, phases)
		if err != nil {
			return x, err
		}
		if x, err = s.o.Model.ForwardLayer(s.first+i, in); err != nil {
			return x, err
		}
	}
	if s.output {
		x = s.o.Model.Output(x)
	}
	return x, nil
}

// complete receives what a layer or the loss reads from other ranks.
func (s *Strategy) complete(m *Minibatch, l int, in *nn.Input, phases Phases) error {
	if s.between.forward == nil {
		return nil
	}
	return s.between.forward(m, l, in, phases)
}

// giveBack sends gradients of a layer's input to the ranks whose rows the function `complete` has
// received. It returns the gradient with respect to what this rank has computed in the layer below.
func (s *Strategy) giveBack(m *Minibatch, l int, grad compute.Matrix,
	phases Phases) (compute.Matrix,
	error) {
	if s.between.backward == nil {
		return grad, nil
	}
	return s.between.backward(m, l, grad, phases)
}

// errUntrained is the error of Step in a strategy without Gradients.
var errUntrained = errors.New("this strategy has no gradients: it can only evaluate")

// Step runs forward, loss and backward on a minibatch. A step has one or several minibatches on a
// rank. For the last of them, `endsStep` is true, and Step returns after the gradients have been
// summed over all minibatches and ranks of the step. It reports its phases to `phases`. An error
// ends the job.
func (s *Strategy) Step(m *Minibatch, endsStep bool, phases Phases) (t Trained, err error) {
	model, sums := s.o.Model, s.o.Gradients
	if sums == nil {
		return t, errUntrained
	}
	if err := s.landing.receive(m); err != nil {
		return t, err
	}
	s.spoil(m)
	phases.Begin(trace.Forward)
	logits, err := s.forward(m, phases)
	if err != nil {
		return t, err
	}
	rated := nn.Input{X: logits} // scoring links also reads embeddings of other ranks
	if err := s.complete(m, s.layers, &rated, phases); err != nil {
		return t, err
	}
	share, grad := model.Loss(&m.Batch, rated.X)
	if !nn.Finite([]float32{float32(share.Loss)}) {
		f := model.FirstFault()
		t.Fault = &f
	}
	phases.End(trace.Forward)
	phases.Begin(trace.Backward)
	if err := s.backward(m, grad, endsStep, phases); err != nil {
		return t, err
	}
	// A GPU may still be computing. Sync waits for the sums of gradients only if rows between
	// layers travel in the same queue (direct).
	if err := errors.Join(s.o.Device.Sync(), s.between.arrived()); err != nil {
		return t, err
	}
	phases.End(trace.Backward)
	if endsStep {
		t.Stats, err = s.sum(m, phases)
	}
	return t, err
}

// backward runs the layers backward, from the gradient with respect to the logits. If last is set,
// it starts the sums of the weight gradients; otherwise it holds the gradients.
func (s *Strategy) backward(m *Minibatch, grad compute.Matrix, last bool,
	phases Phases) (err error) {
	model, sums := s.o.Model, s.o.Gradients
	if grad, err = s.giveBack(m, s.layers, grad, phases); err != nil {
		return err
	}
	grad = model.OutputBackward(grad)
	for l := s.layers - 1; l >= 0; l-- {
		if grad, err = model.BackwardLayer(l, &s.inputs[l], grad); err != nil {
			return err
		}
		if s.between.weigh != nil {
			if err = s.between.weigh(m, l, grad, phases); err != nil {
				return err
			}
		}
		if last {
			sums.Start(l)
		}
		if l > 0 {
			if grad, err = s.giveBack(m, l, grad, phases); err != nil {
				return err
			}
		}
	}
	if !last {
		sums.Hold()
	}
	if s.between.end != nil {
		return s.between.end(m, phases)
	}
	return nil
}

// sum waits for the sums of a step's gradients and returns the step's loss and counts over all
// ranks. All these sums must have been started.
func (s *Strategy) sum(m *Minibatch, phases Phases) (task.Stats, error) {
	phases.Begin(trace.Sync)
	err := fault.At(fault.Allreduce, s.o.Comm.Rank(), m.Key.Epoch, m.Key.Step)
	if err != nil {
		return task.Stats{}, fmt.Errorf("step %d: %w", m.Key.Step, err)
	}
	if err := s.o.Gradients.Wait(); err != nil {
		return task.Stats{}, err
	}
	phases.End(trace.Sync)
	return s.o.Model.Params.Stats(), nil
}

// spoil lets tests put a NaN into the dense input of a training minibatch, in whichever array the
// model reads.
func (s *Strategy) spoil(m *Minibatch) {
	b := &m.Batch
	for _, input := range append([]compute.Matrix{b.Own, b.Aggregate, b.X}, b.Types...) {
		memory := input.Memory()
		if len(memory) == 0 {
			continue
		}
		if fault.NaN(fault.Loss, s.o.Comm.Rank(), m.Key.Epoch, m.Key.Step) {
			mine := input.RowsAt(m.pushed.first, input.Rows)
			s.o.Device.Upload(mine.Memory()[:1], []float32{float32(math.NaN())})
		}
		return
	}
}
