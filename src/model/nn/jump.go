package nn

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// jumping is jumping knowledge (Xu et al., ICML 2018). It computes the logits from the rows of all
// layers. In PyTorch Geometric, JumpingKnowledge and the linear map "lin" of a model do the same:
//
//	all_i    = [y_i of layer 0 | ... | y_i of layer L-1]        all [B,L*hidden]
//	most_i   = maximum over the layers, by columns          most [B,hidden], only for JumpMax
//	logits_i = all_i Wᵀ + b, or most_i Wᵀ + b                   logits [B,out]
//
// The destinations of the last layer are the first rows of every layer. If several layers have the
// same maximum, the first of them gets the gradient.
type jumping struct {
	dev compute.Device
	// the field in is the number of columns of W
	layers, hidden, out, in int
	rows                    int  // B, the number of rows of the last Output
	max                     bool // whether maxima are taken; otherwise rows are put side by side
	w, dw                   compute.Matrix
	bias, dbias             []float32
	// The matrix all. When the gradient of W has been computed, the gradient of all overwrites it.
	all             *buffer
	most, dmost     *buffer
	logits, dlogits *buffer
}

func newJumping(s *store, c Config) *jumping {
	return &jumping{dev: s.dev, layers: c.Layers, hidden: c.Hidden, out: c.Out, in: c.JumpWidth(),
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

// reserve makes room for the given number of rows. The logits and their gradients also get room for
// the rows that other ranks have; there are `others` such rows.
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

// read returns the rows to which the linear map is applied.
func (j *jumping) read() compute.Matrix {
	if j.max {
		return j.most.matrix(j.rows, j.hidden)
	}
	return j.rowsOfAll()
}

func (j *jumping) rowsOfAll() compute.Matrix { return j.all.matrix(j.rows, j.layers*j.hidden) }

// forward computes the logits, from the first rows of the output of every layer.
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

// backward computes the gradients of the parameters and of the rows of all layers. After it, the
// method take returns the gradient of the rows of a layer.
func (j *jumping) backward(dlogits compute.Matrix) {
	j.dev.DenseBackward(compute.DenseGradients{W: j.dw, Bias: j.dbias}, dlogits, compute.Matrix{},
		j.dense())
	j.dev.Settle() // the gradient overwrites rows that kernels in the device's queue may still read
	if !j.max {
		j.dev.MatMulInput(j.rowsOfAll(), dlogits, j.w, false)
		return
	}
	dmost := j.dmost.matrix(j.rows, j.hidden)
	j.dev.MatMulInput(dmost, dlogits, j.w, false)
	j.dev.HeadMaxBackward(j.rowsOfAll(), dmost, j.rowsOfAll())
}

// take sets the first rows of dy to the gradient of layer l's rows. If add is true, it adds the
// gradient to them instead.
func (j *jumping) take(dy compute.Matrix, l int, add bool) {
	j.dev.CopyColumns(dy.RowsAt(0, j.rows), 0, j.rowsOfAll(), l*j.hidden, j.hidden, add)
}

// Output returns the logits, given the rows y that ForwardLayer returned for the last layer.
// Without jumping knowledge the logits are y itself. All layers must have run on the minibatch.
func (m *Model) Output(y compute.Matrix) compute.Matrix {
	if m.jump == nil {
		return y
	}
	return m.jump.forward(m.stages, y.Rows)
}

// OutputOf does what Output does, for rows on the host, in a model with jumping knowledge. The
// matrix layers[l] [rows, Hidden] has the rows of layer l. It fails only if device memory runs out.
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

// OutputBackward computes the gradient of the last layer's rows from the gradient with respect to
// the logits. With jumping knowledge, the rows of the other layers get a gradient too, which
// BackwardLayer adds.
func (m *Model) OutputBackward(dlogits compute.Matrix) compute.Matrix {
	if m.jump == nil {
		return dlogits
	}
	m.jump.backward(dlogits)
	l := len(m.stages) - 1
	dy := m.lastGradient(&m.inputs[l]).MatrixIn(m.grad[l%2].data, dlogits.Rows, m.stages[l].out)
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

// lastGradient returns the type in which jumping knowledge stores the gradient of the last layer's
// rows. This gradient has no other terms. The type is float32 if the layer is residual and
// BackwardLayer adds this gradient to the gradient of layer l-1 after the terms of edges. In this
// case the gradient is first backpropagated through the activation in place.
func (m *Model) lastGradient(in *Input) compute.Elements {
	l := len(m.stages) - 1
	if !m.rounds || in.Partial || m.stages[l].residual && !m.completes(l, in) {
		return compute.Float32s
	}
	return m.Config.Stored(l, m.stores)
}
