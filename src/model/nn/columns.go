package nn

import (
	"errors"
	"fmt"

	"halognn/src/devices/compute"
)

// firstMap is the linear map with which an input layer begins, without its bias:
//
//	sum_i = agg_i W1ᵀ + own_i W2ᵀ      if eps is set, agg_i + (1+eps) own_i replaces agg_i
//
// It is a sum over the columns of the rows, so several devices can compute it together if each has
// some of the columns.
type firstMap struct {
	weights   [2]trained // W1, W2 [width,in]; empty if the map does not read these rows
	eps, deps []float32
	whole     bool // whether the layer consists only of this map and a bias
}

// trained is a matrix of weights and its gradient.
type trained struct{ w, dw compute.Matrix }

// columnwise is a Layer that begins with a firstMap. As the input layer it also accepts
// Input.Shares, which are parts of the map's result that were computed elsewhere. In this case
// Forward starts from the sum of the shares. Backward then sets dx [Destinations, width] to the
// gradient with respect to this sum. It sets the gradients of all parameters except those of the
// map.
type columnwise interface {
	Layer
	firstMap() firstMap
}

// Linear reports whether the input layer begins with a linear map of rows and of sums of rows,
// which Columns can compute in shares.
func (c Config) Linear() bool {
	// Check refuses a graph with types for this kind of model, whose layers then do not exist.
	if k := FindKind(c.Kind); c.Schema.Typed() && k.relational == nil {
		return false
	}
	return c.Needs().Sums()
}

// MixesOwn reports whether the input layer's first map is of sums of rows with own rows, which
// Columns makes in float32.
func (m *Model) MixesOwn() bool {
	layer, is := m.stages[0].Layer.(columnwise)
	return is && layer.firstMap().eps != nil
}

// Columns computes the first map of a model's input layer for some columns of the input rows only
// (push-pull parallelism: P3, Gandhi and Iyer, OSDI 2021). The result is called the share of these
// columns. The shares of all columns add up to the result of the map, and the gradients that they
// set add up to the map's gradient. Make it with Model.Columns.
type Columns struct {
	layer columnwise
	store store
	// c has the columns first to end-1 of the rows
	first, end int
	in, width  int // number of columns of whole rows, and of the share
	slices     [2]slice
	y          *buffer // [D,width] the share
	mixed      *buffer // [D,cols] rows agg + (1+eps) own; in backward, the gradient of these rows
}

// slice holds some columns of a matrix of weights. Kernels read only matrices without gaps, so the
// columns are copied. This takes little time compared with a matrix product.
type slice struct {
	w, dw *buffer // [width,cols]; nil if the map has no such matrix
	wide  *buffer // [width,in] gradient of the whole matrix; zero outside of the slice's columns
}

// The method Columns makes a value of the type Columns, for the columns [first,end) of the input
// rows. It fails if the input layer does not begin with a sum over columns, or if device memory
// runs out.
func (m *Model) Columns(first, end int) (*Columns, error) {
	layer, ok := m.stages[0].Layer.(columnwise)
	if !ok || !m.Config.Linear() {
		return nil, fmt.Errorf("the input layer of model kind %s is not a sum over the columns "+
			"of the features; choose sage with means, gcn, gin or mlp", m.Config.Kind)
	}
	if first < 0 || first >= end || end > m.Config.In {
		return nil, fmt.Errorf("columns %d to %d are not within the %d columns of the features",
			first, end,
			m.Config.In)
	}
	c := &Columns{layer: layer, store: store{dev: m.dev}, first: first, end: end, in: m.Config.In}
	c.y, c.mixed = c.store.buffer(), c.store.buffer()
	var errs []error
	for k, t := range layer.firstMap().weights {
		if t.w.Rows == 0 {
			continue
		}
		s := &c.slices[k]
		*s = slice{c.store.buffer(), c.store.buffer(), c.store.buffer()}
		c.width = t.w.Rows
		n := c.width * (end - first)
		errs = append(errs, reserveAll(sized{s.w, n}, sized{s.dw, n},
			sized{s.wide, c.width * c.in}))
	}
	if err := errors.Join(errs...); err != nil {
		c.Close()
		return nil, fmt.Errorf("weights of columns %d to %d: %w", first, end, err)
	}
	return c, nil
}

// Bytes returns the device memory.
func (c *Columns) Bytes() int64 { return c.store.bytes() }

// Close frees the device memory.
func (c *Columns) Close() { c.store.free() }

// Reserve makes room for passes over an input. It reads only the number of destinations of the
// input. Forward calls Reserve.
func (c *Columns) Reserve(in *Input) error {
	n := in.Destinations
	err := c.y.reserve(n * c.width)
	if c.layer.firstMap().eps != nil {
		err = errors.Join(err, c.mixed.reserve(n*(c.end-c.first)))
	}
	if err != nil {
		return fmt.Errorf("columns %d to %d of %d rows: %w", c.first, c.end, n, err)
	}
	return nil
}

// Forward returns the share [Destinations, width], valid until the next Forward. The matrices
// in.Own and in.Aggregate have only the columns of c. It fails only if device memory runs out.
func (c *Columns) Forward(in *Input) (compute.Matrix, error) {
	if err := c.Reserve(in); err != nil {
		return compute.Matrix{}, err
	}
	n, cols, f, dev := in.Destinations, c.end-c.first, c.layer.firstMap(), c.store.dev
	if f.eps != nil {
		dev.AddScaled(c.mixed.matrix(n, cols), in.Aggregate, in.Own, f.eps)
	}
	y, add := c.y.matrix(n, c.width), false
	for k := range c.slices {
		if s := &c.slices[k]; s.w != nil {
			w := s.w.matrix(c.width, cols)
			dev.CopyColumns(w, 0, f.weights[k].w, c.first, cols, false)
			dev.MatMul(y, c.rows(&f, in, k), w, add)
			add = true
		}
	}
	return y, nil
}

// rows returns the matrix of rows that matrix k of the map is applied to.
func (c *Columns) rows(f *firstMap, in *Input, k int) compute.Matrix {
	switch {
	case k == 1:
		return in.Own
	case f.eps != nil:
		return c.mixed.matrix(in.Destinations, c.end-c.first)
	}
	return in.Aggregate
}

// Backward sets the gradients of the map's matrices for the columns of c, and sets other columns of
// these gradients to zero. The argument `dsum` [Destinations, width] is the gradient with respect
// to the sum of the shares. Forward must have run on the same input with the same weights.
func (c *Columns) Backward(in *Input, dsum compute.Matrix) {
	f, cols, dev := c.layer.firstMap(), c.end-c.first, c.store.dev
	for k := range c.slices {
		if s := &c.slices[k]; s.w != nil {
			dw, wide := s.dw.matrix(c.width, cols), s.wide.matrix(c.width, c.in)
			dev.MatMulWeights(dw, dsum, c.rows(&f, in, k))
			dev.CopyColumns(wide, c.first, dw, 0, cols, false)
			dev.CopyColumns(f.weights[k].dw, 0, wide, 0, c.in, false)
		}
	}
	if f.eps != nil {
		dmixed := c.mixed.matrix(in.Destinations, cols)
		dev.MatMulInput(dmixed, dsum, c.slices[0].w.matrix(c.width, cols), false)
		dev.Dot(f.deps, dmixed, in.Own)
		dev.Settle()
	}
}

// addShares sets y to the sum of the shares, added in their order, plus the bias, and applies the
// epilogue. It overwrites the first share with the sum of the shares.
func addShares(dev compute.Device, y compute.Matrix, in *Input, bias []float32,
	epilogue compute.Epilogue) {
	sum := in.Shares[0]
	for _, share := range in.Shares[1:] {
		dev.CopyColumns(sum, 0, share, 0, sum.Cols, true)
	}
	dev.Finish(y, sum, bias, epilogue)
}

// sharesBackward is the backward pass of addShares. It sets dsum to the gradient of the sum of the
// shares, by backpropagating dy through the epilogue. It also sets the gradient of the bias.
func sharesBackward(dev compute.Device, dsum, dy, sum compute.Matrix, dbias []float32,
	epilogue compute.Epilogue) {
	dev.CopyColumns(dsum, 0, dy, 0, dy.Cols, false)
	dev.FinishBackward(dbias, dsum, sum, epilogue)
}
