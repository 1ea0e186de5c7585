package nn

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// jumping is jumping knowledge (Xu et al., ICML 2018): the logits follow from the rows of all
// layers, as JumpingKnowledge and the "lin" of the models of PyTorch Geometric have it:
//
//	all_i    = [y_i of layer 0 | ... | y_i of layer L-1]        all [B,L*hidden]
//	most_i   = the largest over the layers, by columns          most [B,hidden], of JumpMax alone
//	logits_i = all_i Wᵀ + b, or most_i Wᵀ + b                   logits [B,out]
//
// The destinations of the last layer are the first rows of every layer. Where layers have equal
// maxima, the first of them gets the gradient.
type jumping struct {
	dev                     compute.Device
	layers, hidden, out, in int  // in is the number of columns that W reads
	rows                    int  // B, the number of rows of the last Output
	max                     bool // take maxima; otherwise rows lie side by side
	w, dw                   compute.Matrix
	bias, dbias             []float32
	// all, overwritten by its gradient once the gradient of W is made
	all             *buffer
	most, dmost     *buffer
	logits, dlogits *buffer
}

func newJumping(s *store, c Config) *jumping {
	return &jumping{dev: s.dev, layers: c.Layers, hidden: c.Hidden, out: c.Out, in: c.jumpWidth(),
		max: c.Jumping == JumpMax,
		all: s.buffer(), most: s.buffer(), dmost: s.buffer(), logits: s.buffer(),
		dlogits: s.buffer()}
}

func (j *jumping) params() []Param {
	return []Param{weight("lin.weight", j.out, j.in), bias("lin.bias", j.out, j.in)}
}

func (j *jumping) bind(values, grads [][]float32) {
	j.w, j.dw = matrix(values[0], j.out, j.in), matrix(grads[0], j.out, j.in)
	j.bias, j.dbias = values[1], grads[1]
}

// reserve makes room for the given number of rows. Outputs and their gradients also get room for
// rows of other ranks, others in number.
func (j *jumping) reserve(rows, others int, train bool) error {
	err := reserveAll(sized{j.all, rows * j.layers * j.hidden},
		sized{j.logits, (rows + others) * j.out})
	if err == nil && j.max {
		err = j.most.reserve(rows * j.hidden)
	}
	if err != nil || !train {
		return err
	}
	if j.max {
		err = j.dmost.reserve(rows * j.hidden)
	}
	if err != nil {
		return err
	}
	return j.dlogits.reserve((rows + others) * j.out)
}

// read returns the rows that the linear map reads.
func (j *jumping) read() compute.Matrix {
	if j.max {
		return j.most.matrix(j.rows, j.hidden)
	}
	return j.rowsOfAll()
}

func (j *jumping) rowsOfAll() compute.Matrix { return j.all.matrix(j.rows, j.layers*j.hidden) }

// forward makes the logits of the first rows of every layer.
func (j *jumping) forward(stages []stage, rows int) compute.Matrix {
	j.rows = rows
	all := j.rowsOfAll()
	for l := range stages {
		j.dev.CopyColumns(all, l*j.hidden, stages[l].y.matrix(rows, j.hidden), 0, j.hidden, false)
	}
	if j.max {
		j.dev.HeadMax(j.read(), all)
	}
	logits := j.logits.matrix(rows, j.out)
	j.dev.Dense(logits, j.dense())
	return logits
}

func (j *jumping) dense() compute.Dense { return compute.Dense{X: j.read(), W: j.w, Bias: j.bias} }

// backward makes the gradients of the parameters and of the rows of all layers, for take.
func (j *jumping) backward(dlogits compute.Matrix) {
	j.dev.DenseBackward(compute.DenseGradients{W: j.dw, Bias: j.dbias}, dlogits, compute.Matrix{},
		j.dense())
	j.dev.Settle() // the gradient overwrites what was read
	if !j.max {
		j.dev.MatMulInput(j.rowsOfAll(), dlogits, j.w, false)
		return
	}
	dmost := j.dmost.matrix(j.rows, j.hidden)
	j.dev.MatMulInput(dmost, dlogits, j.w, false)
	j.dev.HeadMaxBackward(j.rowsOfAll(), dmost, j.rowsOfAll())
}

// take sets the first rows of dy to the gradient of layer l's rows, or adds it.
func (j *jumping) take(dy compute.Matrix, l int, add bool) {
	j.dev.CopyColumns(dy.RowsAt(0, j.rows), 0, j.rowsOfAll(), l*j.hidden, j.hidden, add)
}

// Output turns the rows of the last layer's destinations, as ForwardLayer returned them, into
// logits: they are the logits, unless there is jumping knowledge. All layers have run on the
// minibatch.
func (m *Model) Output(y compute.Matrix) compute.Matrix {
	if m.jump == nil {
		return y
	}
	return m.jump.forward(m.stages, y.Rows)
}

// OutputOf is Output of a model with jumping knowledge for rows of the host: those of layer l are
// layers[l], [rows, Hidden]. It fails only if device memory runs out.
func (m *Model) OutputOf(layers [][]float32, rows int) (compute.Matrix, error) {
	if err := m.ReserveOutput(rows); err != nil {
		return compute.Matrix{}, err
	}
	var scratch []float32
	defer func() { mem.Free(scratch) }()
	for l, x := range layers {
		compute.Store(m.dev, m.stages[l].y.matrix(rows, m.stages[l].out), x, &scratch)
	}
	return m.jump.forward(m.stages, rows), nil
}

// ReserveOutput makes room for OutputOf.
func (m *Model) ReserveOutput(rows int) error {
	err := m.jump.reserve(rows, 0, false)
	for l := range m.stages {
		err = errors.Join(err, m.stages[l].y.reserve(rows*m.stages[l].out))
	}
	if err != nil {
		return fmt.Errorf("the output of %d rows: %w", rows, err)
	}
	return nil
}

// OutputBackward turns the gradient with respect to the logits into that of the last layer's rows.
// With jumping knowledge, BackwardLayer adds the gradients of the other layers' rows.
func (m *Model) OutputBackward(dlogits compute.Matrix) compute.Matrix {
	if m.jump == nil {
		return dlogits
	}
	m.jump.backward(dlogits)
	l := len(m.stages) - 1
	dy := m.lastGradient(&m.inputs[l]).In(m.grad[l%2].data, dlogits.Rows, m.stages[l].out)
	wide := dy
	if dy.BF16 != nil {
		wide = m.own.matrix(dy.Rows, dy.Cols)
	}
	m.jump.take(wide, l, false)
	if m.rounds {
		m.dev.Round(dy, wide)
	}
	return dy
}

// lastGradient returns the type in which the gradient of the last layer's rows is stored; with
// jumping knowledge it has no other term. It is float32 where BackwardLayer adds it to that of the
// rows below after the edges: then it is backpropagated through the activation in place.
func (m *Model) lastGradient(in *Input) compute.Elements {
	l := len(m.stages) - 1
	if !m.rounds || in.Partial || m.stages[l].residual && !m.completes(l, in) {
		return compute.Float32s
	}
	return m.Config.Stored(l, m.stores)
}
