package nn

import (
	"errors"
	"fmt"

	"halognn/src/devices/compute"
)

// joined computes a SAGE layer on a device with compute.PairKernels. It takes one matrix product in
// forward and two in backward:
//
//	x_i = [own_i | agg_i]                      x  [D,2*in]
//	y_i = x_i [Wself | Wneigh]ᵀ + b            w  [out,2*in], made once a step
type joined struct {
	compute.PairKernels
	rows, w *buffer
	back    *joinedBack
	x       compute.Matrix // the matrix x of the last forward pass
	one     [1]compute.Joining
	fresh   bool // whether w was made from the weights of this step
}

// joinedBack is what backward of one layer makes and reads: the gradients of x and of w, which
// Device.Settle has divided into those of the weights when BackwardLayer returns. So all layers
// share it.
type joinedBack struct {
	rows, w *buffer
	weights int // elements of the largest w
}

// newJoined returns nil for a device without compute.PairKernels.
func newJoined(s *store, c Config) *joined {
	pairs := compute.CapabilitiesOf(s.dev).Pairs
	if pairs == nil {
		return nil
	}
	if s.joined == nil {
		s.joined = &joinedBack{rows: s.buffer(), w: s.buffer()}
		for l := range c.Layers {
			in, out := c.Widths(l)
			s.joined.weights = max(s.joined.weights, out*2*in)
		}
	}
	return &joined{PairKernels: pairs, rows: s.rows(), w: s.rows(), back: s.joined}
}

func (j *joined) reserve(s *sage, in *Input) error {
	n := in.Destinations * 2 * s.in
	err := j.w.reserve(s.out * 2 * s.in)
	if in.Aggregate.Cols != 2*s.in {
		err = errors.Join(err, j.rows.reserve(n))
	}
	if in.Train {
		err = errors.Join(err, j.back.w.reserve(j.back.weights))
	}
	if in.Gradient {
		err = errors.Join(err, j.back.rows.reserve(n))
	}
	return err
}

// join puts two matrices side by side in a third, as pair says. It allocates no memory on the heap.
func (j *joined) join(pair compute.Joining) {
	j.one[0] = pair
	j.Join(j.one[:]...)
}

// dense returns the linear map that is applied to x.
func (j *joined) dense(s *sage, epilogue compute.Epilogue) compute.Dense {
	return compute.Dense{X: j.x, W: j.joiningWeights(s).Pair, Bias: s.bias, Epilogue: epilogue}
}

// joiningWeights returns the matrix w and the two matrices from which it is made.
func (j *joined) joiningWeights(s *sage) compute.Joining {
	return compute.Joining{Pair: j.w.matrix(s.out, 2*s.in), A: s.self, B: s.neigh}
}

// joinWeights makes the matrix w of every layer for a step, in one launch of a kernel. It leaves
// out an input layer that only adds shares. It fails only if device memory runs out.
func (m *Model) joinWeights(in *Input) error {
	var kernels compute.PairKernels
	m.joinings = m.joinings[:0]
	for l := range m.stages {
		s, is := m.stages[l].Layer.(*sage)
		if !is || s.joined == nil {
			return nil
		}
		if l == 0 && len(in.Shares) > 0 {
			continue
		}
		if err := s.joined.w.reserve(s.out * 2 * s.in); err != nil {
			return fmt.Errorf("weights of layer %d: %w", l, err)
		}
		m.joinings, s.joined.fresh = append(m.joinings, s.joined.joiningWeights(s)), true
		kernels = s.joined.PairKernels
	}
	if kernels != nil {
		kernels.Join(m.joinings...)
	}
	return nil
}

func (j *joined) forward(s *sage, y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	switch cols := in.Aggregate.Cols; {
	case cols == 2*s.in:
		j.x = in.Aggregate
	case cols > 0:
		j.x = j.rows.matrix(in.Destinations, 2*s.in)
		j.join(compute.Joining{Pair: j.x, A: in.ownRows(), B: in.Aggregate})
	default:
		j.x = j.rows.matrix(in.Destinations, 2*s.in)
		j.SegmentJoined(j.x, s.found(in), s.reduction(), in.Hop.Forward, in.Weights, in.X)
	}
	if !j.fresh || !in.Train {
		j.join(j.joiningWeights(s))
	}
	j.fresh = false
	s.dev.Dense(y, j.dense(s, epilogue))
}

func (j *joined) backward(s *sage, dx *Gradient, dy, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) {
	dw := j.back.w.matrix(s.out, 2*s.in)
	s.dev.DenseBackward(compute.DenseGradients{W: dw, Bias: s.dbias}, dy, y, j.dense(s, epilogue))
	j.Part(s.dself, s.dneigh, dw)
	if !in.Gradient {
		return
	}
	drows := j.back.rows.matrix(in.Destinations, 2*s.in)
	s.dev.MatMulInput(drows, dy, j.joiningWeights(s).Pair, false)
	dx.addTerms(s.dev, drows)
	j.SegmentJoinedBackward(dx.Matrix, s.reduction(), in.Hop.Forward, in.Transposed,
		in.TransposedWeights, s.found(in), drows, dx.ending())
}
