package nn

import (
	"errors"
	"fmt"

	"halognn/src/devices/compute"
)

// Sparse has sparse input rows, for an input layer that begins with a linear map. Own and Aggregate
// are given if the layer needs them. These rows are never made dense.
type Sparse struct{ Own, Aggregate *compute.SparseMatrix }

func (s *Sparse) given() bool { return s.Own != nil || s.Aggregate != nil }

// sparseMap computes the first map of an input layer from sparse rows. The layer gets the result as
// the only matrix in Input.Shares. The weights are transposed first, because products with sparse
// rows read columns of the weights.
type sparseMap struct {
	layer columnwise
	dev   compute.Device
	in    int
	wide  [2]*buffer // [in,width] transposed weights; in backward, their gradients
	y, z  *buffer    // [D,width]
	share [1]compute.Matrix
}

// newSparseMap returns the sparse map of an input layer, or nil if the layer does not begin with a
// linear map.
func newSparseMap(s *store, c Config, l Layer) *sparseMap {
	layer, ok := l.(columnwise)
	if !ok || !c.Linear() {
		return nil
	}
	return &sparseMap{layer: layer, dev: s.dev, in: c.In, wide: [2]*buffer{s.buffer(), s.buffer()},
		y: s.buffer(), z: s.buffer()}
}

// matrixOf returns the sparse matrix to which matrix k of the map is applied.
func (s *Sparse) matrixOf(k int) *compute.SparseMatrix {
	if k == 1 {
		return s.Own
	}
	return s.Aggregate
}

// ReserveSparse makes room for the result of the input layer's map of sparse rows, and sets
// in.Shares to the matrix for this result. It reads only the counts and Train of the input. It
// fails only if device memory runs out. ForwardLayer calls it.
func (m *Model) ReserveSparse(in *Input) error {
	if m.sparse == nil {
		return errors.New("sparse rows are read by layers that begin with a linear map")
	}
	return m.sparse.reserve(in)
}

func (m *sparseMap) reserve(in *Input) error {
	f, n := m.layer.firstMap(), in.Destinations
	width := max(f.weights[0].w.Rows, f.weights[1].w.Rows)
	mixed := 0
	if f.eps != nil {
		mixed = n * width
	}
	err := reserveAll(sized{m.y, n * width}, sized{m.z, mixed}, sized{m.wide[0], m.in * width},
		sized{m.wide[1], m.in * width})
	if err != nil {
		return fmt.Errorf("sparse rows of %d destinations: %w", n, err)
	}
	m.share[0] = m.y.matrix(n, width)
	in.Shares, in.Gradient = m.share[:], in.Train
	return nil
}

// forward computes the result of the map, which is the only share.
func (m *sparseMap) forward(in *Input) {
	f, y, add := m.layer.firstMap(), m.share[0], false
	for k, t := range f.weights {
		if t.w.Rows == 0 {
			continue
		}
		wide := m.wide[k].matrix(m.in, y.Cols)
		m.dev.Transpose(wide, t.w)
		m.multiply(y, in.Sparse.matrixOf(k), wide, add)
		if add = true; f.eps != nil {
			z := m.z.matrix(y.Rows, y.Cols)
			m.multiply(z, in.Sparse.Own, wide, false)
			m.dev.AddScaled(y, y, z, f.eps)
		}
	}
}

// multiply sets y [D,width] to the product x w, where w is [in,width]. If add is true, it adds the
// product to y.
func (m *sparseMap) multiply(y compute.Matrix, x *compute.SparseMatrix, w compute.Matrix,
	add bool) {
	m.dev.SegmentSum(y, x.Entries, x.Values, w, add)
}

// backward sets the gradients of the map from dy, the gradient of the share.
func (m *sparseMap) backward(in *Input, dy compute.Matrix) {
	f := m.layer.firstMap()
	gradient := func(k int, x *compute.SparseMatrix) compute.Matrix {
		dw := m.wide[k].matrix(m.in, dy.Cols)
		m.dev.SegmentSum(dw, x.Transposed, x.TransposedValues, dy, false)
		return dw
	}
	for k, t := range f.weights {
		if t.w.Rows == 0 {
			continue
		}
		dw := gradient(k, in.Sparse.matrixOf(k))
		if f.eps != nil {
			m.dev.AddScaled(dw, dw, gradient(1, in.Sparse.Own), f.eps)
			m.dev.Dot(f.deps, dy, m.z.matrix(dy.Rows, dy.Cols))
		}
		m.dev.Transpose(t.dw, dw)
	}
}
