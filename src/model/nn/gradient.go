package nn

import (
	"math"

	"halognn/src/devices/compute"
)

// Gradient is the gradient of the rows that a layer has read. The layer's Backward sets it. If the
// device stores rows in bfloat16, the gradient of a hidden row is rounded only once. The kernel
// that adds the terms of edges rounds it when it stores the row. So all other terms must be added
// up before this kernel runs, in float32 in the separate matrix own, in this order:
//
//	own [Destinations, in]   residual  +  the layer's product of own rows  +  jumping knowledge
//	                         +  (1 + eps) dagg of GIN
//	dx  [Sources, in]        round(what edges give + own)
//
// If the device does not store rows in bfloat16, or if other ranks add to dx before it is complete,
// the terms are added to dx one by one instead.
//
// Where it can (see goesBack), the kernel that stores the rows also takes them back through the
// activation and dropout that made the rows of the layer below.
type Gradient struct {
	compute.Matrix // [Sources, in]; it has no columns if this gradient is not needed

	rounded bool
	of      compute.Matrix   // rows below, if dx goes back through what made them
	back    compute.Epilogue // what made them
	own     compute.Matrix   // the matrix own above, in float32
	terms   bool             // whether own has at least one term
	jump    *jumping         // jumping knowledge that adds a term; nil if there is none
	layer   int              // index of the layer that made the rows
}

// completion returns the terms that the kernel for edges must add to complete the gradient. Unless
// w has no columns, it first adds the product dy w to own.
func (g *Gradient) completion(dev compute.Device, dy, w compute.Matrix) compute.Completion {
	c := g.ending()
	if !g.rounded {
		return c
	}
	if w.Cols > 0 {
		dev.MatMulInput(g.own, dy, w, g.terms)
		g.terms = true
	}
	if g.jump != nil {
		if !g.terms {
			g.own = g.own.RowsAt(0, g.jump.rows)
		}
		g.jump.take(g.own, g.layer, g.terms)
		g.terms = true
	}
	if g.terms {
		c.Own = g.own
	}
	return c
}

// ending returns a completion without the terms of own rows.
func (g *Gradient) ending() compute.Completion {
	return compute.Completion{Rounded: g.rounded, Of: g.of, Back: g.back}
}

// addTerms adds the terms of own rows (`own`) and the term of jumping knowledge to a matrix
// (`rows`). Its first columns have the layer's own term in float32.
func (g *Gradient) addTerms(dev compute.Device, rows compute.Matrix) {
	if g.terms {
		dev.CopyColumns(rows, 0, g.own, 0, g.own.Cols, true)
	}
	if g.jump != nil {
		g.jump.take(rows, g.layer, true)
	}
}

// joinsOwn is implemented by some layers. If the method returns true, Backward computes the layer's
// term for own rows in a separate matrix, and then adds the other terms to this matrix.
type joinsOwn interface{ joinsOwn() bool }

// addsOwn is implemented by a Layer whose Backward adds a matrix product for the destinations' own
// rows to the gradient.
type addsOwn interface{ addsOwn() }

// scalesOwn is implemented by a Layer whose Backward adds a term for the own row of every
// destination. This does not go together with jumping knowledge, whose terms are for some
// destinations only.
type scalesOwn interface{ scalesOwn() }

// reduces is implemented by a Layer whose Backward makes the gradient of its rows with the gradient
// of a reduction, and adds nothing to it afterwards.
type reduces interface{ reduces() bool }

// goesBack reports whether the gradient that BackwardLayer of layer l returns has gone back through
// the activation and dropout of layer l-1. Nothing may be added to it afterwards, and the kernel of
// a norm does this itself. In bfloat16 only what needs no second rounding goes back, so that no
// number depends on where it does: past a ReLU whose factor is a power of two.
func (m *Model) goesBack(l int) bool {
	if l == 0 || l == len(m.stages) || !m.fuses {
		return false
	}
	s, below, in := &m.stages[l], &m.stages[l-1], &m.inputs[l]
	layer, is := s.Layer.(reduces)
	if m.gradientIn(l, in) == compute.BF16s {
		half, _ := math.Frexp(float64(compute.DropoutScale(m.dropped(&m.inputs[l-1]))))
		is = is && m.Config.Activation != ELU && half == 0.5
	}
	return is && layer.reduces() && in.Gradient && !in.Partial && below.hidden &&
		below.norm == nil && below.batch == nil &&
		(m.completes(l, in) || m.jump == nil && !s.residual)
}

// completes reports whether BackwardLayer of layer l returns a complete gradient. If not, the
// gradient is completed, and rounded in place, before layer l-1 reads it.
func (m *Model) completes(l int, in *Input) bool {
	if _, scales := m.stages[l].Layer.(scalesOwn); scales && m.jump != nil {
		return false
	}
	if l == 0 { // other ranks do not add to the gradient of input rows
		return m.rounds && in.Gradient && m.project != nil
	}
	return m.rounds && in.Gradient && !in.Partial
}

// ownRows returns the number of elements that Gradient.own needs for layer l, or 0 if it is not
// used.
func (m *Model) ownRows(l int, in *Input) int {
	s := &m.stages[l]
	_, adds := s.Layer.(addsOwn)
	needs := adds || m.jump != nil && l > 0
	if of, joins := s.Layer.(joinsOwn); joins && of.joinsOwn() {
		needs = false
	}
	if m.completes(l, in) && (needs || s.residual) {
		return in.Destinations * s.in
	}
	return 0
}

// gradientIn returns the type in which the gradient of the rows that layer l has read is stored.
func (m *Model) gradientIn(l int, in *Input) compute.Elements {
	switch {
	case !m.completes(l, in):
		return compute.Float32s
	case l == 0:
		return m.Config.Projected(m.stores)
	}
	return m.Config.Stored(l-1, m.stores)
}

// gradient returns the Gradient of the rows that layer l has read. If the layer has a residual
// connection, the matrix own already has the term of this connection.
func (m *Model) gradient(l int, in *Input, dy, y compute.Matrix,
	epilogue compute.Epilogue) (g Gradient) {
	if !in.Gradient {
		return g
	}
	s := &m.stages[l]
	rows, cols := in.gradient(s.in)
	g.Matrix = m.gradientIn(l, in).MatrixIn(m.grad[(l+1)%2].data, rows, cols)
	if m.goesBack(l) {
		n := in.Transposed.Len()
		g.of, g.back = in.X.RowsAt(0, n), m.epilogue(&m.stages[l-1], &m.inputs[l-1])
		g.back.Add = compute.Matrix{}
		g.back.Vertices = g.back.Vertices[:min(n, len(g.back.Vertices))]
	}
	if !m.completes(l, in) {
		return g
	}
	if g.rounded = true; l > 0 {
		g.jump, g.layer = m.jump, l-1
	}
	if n := m.ownRows(l, in); n > 0 {
		g.own = m.own.matrix(in.Destinations, s.in)
	}
	if s.residual {
		m.dev.CopyColumns(g.own, 0, dy, 0, s.out, false)
		epilogue.Backward(m.dev, g.own, y)
		g.terms = true
	}
	return g
}
