package nn

import "halognn/src/devices/compute"

// Gradient is the gradient of the rows that a layer has read; the layer's Backward sets it. Where
// the device stores rows in bfloat16, the gradient of a hidden row stays float32 until its last
// addition and is rounded once: by the kernel that adds the terms of edges and stores the row. So
// all other terms of a row are added first, in rows of their own, in this order:
//
//	own [Destinations, in]   residual  +  the layer's product of own rows  +  jumping knowledge
//	                         +  (1 + eps) dagg of GIN
//	dx  [Sources, in]        round(what edges give + own)
//
// Elsewhere, and where other ranks add to dx before it is complete, terms are added to dx one by
// one.
type Gradient struct {
	compute.Matrix // [Sources, in]; it has no columns if no gradient is wanted

	rounded bool
	own     compute.Matrix // the terms of own rows, float32
	terms   bool           // own has at least one term
	jump    *jumping       // jumping knowledge that adds a term; nil if there is none
	layer   int            // index of the layer that made the rows
}

// completion returns what completes the gradient. It adds dy w to own, unless w has no columns.
func (g *Gradient) completion(dev compute.Device, dy, w compute.Matrix) compute.Completion {
	c := compute.Completion{Rounded: g.rounded}
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

// addsOwn is a Layer whose Backward adds a product of own rows to the gradient.
type addsOwn interface{ addsOwn() }

// scalesOwn is a Layer whose Backward adds terms to the rows of all destinations. The terms of
// jumping knowledge alone are for fewer rows.
type scalesOwn interface{ scalesOwn() }

// completes reports whether BackwardLayer of layer l completes the gradient that it returns. Other
// gradients are completed, and rounded in place, before the layer below reads them.
func (m *Model) completes(l int, in *Input) bool {
	if _, scales := m.stages[l].Layer.(scalesOwn); scales && m.jump != nil {
		return false
	}
	if l == 0 { // no other rank adds to the gradient of input rows
		return m.rounds && in.Gradient && m.project != nil
	}
	return m.rounds && in.Gradient && !in.Partial
}

// ownRows returns the size of the rows of terms that layer l needs to complete a gradient.
func (m *Model) ownRows(l int, in *Input) int {
	s := &m.stages[l]
	if _, adds := s.Layer.(addsOwn); m.completes(l, in) &&
		(adds || s.residual || m.jump != nil && l > 0) {
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

// gradient returns the Gradient of the rows that layer l has read, with the term of a residual
// connection.
func (m *Model) gradient(l int, in *Input, dy, y compute.Matrix,
	epilogue compute.Epilogue) (g Gradient) {
	if !in.Gradient {
		return g
	}
	s := &m.stages[l]
	rows, cols := in.gradient(s.in)
	g.Matrix = m.gradientIn(l, in).In(m.grad[(l+1)%2].data, rows, cols)
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
