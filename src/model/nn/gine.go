package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// gine is GIN with features of edges (Hu et al., ICLR 2020), as GINEConv(Sequential(Linear, ReLU,
// Linear), train_eps=True, edge_dim) of PyTorch Geometric has it:
//
//	message_e = relu(x_j + f_e Wᵀ + b) of an edge e from j, whose features are f_e    message [E,in]
//	agg_i     = (1 + eps) x_i + sum of message_e over the sampled edges e into i      agg     [D,in]
//
// The hidden rows and y follow from agg as in gin. For each edge the layer stores a row, its
// message. In training it also stores a row with the gradient of the message.
type gine struct {
	// not embedded, because a gine must not implement columnwise: its messages are not linear
	gin gin
	*perEdge
	edgeIn              int
	w, dw               compute.Matrix // [in,edgeIn]
	b, db               []float32
	messages, dmessages *buffer
}

func newGINE(s *store, c Config, l int) Layer {
	return &gine{gin: *newGIN(s, c, l).(*gin), perEdge: s.perEdge(), edgeIn: c.EdgeIn,
		messages: s.buffer(), dmessages: s.buffer()}
}

func (g *gine) Params() []Param {
	return append(g.gin.Params(), weight(fmt.Sprint(g.gin.name, ".lin.weight"), g.gin.in, g.edgeIn),
		bias(fmt.Sprint(g.gin.name, ".lin.bias"), g.gin.in, g.edgeIn))
}

func (g *gine) Bind(values, grads [][]float32) {
	g.gin.Bind(values, grads)
	g.w, g.dw = matrix(values[5], g.gin.in, g.edgeIn), matrix(grads[5], g.gin.in, g.edgeIn)
	g.b, g.db = values[6], grads[6]
}

func (g *gine) Needs() Needs { return Needs{Sources: true, Transposed: true, EdgeRows: true} }

func (g *gine) Reserve(in *Input) error {
	if err := g.reserve(&in.Hop); err != nil {
		return err
	}
	n := in.edges() * g.gin.in
	gradients := 0
	if in.Train {
		gradients = n
	}
	if err := reserveAll(sized{g.messages, n}, sized{g.dmessages, gradients}); err != nil {
		return err
	}
	return g.gin.Reserve(in)
}

func (g *gine) Flops(h *Hop, gradient bool) int {
	return g.gin.Flops(h, gradient) + 2*passes(false)*h.edges()*g.gin.in*g.edgeIn
}

func (g *gine) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	messages, agg := g.messages.matrix(in.edges(), g.gin.in),
		g.gin.aggregate.matrix(in.Destinations, g.gin.in)
	hidden := g.gin.hidden.matrix(in.Destinations, g.gin.mid)
	g.gin.dev.SegmentSum(messages, g.sources(&in.Hop), nil, in.X, false)
	g.gin.dev.MatMul(messages, in.edgeRows(g.edgeIn), g.w, true)
	g.gin.dev.AddBias(messages, g.b)
	g.gin.dev.ReLU(messages, 0, compute.DropoutKey{}, nil)
	g.gin.dev.SegmentSumCompleted(agg, g.into(&in.Hop), nil, messages, g.gin.ownTerm(in.ownRows()))
	g.gin.dev.Dense(hidden, g.gin.inner(agg))
	g.gin.dev.Dense(y, g.gin.outer(hidden, epilogue))
}

func (g *gine) Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	hidden, dinner := g.gin.hidden.matrix(in.Destinations, g.gin.mid),
		g.gin.dinner.matrix(in.Destinations, g.gin.mid)
	agg, dagg := g.gin.aggregate.matrix(in.Destinations, g.gin.in),
		g.gin.dagg.matrix(in.Destinations, g.gin.in)
	messages, dmessages := g.messages.matrix(in.edges(), g.gin.in),
		g.dmessages.matrix(in.edges(), g.gin.in)
	g.gin.dev.DenseBackward(compute.DenseGradients{W: g.gin.dw2, Bias: g.gin.db2}, dy, y,
		g.gin.outer(hidden, epilogue))
	g.gin.dev.DenseInput(dinner, dy, g.gin.w2, compute.Completion{Rounded: true})
	g.gin.dev.DenseBackward(compute.DenseGradients{W: g.gin.dw1, Bias: g.gin.db1}, dinner, hidden,
		g.gin.inner(agg))
	g.gin.dev.MatMulInput(dagg, dinner, g.gin.w1, false)
	g.gin.dev.Dot(g.gin.deps, dagg, in.ownRows())
	g.gin.dev.SegmentSum(dmessages, g.destinations(&in.Hop), nil, dagg, false)
	g.gin.dev.ReLUBackward(dmessages, messages, 0)
	g.gin.dev.MatMulWeights(g.dw, dmessages, in.edgeRows(g.edgeIn))
	g.gin.dev.ColumnSum(g.db, dmessages)
	if in.Gradient {
		g.gin.dev.SegmentSumCompleted(dx.RowsAt(0, in.Transposed.Len()), g.outOf(&in.Hop), nil,
			dmessages, g.gin.back(dx, dy, dagg))
	}
}

func (g *gine) scalesOwn() {}

// reduces implements reduces.
func (g *gine) reduces() bool { return true }
