package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// sage is the GraphSAGE layer (Hamilton et al., NeurIPS 2017), as SAGEConv of PyTorch Geometric has
// it. It aggregates neighbours by their mean (aggr="mean") or by the maximum of each column
// (aggr="max"):
//
//	agg_i = mean or maximum of x_j over the sampled in-neighbours j of i; zero if none   agg [D,in]
//	y_i   = agg_i Wneighᵀ + b + x_i Wselfᵀ                                               y   [D,out]
//
// If edges have weights, the mean is weighted. The gradient of a maximum goes only to the neighbour
// that has it. If several neighbours have it, the one whose edge comes first gets the gradient.
//
// It aggregates rows before it multiplies by weights. The other order (mean of x_j Wneighᵀ) gives
// the same numbers up to rounding. But its matrix product has a row for each source, and a sampled
// hop has several times more sources than destinations. The other order could be faster only if out
// is several times smaller than in. That is so in last layers, but their hops are the smallest.
type sage struct {
	dev     compute.Device
	name    string
	in, out int
	how     compute.Reduction
	// Whether the mean is weighted by edges, and ofData: whether by the weights in the data.
	weighted, ofData     bool
	neigh, self          compute.Matrix // [out,in]
	dneigh, dself        compute.Matrix
	bias, dbias          []float32
	aggregate, dagg, arg *buffer        // [D,in]; arg has, for each maximum, the source that has it
	agg                  compute.Matrix // agg of the last Forward
	joined               *joined        // nil: the device needs two products
}

func newSAGE(s *store, c Config, l int) Layer {
	in, out := c.Widths(l)
	how := compute.ReduceMean
	if c.Aggregation == AggregateMax {
		how = compute.ReduceMax
	}
	return &sage{dev: s.dev, name: fmt.Sprintf("convs.%d", l), in: in, out: out, how: how,
		weighted: c.EdgeWeights || c.Estimates, ofData: c.EdgeWeights,
		aggregate: s.rows(), dagg: s.buffer(), arg: s.buffer(), joined: newJoined(s, c)}
}

func (s *sage) Params() []Param {
	return []Param{
		weight(s.name+".lin_l.weight", s.out, s.in),
		bias(s.name+".lin_l.bias", s.out, s.in),
		weight(s.name+".lin_r.weight", s.out, s.in),
	}
}

func (s *sage) Bind(values, grads [][]float32) {
	s.neigh, s.dneigh = matrix(values[0], s.out, s.in), matrix(grads[0], s.out, s.in)
	s.bias, s.dbias = values[1], grads[1]
	s.self, s.dself = matrix(values[2], s.out, s.in), matrix(grads[2], s.out, s.in)
}

func (s *sage) Needs() Needs {
	if s.weighted {
		return Needs{Own: true, Aggregate: compute.ReduceSum, Joined: true, Weights: WeightsMean,
			OfData: s.ofData}
	}
	return Needs{Own: true, Aggregate: s.how, Joined: true}
}

// reduction returns the reduction that makes aggregates, which for a weighted mean is a sum.
func (s *sage) reduction() compute.Reduction { return s.Needs().Aggregate }

func (s *sage) firstMap() firstMap {
	return firstMap{weights: [2]trained{{s.neigh, s.dneigh}, {s.self, s.dself}}, whole: true}
}

func (s *sage) Reserve(in *Input) error {
	if len(in.Shares) > 0 {
		return nil
	}
	n := in.Destinations * s.in
	if in.Gradient && s.how == compute.ReduceMax {
		if err := s.arg.reserve(n); err != nil {
			return err
		}
	}
	if s.joined != nil {
		return s.joined.reserve(s, in)
	}
	if in.Aggregate.Cols == 0 {
		if err := s.aggregate.reserve(n); err != nil {
			return err
		}
	}
	if !in.Gradient {
		return nil
	}
	return s.dagg.reserve(n)
}

func (s *sage) Flops(h *Hop, gradient bool) int {
	return 2 * passes(gradient) * 2 * h.Destinations * s.in * s.out
}

func (s *sage) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	if len(in.Shares) > 0 {
		addShares(s.dev, y, in, s.bias, epilogue)
		return
	}
	if s.joined != nil {
		s.joined.forward(s, y, in, epilogue)
		return
	}
	s.agg = in.Aggregate
	if in.Aggregate.Cols == 0 {
		s.agg = s.aggregate.matrix(in.Destinations, s.in)
		switch {
		case s.weighted:
			s.dev.SegmentSum(s.agg, in.Hop.Forward, in.Weights, in.X, false)
		case s.how == compute.ReduceMax:
			s.dev.SegmentMax(s.agg, s.found(in), in.Hop.Forward, in.X)
		default:
			s.dev.SegmentMean(s.agg, in.Hop.Forward, in.X)
		}
	}
	s.dev.Dense(y, s.dense(in, epilogue))
}

func (s *sage) dense(in *Input, epilogue compute.Epilogue) compute.Dense {
	return compute.Dense{X: s.agg, W: s.neigh, Bias: s.bias, X2: in.ownRows(), W2: s.self,
		Epilogue: epilogue}
}

// found returns the matrix in which Forward notes, for each maximum, the source that has it.
// Backward reads this matrix. If Backward does not need it, found returns the zero Matrix.
func (s *sage) found(in *Input) compute.Matrix {
	if !in.Gradient || s.how != compute.ReduceMax {
		return compute.Matrix{}
	}
	return s.arg.matrix(in.Destinations, s.in)
}

func (s *sage) Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	if len(in.Shares) > 0 {
		sharesBackward(s.dev, dx.Matrix, dy, y, s.dbias, epilogue)
		return
	}
	if s.joined != nil {
		s.joined.backward(s, dx, dy, y, in, epilogue)
		return
	}
	s.dev.DenseBackward(compute.DenseGradients{W: s.dneigh, Bias: s.dbias, W2: s.dself}, dy, y,
		s.dense(in, epilogue))
	if !in.Gradient {
		return
	}
	// The segment kernel writes every row of dx, and zeros for rows without edges. It can also add
	// the gradients of the destinations' own rows; otherwise they are added afterwards.
	dagg, end := s.dagg.matrix(in.Destinations, s.in), dx.completion(s.dev, dy, s.self)
	s.dev.MatMulInput(dagg, dy, s.neigh, false)
	switch {
	case s.weighted:
		s.dev.SegmentSumCompleted(dx.Matrix, in.Transposed, in.TransposedWeights, dagg, end)
	case s.how == compute.ReduceMax:
		s.dev.SegmentMaxBackward(dx.Matrix, in.Transposed, s.found(in), dagg, end)
	default:
		s.dev.SegmentMeanBackward(dx.Matrix, in.Hop.Forward, in.Transposed, dagg, end)
	}
	if !end.Rounded {
		s.dev.MatMulInput(dx.RowsAt(0, in.Destinations), dy, s.self, true)
	}
}

func (s *sage) addsOwn() {}

// joinsOwn implements the interface joinsOwn.
func (s *sage) joinsOwn() bool { return s.joined != nil }

// reduces implements reduces: two products of own rows are added one after another.
func (s *sage) reduces() bool { return s.joined != nil }
