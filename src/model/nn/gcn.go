package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// gcn is the layer of GCN (Kipf and Welling, ICLR 2017): each vertex counts as one of its own
// neighbours:
//
//	right   agg_i = mean of x_j over the sampled in-neighbours j of i, and of x_i       agg [D,in]
//	both    agg_i = sum of w_ij x_j; w_ij from degrees in the whole graph (WeightsSymmetric)
//	        y_i   = agg_i Wᵀ + b                                                         y   [D,out]
//
// Here right and both are the values of Config.GCNNorm. With either, the sum is over the edges of
// the hop, which include one from each destination to itself. If all neighbours are drawn, "both"
// computes the same as GCNConv of PyTorch Geometric with its defaults.
type gcn struct {
	dev              compute.Device
	name             string
	in, out          int
	weights          Weighting
	ofData           bool
	w, dw            compute.Matrix // [out,in]
	bias, dbias      []float32
	aggregate, dmean *buffer        // [D,in]
	agg              compute.Matrix // agg of the last Forward
}

func newGCN(s *store, c Config, l int) Layer {
	in, out := c.Widths(l)
	return &gcn{dev: s.dev, name: fmt.Sprintf("convs.%d", l), in: in, out: out,
		weights: gcnWeights(c), ofData: c.EdgeWeights, aggregate: s.rows(), dmean: s.buffer()}
}

func gcnWeights(c Config) Weighting {
	switch {
	case c.GCNNorm == GCNBoth:
		return WeightsSymmetric
	case c.EdgeWeights || c.Estimates:
		return WeightsMean
	}
	return NoWeights
}

func (g *gcn) Params() []Param {
	return []Param{glorot(g.name+".lin.weight", g.out, g.in), constant(g.name+".bias", g.out, 0)}
}

func (g *gcn) Bind(values, grads [][]float32) {
	g.w, g.dw = matrix(values[0], g.out, g.in), matrix(grads[0], g.out, g.in)
	g.bias, g.dbias = values[1], grads[1]
}

func (g *gcn) Needs() Needs {
	n := Needs{Aggregate: compute.ReduceMean, SelfEdges: true, Weights: g.weights, OfData: g.ofData}
	if g.weights != NoWeights {
		n.Aggregate = compute.ReduceSum
	}
	return n
}

func (g *gcn) firstMap() firstMap {
	return firstMap{weights: [2]trained{{g.w, g.dw}}, whole: true}
}

func (g *gcn) Reserve(in *Input) error {
	if len(in.Shares) > 0 {
		return nil
	}
	if in.Aggregate.Cols == 0 {
		if err := g.aggregate.reserve(in.Destinations * g.in); err != nil {
			return err
		}
	}
	if !in.Gradient {
		return nil
	}
	return g.dmean.reserve(in.Destinations * g.in)
}

func (g *gcn) Flops(h *Hop, gradient bool) int {
	return 2 * passes(gradient) * h.Destinations * g.in * g.out
}

func (g *gcn) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	if len(in.Shares) > 0 {
		addShares(g.dev, y, in, g.bias, epilogue)
		return
	}
	g.agg = in.Aggregate
	if in.Aggregate.Cols == 0 {
		g.agg = g.aggregate.matrix(in.Destinations, g.in)
		if g.weights != NoWeights {
			g.dev.SegmentSum(g.agg, in.Hop.Forward, in.Weights, in.X, false)
		} else {
			g.dev.SegmentMean(g.agg, in.Hop.Forward, in.X)
		}
	}
	g.dev.Dense(y, g.dense(epilogue))
}

func (g *gcn) dense(epilogue compute.Epilogue) compute.Dense {
	return compute.Dense{X: g.agg, W: g.w, Bias: g.bias, Epilogue: epilogue}
}

func (g *gcn) Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	if len(in.Shares) > 0 {
		sharesBackward(g.dev, dx.Matrix, dy, y, g.dbias, epilogue)
		return
	}
	g.dev.DenseBackward(compute.DenseGradients{W: g.dw, Bias: g.dbias}, dy, y, g.dense(epilogue))
	if !in.Gradient {
		return
	}
	dmean, end := g.dmean.matrix(in.Destinations, g.in), dx.completion(g.dev, dy, compute.Matrix{})
	g.dev.MatMulInput(dmean, dy, g.w, false)
	if g.weights != NoWeights {
		g.dev.SegmentSumCompleted(dx.Matrix, in.Transposed, in.TransposedWeights, dmean, end)
	} else {
		g.dev.SegmentMeanBackward(dx.Matrix, in.Hop.Forward, in.Transposed, dmean, end)
	}
}

// reduces implements reduces.
func (g *gcn) reduces() bool { return true }
