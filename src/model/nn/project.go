package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// projection maps the rows of all vertex types to the same width, by a linear map for each type.
// The mapped rows and their gradients are stored in the type in which the device stores hidden
// rows.
//
//	Input.Types   [n_0, F_0]  [n_1, F_1]  ...  ──>  X [n_0 + n_1 + ..., width]
type projection struct {
	dev   compute.Device
	width int
	maps  []typeMap // [T] the map of each type
	x     *buffer
}

// typeMap is the linear map of a vertex type.
type typeMap struct {
	name        string
	features    int
	w, dw       compute.Matrix // [width, features]
	bias, dbias []float32
}

// newProjection returns the projection of the graph's vertex types, or nil if the graph has no
// types.
func newProjection(s *store, c Config) *projection {
	if !c.Schema.Typed() {
		return nil
	}
	p := &projection{dev: s.dev, width: c.In, x: s.hidden(c.In)}
	for t, name := range c.Schema.Types {
		p.maps = append(p.maps, typeMap{name: fmt.Sprintf("project.%s", name),
			features: c.TypeFeatures[t]})
	}
	return p
}

func (p *projection) params() (all []Param) {
	for _, m := range p.maps {
		all = append(all, weight(m.name+".weight", p.width, m.features),
			bias(m.name+".bias", p.width, m.features))
	}
	return all
}

func (p *projection) bind(values, grads [][]float32) {
	for t := range p.maps {
		m := &p.maps[t]
		m.w, m.dw = matrix(values[0], p.width, m.features), matrix(grads[0], p.width, m.features)
		m.bias, m.dbias = values[1], grads[1]
		values, grads = values[2:], grads[2:]
	}
}

// each calls f for every type. It passes the map of the type, the input rows of the type, and the
// rows of x for the mapped rows.
func (p *projection) each(types []compute.Matrix, x compute.Matrix,
	f func(m *typeMap, rows, x compute.Matrix)) {
	at := 0
	for t, rows := range types {
		f(&p.maps[t], rows, x.RowsAt(at, at+rows.Rows))
		at += rows.Rows
	}
}

// forward returns the mapped rows of all types. The buffer p.x must have room for them.
func (p *projection) forward(in *Input) compute.Matrix {
	x := p.x.matrix(in.Sources, p.width)
	p.each(in.Types, x, func(m *typeMap, rows, x compute.Matrix) {
		p.dev.Dense(x, m.dense(rows))
	})
	return x
}

// backward sets the gradients of the maps from dx, the gradient of x.
func (p *projection) backward(dx compute.Matrix, in *Input) {
	p.each(in.Types, dx, func(m *typeMap, rows, dx compute.Matrix) {
		p.dev.DenseBackward(compute.DenseGradients{W: m.dw, Bias: m.dbias}, dx, dx, m.dense(rows))
	})
}

func (m *typeMap) dense(rows compute.Matrix) compute.Dense {
	return compute.Dense{X: rows, W: m.w, Bias: m.bias, Epilogue: compute.Epilogue{Rounded: true}}
}

// RowGradient sets drows [n, TypeFeatures] to the gradient with respect to the rows of vertex type
// t. The argument dx has those rows of the result of BackwardLayer for layer 0 that belong to this
// type. It is [n, In] or, if the minibatch is folded, [n, output width of layer 0]. RowGradient
// returns drows. If the model maps no rows, it returns dx itself.
func (m *Model) RowGradient(drows compute.Matrix, t int, dx compute.Matrix) compute.Matrix {
	if m.project == nil {
		return dx
	}
	if in := &m.inputs[0]; in.Folded {
		m.stages[0].Layer.(*relational).folds.rowGradient(drows, t, dx, in)
		return drows
	}
	m.project.dev.MatMulInput(drows, dx, m.project.maps[t].w, false)
	return drows
}
