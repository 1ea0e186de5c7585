package nn

import (
	"errors"
	"fmt"

	"halognn/src/devices/compute"
)

// attention has what all layers with attention need: their heads, whose results are put side by
// side or averaged.
type attention struct {
	dev                   compute.Device
	name                  string
	in, out, heads, width int
	mean                  bool // whether heads are averaged and not put side by side
	slope                 float32
	alpha, dalpha         *buffer
	// [D,heads*width] If heads are averaged: the sums of all heads, later the gradients of these
	// sums.
	wide *buffer
}

func newAttention(s *store, c Config, l int) attention {
	in, out := c.Widths(l)
	a := attention{dev: s.dev, name: fmt.Sprintf("convs.%d", l), in: in, out: out, heads: c.Heads,
		width: out, mean: !c.hidden(l) || c.HeadMerge == HeadsMean, slope: c.Slope,
		alpha: s.buffer(), dalpha: s.buffer(), wide: s.buffer()}
	if !a.mean {
		a.width = out / a.heads
	}
	return a
}

func (a *attention) cols() int { return a.heads * a.width }

func (a *attention) Needs() Needs { return Needs{Sources: true, SelfEdges: true, Transposed: true} }

// reserve makes room for weights of edges and heads, and for the mean of heads.
func (a *attention) reserve(in *Input) error {
	err := a.alpha.reserve(in.edges() * a.heads)
	if a.mean && err == nil {
		err = a.wide.reserve(in.Destinations * a.cols())
	}
	if in.Train && err == nil {
		err = a.dalpha.reserve(in.edges() * a.heads)
	}
	return err
}

// rows returns the first n rows of a buffer that has a column for each head.
func (a *attention) rows(b *buffer, n int) compute.Matrix { return b.matrix(n, a.heads) }

func (a *attention) weights(in *Input) compute.Matrix { return a.rows(a.alpha, in.edges()) }

// sumBuffer returns the matrix for the sums that the heads make over the neighbours. This is y
// itself or, if heads are averaged, a separate matrix.
func (a *attention) sumBuffer(y compute.Matrix, in *Input) compute.Matrix {
	if a.mean {
		return a.wide.matrix(in.Destinations, a.cols())
	}
	return y
}

// finish computes y from the sums that the heads have made, the bias and the epilogue.
func (a *attention) finish(y, sums compute.Matrix, bias []float32, epilogue compute.Epilogue) {
	if a.mean {
		a.dev.HeadMean(y, sums)
	}
	a.dev.Finish(y, y, bias, epilogue)
}

// finishBackward backpropagates dy through the epilogue in place and sets the gradient of the bias.
// It returns the gradient of the sums that the heads have made.
func (a *attention) finishBackward(dbias []float32, dy, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) compute.Matrix {
	a.dev.FinishBackward(dbias, dy, y, epilogue)
	dsums := a.sumBuffer(dy, in)
	if a.mean {
		a.dev.HeadMeanBackward(dsums, dy)
	}
	return dsums
}

// gat is the layer of GAT (Velickovic et al., ICLR 2018), as GATConv of PyTorch Geometric has it.
// Each head attends over the edges of the hop, which include an edge from each destination to
// itself:
//
//	z_j   = x_j Wᵀ                                                             z [S,heads*width]
//	a_ij  = softmax over the in-neighbours j of i of LeakyReLU(asrc·z_j + adst·z_i)   a [E,heads]
//	y_i   = sum of a_ij z_j, of all heads side by side or their mean, + b         y [D,out]
//
// The rows of z are read many times, so they are stored in the type in which the device stores
// hidden rows.
//
// The layer multiplies by W before it aggregates, so the gradient of W is a sum over the sources.
// Therefore the layer reads the transpose of its hop even when it is the input layer.
type gat struct {
	attention
	w, dw               compute.Matrix // [heads*width,in]
	asrc, adst, bias    []float32
	dasrc, dadst, dbias []float32
	z, src, dst         *buffer
	dz, dsrc, ddst      *buffer
}

func newGAT(s *store, c Config, l int) Layer {
	g := &gat{attention: newAttention(s, c, l)}
	g.z = s.hidden(g.cols())
	for _, b := range []**buffer{&g.src, &g.dst, &g.dz, &g.dsrc, &g.ddst} {
		*b = s.buffer()
	}
	return g
}

func (g *gat) Params() []Param {
	return []Param{
		glorot(g.name+".lin.weight", g.cols(), g.in),
		glorot(g.name+".att_src", 1, g.heads, g.width),
		glorot(g.name+".att_dst", 1, g.heads, g.width),
		constant(g.name+".bias", g.out, 0),
	}
}

func (g *gat) Bind(values, grads [][]float32) {
	g.w, g.dw = matrix(values[0], g.cols(), g.in), matrix(grads[0], g.cols(), g.in)
	g.asrc, g.adst, g.bias = values[1], values[2], values[3]
	g.dasrc, g.dadst, g.dbias = grads[1], grads[2], grads[3]
}

func (g *gat) Reserve(in *Input) error {
	s, d := in.Sources, in.Destinations
	err := errors.Join(g.reserve(in), reserveAll(sized{g.z, s * g.cols()},
		sized{g.src, s * g.heads}, sized{g.dst, d * g.heads}))
	if !in.Train || err != nil {
		return err
	}
	return reserveAll(sized{g.dz, s * g.cols()}, sized{g.dsrc, s * g.heads},
		sized{g.ddst, d * g.heads})
}

func (g *gat) Flops(h *Hop, gradient bool) int {
	return 2 * passes(gradient) * h.Sources * g.in * g.cols()
}

func (g *gat) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	s, d := in.Sources, in.Destinations
	z, src, dst := g.z.matrix(s, g.cols()), g.rows(g.src, s), g.rows(g.dst, d)
	g.dev.Dense(z, compute.Dense{X: in.X, W: g.w, Epilogue: compute.Epilogue{Rounded: true}})
	g.dev.HeadDots(src, dst, z, g.asrc, g.adst)
	sums := g.sumBuffer(y, in)
	g.dev.Attend(sums, g.weights(in), in.Hop.Forward, src, dst, z, g.slope)
	g.finish(y, sums, g.bias, epilogue)
}

func (g *gat) Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	s, d := in.Sources, in.Destinations
	z, src, dst := g.z.matrix(s, g.cols()), g.rows(g.src, s), g.rows(g.dst, d)
	dz, dsrc, ddst := g.dz.matrix(s, g.cols()), g.rows(g.dsrc, s), g.rows(g.ddst, d)
	dsums := g.finishBackward(g.dbias, dy, y, in, epilogue)
	g.dev.AttendBackward(dz, dsrc, ddst, g.rows(g.dalpha, in.edges()), in.Hop.Forward,
		in.Transposed, g.weights(in), src, dst, z, dsums, g.slope)
	g.dev.HeadDotsBackward(dz, g.dasrc, g.dadst, dsrc, ddst, z, g.asrc, g.adst)
	g.dev.MatMulWeights(g.dw, dz, in.X)
	if in.Gradient {
		g.dev.DenseInput(dx.Matrix, dz, g.w, dx.completion(g.dev, dz, compute.Matrix{}))
	}
}
