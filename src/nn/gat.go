package nn

import (
	"errors"
	"fmt"

	"halognn/src/compute"
)

// gat is the layer of GAT (Velickovic et al., ICLR 2018), as GATConv of PyTorch Geometric has it.
// Each of its heads attends over the edges of the hop, which include one from each destination to
// itself:
//
//	z_j   = x_j Wᵀ                                                             z [S,heads*width]
//	a_ij  = softmax over the in-neighbours j of i of LeakyReLU(asrc·z_j + adst·z_i)   a [E,heads]
//	y_i   = sum of a_ij z_j, of all heads side by side or their mean, + b         y [D,out]
//
// It transforms before it aggregates, so the gradient of W runs over the sources: the layer reads
// the transpose of its hop also when it is the input layer.
type gat struct {
	dev                    compute.Device
	name                   string
	in, out, heads, width  int
	mean                   bool // of the heads
	slope                  float32
	w, dw                  compute.Matrix // [heads*width,in]
	asrc, adst, bias       []float32
	dasrc, dadst, dbias    []float32
	z, src, dst, alpha     *buffer
	dz, dsrc, ddst, dalpha *buffer
	wide                   *buffer // [D,heads*width] before the mean, then its gradient
}

func newGAT(s *store, c Config, l int) Layer {
	in, out := c.Widths(l)
	g := &gat{dev: s.dev, name: fmt.Sprintf("convs.%d", l), in: in, out: out, heads: c.Heads,
		width: out,
		mean:  !c.hidden(l) || c.HeadMerge == HeadsMean, slope: c.Slope}
	if !g.mean {
		g.width = out / g.heads
	}
	for _, b := range []**buffer{&g.z, &g.src, &g.dst, &g.alpha, &g.dz, &g.dsrc, &g.ddst, &g.dalpha,
		&g.wide} {
		*b = s.buffer()
	}
	return g
}

func (g *gat) Params() []Param {
	return []Param{
		glorot(g.name+".lin.weight", g.heads*g.width, g.in),
		glorot(g.name+".att_src", 1, g.heads, g.width), glorot(g.name+".att_dst", 1, g.heads, g.width),
		constant(g.name+".bias", g.out, 0),
	}
}

func (g *gat) Bind(values, grads [][]float32) {
	wide := g.heads * g.width
	g.w, g.dw = matrix(values[0], wide, g.in), matrix(grads[0], wide, g.in)
	g.asrc, g.adst, g.bias = values[1], values[2], values[3]
	g.dasrc, g.dadst, g.dbias = grads[1], grads[2], grads[3]
}

func (g *gat) Needs() Needs { return Needs{Sources: true, SelfEdges: true, Transposed: true} }

func (g *gat) Reserve(in *Input) error {
	s, d, e, wide := in.Sources, in.Destinations, in.edges(), g.heads*g.width
	err := reserveAll(sized{g.z, s * wide}, sized{g.src, s * g.heads}, sized{g.dst, d * g.heads},
		sized{g.alpha, e * g.heads})
	if g.mean {
		err = errors.Join(err, g.wide.reserve(d*wide))
	}
	if !in.Train || err != nil {
		return err
	}
	return reserveAll(sized{g.dz, s * wide}, sized{g.dsrc, s * g.heads}, sized{g.ddst, d * g.heads},
		sized{g.dalpha, e * g.heads})
}

func (g *gat) Flops(h *Hop, gradient bool) int {
	return 2 * passes(gradient) * h.Sources * g.in * g.heads * g.width
}

// rows returns the first rows of a buffer that has a column for each head.
func (g *gat) rows(b *buffer, n int) compute.Matrix { return b.matrix(n, g.heads) }

func (g *gat) Forward(y compute.Matrix, in *Input, then compute.Epilogue) {
	s, d, e, wide := in.Sources, in.Destinations, in.edges(), g.heads*g.width
	z, src, dst, alpha := g.z.matrix(s, wide), g.rows(g.src, s), g.rows(g.dst, d), g.rows(g.alpha, e)
	g.dev.MatMul(z, in.X, g.w, false)
	g.dev.HeadDot(src, z, g.asrc)
	g.dev.HeadDot(dst, z.RowsAt(0, d), g.adst)
	g.dev.EdgeSoftmax(alpha, in.Hop.Forward, src, dst, g.slope)
	if g.mean {
		heads := g.wide.matrix(d, wide)
		g.dev.EdgeSum(heads, in.Hop.Forward, alpha, z)
		g.dev.HeadMean(y, heads)
	} else {
		g.dev.EdgeSum(y, in.Hop.Forward, alpha, z)
	}
	g.dev.AddBias(y, g.bias)
	then.Apply(g.dev, y)
}

func (g *gat) Backward(dx, dy, y compute.Matrix, in *Input, then compute.Epilogue) {
	s, d, e, wide := in.Sources, in.Destinations, in.edges(), g.heads*g.width
	z, src, dst, alpha := g.z.matrix(s, wide), g.rows(g.src, s), g.rows(g.dst, d), g.rows(g.alpha, e)
	dz, dsrc, ddst, dalpha := g.dz.matrix(s, wide), g.rows(g.dsrc, s), g.rows(g.ddst, d),
		g.rows(g.dalpha, e)
	then.Backward(g.dev, dy, y)
	g.dev.ColumnSum(g.dbias, dy)
	if g.mean {
		heads := g.wide.matrix(d, wide)
		g.dev.HeadMeanBackward(heads, dy)
		dy = heads
	}
	g.dev.EdgeSumBackward(dz, dalpha, in.Transposed, alpha, z, dy)
	g.dev.EdgeSoftmaxBackward(dsrc, ddst, dalpha, in.Hop.Forward, in.Transposed, alpha, src, dst,
		g.slope)
	g.dev.HeadDotBackward(dz, g.dasrc, dsrc, z, g.asrc)
	g.dev.HeadDotBackward(dz.RowsAt(0, d), g.dadst, ddst, z.RowsAt(0, d), g.adst)
	g.dev.MatMulWeights(g.dw, dz, in.X)
	if in.Gradient {
		g.dev.MatMulInput(dx, dz, g.w, false)
	}
}
