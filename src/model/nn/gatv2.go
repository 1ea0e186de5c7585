package nn

import (
	"errors"

	"halognn/src/devices/compute"
)

// gatv2 is the layer of GATv2 (Brody et al., ICLR 2022), as GATv2Conv of PyTorch Geometric has it.
// In contrast to gat, LeakyReLU is applied to the sum of the two rows, before the product with the
// vector a. So if two vertices have the same neighbours, each may order them differently by weight:
//
//	z_j   = x_j Wlᵀ + bl                                                    z [S,heads*width]
//	r_i   = x_i Wrᵀ + br                                                    r [D,heads*width]
//	a_ij  = softmax over the in-neighbours j of i of a·LeakyReLU(z_j + r_i)       a [E,heads]
//	y_i   = sum of a_ij z_j, of all heads side by side or their mean, + b         y [D,out]
//
// If edges have features f_ij, LeakyReLU is applied to z_j + r_i + f_ij Weᵀ. The layer then stores
// heads*width numbers for each edge, and twice as many in training.
type gatv2 struct {
	attention
	// segments for rows of edges; nil if layers read no features of edges
	*perEdge
	edgeIn                     int
	we, dwe                    compute.Matrix // [heads*width,edgeIn]
	pairs, dpairs              *buffer        // [E,heads*width] z_j + f_ij Weᵀ
	wl, wr, dwl, dwr           compute.Matrix // [heads*width,in]
	bl, br, att, bias          []float32
	dbl, dbr, datt, dbias      []float32
	left, right, dleft, dright *buffer // z and r, and their gradients
}

func newGATv2(s *store, c Config, l int) Layer {
	g := &gatv2{attention: newAttention(s, c, l), left: s.buffer(), right: s.buffer(),
		dleft: s.buffer(), dright: s.buffer(), edgeIn: c.EdgeIn, pairs: s.buffer(),
		dpairs: s.buffer()}
	if g.edgeIn > 0 {
		g.perEdge = s.perEdge()
	}
	return g
}

func (g *gatv2) Needs() Needs {
	n := g.attention.Needs()
	n.EdgeRows = g.edgeIn > 0
	return n
}

func (g *gatv2) Params() []Param {
	all := []Param{
		glorot(g.name+".lin_l.weight", g.cols(), g.in), bias(g.name+".lin_l.bias", g.cols(), g.in),
		glorot(g.name+".lin_r.weight", g.cols(), g.in), bias(g.name+".lin_r.bias", g.cols(), g.in),
		glorot(g.name+".att", 1, g.heads, g.width), constant(g.name+".bias", g.out, 0),
	}
	if g.edgeIn > 0 {
		all = append(all, glorot(g.name+".lin_edge.weight", g.cols(), g.edgeIn))
	}
	return all
}

func (g *gatv2) Bind(values, grads [][]float32) {
	g.wl, g.dwl = matrix(values[0], g.cols(), g.in), matrix(grads[0], g.cols(), g.in)
	g.wr, g.dwr = matrix(values[2], g.cols(), g.in), matrix(grads[2], g.cols(), g.in)
	g.bl, g.br, g.att, g.bias = values[1], values[3], values[4], values[5]
	g.dbl, g.dbr, g.datt, g.dbias = grads[1], grads[3], grads[4], grads[5]
	if g.edgeIn > 0 {
		g.we, g.dwe = matrix(values[6], g.cols(), g.edgeIn), matrix(grads[6], g.cols(), g.edgeIn)
	}
}

func (g *gatv2) Reserve(in *Input) error {
	s, d := in.Sources*g.cols(), in.Destinations*g.cols()
	err := errors.Join(g.attention.reserve(in), reserveAll(sized{g.left, s}, sized{g.right, d}))
	edges, gradients := 0, 0
	if g.edgeIn > 0 {
		err = errors.Join(err, g.perEdge.reserve(&in.Hop))
		edges = in.edges() * g.cols()
	}
	if in.Train {
		gradients = edges
	}
	err = errors.Join(err, reserveAll(sized{g.pairs, edges}, sized{g.dpairs, gradients}))
	if !in.Train || err != nil {
		return err
	}
	return reserveAll(sized{g.dleft, s}, sized{g.dright, d})
}

func (g *gatv2) Flops(h *Hop, gradient bool) int {
	return 2*passes(gradient)*(h.Sources+h.Destinations)*g.in*g.cols() +
		2*passes(false)*h.edges()*g.edgeIn*g.cols()
}

func (g *gatv2) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	s, d := in.Sources, in.Destinations
	z, r := g.left.matrix(s, g.cols()), g.right.matrix(d, g.cols())
	g.dev.Dense(z, g.ofSources(in))
	g.dev.Dense(r, g.ofDestinations(in))
	sums := g.sumBuffer(y, in)
	if g.edgeIn > 0 {
		pairs := g.pairs.matrix(in.edges(), g.cols())
		g.dev.SegmentSum(pairs, g.perEdge.sources(&in.Hop), nil, z, false)
		g.dev.MatMul(pairs, in.edgeRows(g.edgeIn), g.we, true)
		g.dev.EdgeDotSoftmax(g.weights(in), g.into(&in.Hop), pairs, r, g.vector(), g.slope)
		g.dev.EdgeSum(sums, in.Hop.Forward, g.weights(in), z)
	} else {
		g.dev.AttendPairs(sums, g.weights(in), in.Hop.Forward, z, r, g.vector(), g.slope)
	}
	g.finish(y, sums, g.bias, epilogue)
}

// ofSources returns the linear map whose result is z. The method ofDestinations returns the linear
// map whose result is r.
func (g *gatv2) ofSources(in *Input) compute.Dense {
	return compute.Dense{X: in.X, W: g.wl, Bias: g.bl}
}

func (g *gatv2) ofDestinations(in *Input) compute.Dense {
	return compute.Dense{X: in.X.RowsAt(0, in.Destinations), W: g.wr, Bias: g.br}
}

func (g *gatv2) Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	s, d := in.Sources, in.Destinations
	z, r := g.left.matrix(s, g.cols()), g.right.matrix(d, g.cols())
	dz, dr := g.dleft.matrix(s, g.cols()), g.dright.matrix(d, g.cols())
	dalpha := g.rows(g.dalpha, in.edges())
	dsums := g.finishBackward(g.dbias, dy, y, in, epilogue)
	g.dev.EdgeSumBackward(dz, dalpha, in.Transposed, g.weights(in), z, dsums)
	if g.edgeIn > 0 {
		pairs, dpairs := g.pairs.matrix(in.edges(), g.cols()), g.dpairs.matrix(in.edges(), g.cols())
		g.clear(g.dev, dpairs)
		g.dev.EdgeDotSoftmaxBackward(dpairs, dr, g.datt, dalpha, g.into(&in.Hop),
			g.destinations(&in.Hop), g.weights(in), pairs, r, g.vector(), g.slope)
		g.dev.SegmentSum(dz.RowsAt(0, in.Transposed.Len()), g.outOf(&in.Hop), nil, dpairs, true)
		g.dev.MatMulWeights(g.dwe, dpairs, in.edgeRows(g.edgeIn))
	} else {
		g.dev.EdgeDotSoftmaxBackward(dz, dr, g.datt, dalpha, in.Hop.Forward, in.Transposed,
			g.weights(in), z, r, g.vector(), g.slope)
	}
	g.dev.DenseBackward(compute.DenseGradients{W: g.dwl, Bias: g.dbl}, dz, compute.Matrix{},
		g.ofSources(in))
	g.dev.DenseBackward(compute.DenseGradients{W: g.dwr, Bias: g.dbr}, dr, compute.Matrix{},
		g.ofDestinations(in))
	if in.Gradient {
		end := dx.completion(g.dev, dr, g.wr)
		g.dev.DenseInput(dx.Matrix, dz, g.wl, end)
		if !end.Rounded {
			g.dev.MatMulInput(dx.RowsAt(0, d), dr, g.wr, true)
		}
	}
}

func (g *gatv2) vector() compute.Vectors { return compute.Vectors{Data: g.att} }

func (g *gatv2) addsOwn() {}
