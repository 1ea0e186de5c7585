package nn

import (
	"fmt"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// Batch is one minibatch as a model reads it. All matrices are in device memory. The caller owns
// everything in a Batch and may reuse it after the step. A rank without seeds passes a Batch of
// empty hops. Every kernel then gets empty arrays, and the gradients are zero.
type Batch struct {
	// Hops[l] is the topology that layer l works on. The destinations of a hop are the sources of
	// the next one, and the destinations of the last hop are the seeds. If a model does not read
	// neighbours (Needs.Aggregate and Needs.Sources are unset), every hop has just the seeds.
	Hops []Hop

	// The input rows that Model.Needs asks for. X may be given instead of Own and Aggregate;
	// inference with all neighbours does so.
	X, Own, Aggregate compute.Matrix
	// The input rows of each vertex type, in the order of types. On a graph with types, Types is
	// given instead of X.
	Types []compute.Matrix

	Sparse Sparse // sparse rows, given instead of Own and Aggregate

	Labels []byte // labels of the seeds, in the form of the task

	// GlobalSeeds is the number of seeds of the minibatch over all ranks that share it. Losses and
	// gradients are divided by this number. So their sum over ranks is the mean over the seeds of
	// all ranks, however the seeds are distributed.
	GlobalSeeds int

	Train bool // apply dropout, and keep what Backward will read
	// whether Backward also computes the gradient of X, because features are trained
	InputGradient bool
}

// Input returns the input of layer l. For layer 0 this has the input rows of the minibatch. For
// other layers it has x, the output of layer l-1, with a row for each source of the hop. A caller
// that runs the layers one by one may exchange rows of x with other ranks first.
func (b *Batch) Input(l int, x compute.Matrix) Input {
	in := Input{Hop: b.Hops[l], X: x, Train: b.Train, Gradient: b.Train &&
		(l > 0 || b.InputGradient)}
	if l == 0 {
		in.X, in.Own, in.Aggregate, in.Types = b.X, b.Own, b.Aggregate, b.Types
		in.Sparse = b.Sparse
		in.Gradient = b.Train && !in.Folded && (b.InputGradient || len(b.Types) > 0)
	}
	return in
}

// Forward runs all layers and returns the logits, a matrix [seeds, Out]. It fails only if device
// memory runs out.
func (m *Model) Forward(b *Batch) (compute.Matrix, error) {
	if len(b.Hops) != len(m.stages) {
		panic(fmt.Sprintf("nn: minibatch has %d hops, but a model of %d layers needs one hop for "+
			"each layer", len(b.Hops),
			len(m.stages)))
	}
	var x compute.Matrix
	for l := range m.stages {
		in := &m.inputs[l]
		*in = b.Input(l, x)
		var err error
		if x, err = m.ForwardLayer(l, in); err != nil {
			return x, err
		}
	}
	return m.Output(x), nil
}

// Loss returns this rank's share of the loss and of the metric counts. In training it also returns
// the gradient with respect to the logits, and writes its share of loss and counts into the header
// of Params.Grads. Waits for the device.
func (m *Model) Loss(b *Batch, logits compute.Matrix) (task.Stats, compute.Matrix) {
	var dlogits compute.Matrix
	loss := m.task.Minibatch
	if b.Train {
		loss, dlogits = m.loss, m.dlogits(logits)
	}
	s := loss(m.dev, dlogits, logits, b.Labels, b.GlobalSeeds)
	if b.Train {
		m.setStatistics()
		m.Params.setStats(s)
	}
	return s, dlogits
}

// dlogits returns the memory of the gradient with respect to the logits.
func (m *Model) dlogits(logits compute.Matrix) compute.Matrix {
	of := m.grad[(len(m.stages)-1)%2]
	if m.jump != nil {
		of = m.jump.dlogits
	}
	return of.matrix(logits.Rows, logits.Cols)
}

// Backward runs the backward pass of all layers, from the last layer to the first. The argument
// `dlogits` is the gradient that Loss returned; Backward overwrites it. After layer l it calls the
// function ready with l, unless ready is nil. Once the device has finished the work queued until
// then, the layer's bucket of gradients may be sent. If b.InputGradient is set, Backward returns
// the gradient with respect to X.
func (m *Model) Backward(dlogits compute.Matrix, ready func(l int)) (dx compute.Matrix) {
	dx = m.OutputBackward(dlogits)
	for l := len(m.stages) - 1; l >= 0; l-- {
		// BackwardLayer fails only in Gather, which is not called here because this rank has all
		// rows of the minibatch.
		dx, _ = m.BackwardLayer(l, &m.inputs[l], dx)
		if ready != nil {
			ready(l)
		}
	}
	return dx
}
