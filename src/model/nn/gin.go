package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// gin is the layer of GIN (Xu et al., ICLR 2019), as GINConv(Sequential(Linear, ReLU, Linear),
// train_eps=True) of PyTorch Geometric has it; the hidden rows are as wide as the result:
//
//	agg_i    = (1 + eps) x_i + sum of x_j over the sampled in-neighbours j of i      agg    [D,in]
//	hidden_i = relu(agg_i W1ᵀ + b1)                                                  hidden [D,mid]
//	y_i      = hidden_i W2ᵀ + b2                                                     y      [D,out]
type gin struct {
	dev                             compute.Device
	name                            string
	in, mid, out                    int
	w1, dw1, w2, dw2                compute.Matrix // [mid,in], [out,mid]
	b1, db1, b2, db2, eps, deps     []float32
	aggregate, dagg, hidden, dinner *buffer
	// Whether the sum is weighted by edges. If the weights are those in the data, `ofData` is true.
	weighted, ofData bool
}

func newGIN(s *store, c Config, l int) Layer {
	in, out := c.Widths(l)
	mid := out
	if c.hidden(0) {
		mid = c.Hidden
	}
	return &gin{dev: s.dev, name: fmt.Sprintf("convs.%d", l), in: in, mid: mid, out: out,
		weighted: c.EdgeWeights || c.Estimates, ofData: c.EdgeWeights,
		aggregate: s.rows(), dagg: s.buffer(), hidden: s.hidden(mid), dinner: s.hidden(mid)}
}

func (g *gin) Params() []Param {
	return []Param{
		weight(g.name+".nn.0.weight", g.mid, g.in), bias(g.name+".nn.0.bias", g.mid, g.in),
		weight(g.name+".nn.2.weight", g.out, g.mid), bias(g.name+".nn.2.bias", g.out, g.mid),
		constant(g.name+".eps", 1, 0),
	}
}

func (g *gin) Bind(values, grads [][]float32) {
	g.w1, g.dw1 = matrix(values[0], g.mid, g.in), matrix(grads[0], g.mid, g.in)
	g.w2, g.dw2 = matrix(values[2], g.out, g.mid), matrix(grads[2], g.out, g.mid)
	g.b1, g.db1, g.b2, g.db2 = values[1], grads[1], values[3], grads[3]
	g.eps, g.deps = values[4], grads[4]
}

func (g *gin) Needs() Needs {
	n := Needs{Own: true, Aggregate: compute.ReduceSum, OfData: g.ofData}
	if g.weighted {
		n.Weights = WeightsPlain
	}
	return n
}

// firstMap implements columnwise. The first map is only W1, because a ReLU follows it.
func (g *gin) firstMap() firstMap {
	return firstMap{weights: [2]trained{{g.w1, g.dw1}}, eps: g.eps, deps: g.deps}
}

func (g *gin) Reserve(in *Input) error {
	d := in.Destinations
	if len(in.Shares) > 0 {
		inner := 0
		if in.Train {
			inner = d * g.mid
		}
		return reserveAll(sized{g.hidden, d * g.mid}, sized{g.dinner, inner})
	}
	if err := reserveAll(sized{g.aggregate, d * g.in}, sized{g.hidden, d * g.mid}); err != nil {
		return err
	}
	if !in.Train {
		return nil
	}
	return reserveAll(sized{g.dagg, d * g.in}, sized{g.dinner, d * g.mid})
}

// Flops always counts the product for the gradient of the aggregates, because the gradient of eps
// is computed from it.
func (g *gin) Flops(h *Hop, _ bool) int {
	return 2 * passes(true) * h.Destinations * (g.in*g.mid + g.mid*g.out)
}

func (g *gin) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	hidden := g.hidden.matrix(in.Destinations, g.mid)
	if len(in.Shares) > 0 {
		addShares(g.dev, hidden, in, g.b1, innerEpilogue())
		g.dev.Dense(y, g.outer(hidden, epilogue))
		return
	}
	agg := g.aggregate.matrix(in.Destinations, g.in)
	if in.Aggregate.Cols > 0 {
		g.dev.AddScaled(agg, in.Aggregate, in.ownRows(), g.eps)
	} else {
		g.dev.SegmentSumCompleted(agg, in.Hop.Forward, in.Weights, in.X, g.ownTerm(in.ownRows()))
	}
	g.dev.Dense(hidden, g.inner(agg))
	g.dev.Dense(y, g.outer(hidden, epilogue))
}

// ownTerm returns the term (1 + eps) own. It is added to the sum of the neighbours' rows in
// forward, and to the sum of the neighbours' gradients in backward.
func (g *gin) ownTerm(own compute.Matrix) compute.Completion {
	return compute.Completion{Own: own, Scale: g.eps, Rounded: true}
}

// back returns the terms that complete the gradient dx (see Gradient). The terms of own rows
// include (1+eps) dagg.
func (g *gin) back(dx *Gradient, dy, dagg compute.Matrix) compute.Completion {
	end := dx.completion(g.dev, dy, compute.Matrix{})
	if end.Own.Rows == 0 {
		end.Own, end.Scale = dagg, g.eps
		return end
	}
	g.dev.AddScaled(end.Own, end.Own, dagg, g.eps)
	return end
}

func (g *gin) scalesOwn() {}

// reduces implements reduces.
func (g *gin) reduces() bool { return true }

// inner returns the first of the two linear maps. The method outer returns the second.
func (g *gin) inner(agg compute.Matrix) compute.Dense {
	return compute.Dense{X: agg, W: g.w1, Bias: g.b1, Epilogue: innerEpilogue()}
}

// innerEpilogue is the epilogue of the first map.
func innerEpilogue() compute.Epilogue {
	return compute.Epilogue{Activation: compute.ActivateReLU, Rounded: true}
}

func (g *gin) outer(hidden compute.Matrix, epilogue compute.Epilogue) compute.Dense {
	return compute.Dense{X: hidden, W: g.w2, Bias: g.b2, Epilogue: epilogue}
}

func (g *gin) Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	hidden, dinner := g.hidden.matrix(in.Destinations, g.mid),
		g.dinner.matrix(in.Destinations, g.mid)
	g.dev.DenseBackward(compute.DenseGradients{W: g.dw2, Bias: g.db2}, dy, y,
		g.outer(hidden, epilogue))
	g.dev.DenseInput(dinner, dy, g.w2, compute.Completion{Rounded: true})
	if len(in.Shares) > 0 {
		sharesBackward(g.dev, dx.Matrix, dinner, hidden, g.db1, innerEpilogue())
		return
	}
	agg, dagg := g.aggregate.matrix(in.Destinations, g.in), g.dagg.matrix(in.Destinations, g.in)
	g.dev.DenseBackward(compute.DenseGradients{W: g.dw1, Bias: g.db1}, dinner, hidden, g.inner(agg))
	g.dev.MatMulInput(dagg, dinner, g.w1, false)
	g.dev.Dot(g.deps, dagg, in.ownRows())
	if !in.Gradient {
		return
	}
	g.dev.SegmentSumCompleted(dx.RowsAt(0, in.Transposed.Len()), in.Transposed,
		in.TransposedWeights, dagg, g.back(dx, dy, dagg))
}
