package nn

import (
	"errors"

	"halognn/src/compute"
)

// gatv2 is the layer of GATv2 (Brody et al., ICLR 2022), as GATv2Conv of PyTorch Geometric has it.
// It differs from gat in that the nonlinearity stands between the sum of the two rows and the
// vector a, so that the order of a vertex's neighbours by weight depends on the vertex:
//
//	z_j   = x_j Wlᵀ + bl                                                    z [S,heads*width]
//	r_i   = x_i Wrᵀ + br                                                    r [D,heads*width]
//	a_ij  = softmax over the in-neighbours j of i of a·LeakyReLU(z_j + r_i)       a [E,heads]
//	y_i   = sum of a_ij z_j, of all heads side by side or their mean, + b         y [D,out]
type gatv2 struct {
	attention
	wl, wr, dwl, dwr           compute.Matrix // [heads*width,in]
	bl, br, att, bias          []float32
	dbl, dbr, datt, dbias      []float32
	left, right, dleft, dright *buffer // z, r
}

func newGATv2(s *store, c Config, l int) Layer {
	return &gatv2{attention: newAttention(s, c, l), left: s.buffer(), right: s.buffer(),
		dleft: s.buffer(), dright: s.buffer()}
}

func (g *gatv2) Params() []Param {
	return []Param{
		glorot(g.name+".lin_l.weight", g.cols(), g.in), bias(g.name+".lin_l.bias", g.cols(), g.in),
		glorot(g.name+".lin_r.weight", g.cols(), g.in), bias(g.name+".lin_r.bias", g.cols(), g.in),
		glorot(g.name+".att", 1, g.heads, g.width), constant(g.name+".bias", g.out, 0),
	}
}

func (g *gatv2) Bind(values, grads [][]float32) {
	g.wl, g.dwl = matrix(values[0], g.cols(), g.in), matrix(grads[0], g.cols(), g.in)
	g.wr, g.dwr = matrix(values[2], g.cols(), g.in), matrix(grads[2], g.cols(), g.in)
	g.bl, g.br, g.att, g.bias = values[1], values[3], values[4], values[5]
	g.dbl, g.dbr, g.datt, g.dbias = grads[1], grads[3], grads[4], grads[5]
}

func (g *gatv2) Reserve(in *Input) error {
	s, d := in.Sources*g.cols(), in.Destinations*g.cols()
	err := errors.Join(g.reserve(in), reserveAll(sized{g.left, s}, sized{g.right, d}))
	if !in.Train || err != nil {
		return err
	}
	return reserveAll(sized{g.dleft, s}, sized{g.dright, d})
}

func (g *gatv2) Flops(h *Hop, gradient bool) int {
	return 2 * passes(gradient) * (h.Sources + h.Destinations) * g.in * g.cols()
}

func (g *gatv2) Forward(y compute.Matrix, in *Input, then compute.Epilogue) {
	s, d := in.Sources, in.Destinations
	z, r := g.left.matrix(s, g.cols()), g.right.matrix(d, g.cols())
	g.dev.Dense(z, g.ofSources(in))
	g.dev.Dense(r, g.ofDestinations(in))
	g.dev.EdgeDotSoftmax(g.weights(in), in.Hop.Forward, z, r, g.att, g.slope)
	sums := g.sums(y, in)
	g.dev.EdgeSum(sums, in.Hop.Forward, g.weights(in), z)
	g.finish(y, sums, g.bias, then)
}

// ofSources and ofDestinations are the linear maps that give z and r.
func (g *gatv2) ofSources(in *Input) compute.Dense {
	return compute.Dense{X: in.X, W: g.wl, Bias: g.bl}
}

func (g *gatv2) ofDestinations(in *Input) compute.Dense {
	return compute.Dense{X: in.X.RowsAt(0, in.Destinations), W: g.wr, Bias: g.br}
}

func (g *gatv2) Backward(dx, dy, y compute.Matrix, in *Input, then compute.Epilogue) {
	s, d := in.Sources, in.Destinations
	z, r := g.left.matrix(s, g.cols()), g.right.matrix(d, g.cols())
	dz, dr := g.dleft.matrix(s, g.cols()), g.dright.matrix(d, g.cols())
	dalpha := g.rows(g.dalpha, in.edges())
	dsums := g.finishBackward(g.dbias, dy, y, in, then)
	g.dev.EdgeSumBackward(dz, dalpha, in.Transposed, g.weights(in), z, dsums)
	g.dev.EdgeDotSoftmaxBackward(dz, dr, g.datt, dalpha, in.Hop.Forward, in.Transposed,
		g.weights(in), z, r, g.att, g.slope)
	g.dev.DenseBackward(compute.DenseGradients{W: g.dwl, Bias: g.dbl}, dz, compute.Matrix{},
		g.ofSources(in))
	g.dev.DenseBackward(compute.DenseGradients{W: g.dwr, Bias: g.dbr}, dr, compute.Matrix{},
		g.ofDestinations(in))
	if in.Gradient {
		g.dev.MatMulInput(dx, dz, g.wl, false)
		g.dev.MatMulInput(dx.RowsAt(0, d), dr, g.wr, true)
	}
}
