package plan

// What a GPU keeps for the matrix products of a layer: rounded factors, partial sums, and results
// before they are stored rounded.

import (
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
)

// factorBytes returns the bytes of the factors that the products of a layer round at a time. The
// product of a weight gradient rounds the rows x and their gradient dy. Any other product rounds
// the weights, and x or dy. The room grows by a quarter at a time.
func (p *planner) factorBytes(x, dy, weights int) int64 {
	return int64(p.job.GPU.Rounded) * int64(max(x+dy, max(x, dy)+weights)) * 5 / 4
}

// rowsBelow returns the type of the rows that layer l reads.
func (p *planner) rowsBelow(l int) compute.Elements {
	if l == 0 {
		return p.job.Stored
	}
	return p.job.Model.Stored(l-1, p.job.Stored)
}

// roundedBytes returns the bytes of the factors that the largest product of a step rounds. Rows
// that are stored rounded need no bytes here. A gradient that is stored rounded needs none either;
// but after a norm or attention it is float32. Attention multiplies the rows of all sources. Pairs
// of rows and of weights are stored rounded; columns are multiplied by the weights themselves.
// Jumping knowledge multiplies rows of float32. Rows of all relations, and their weights, are
// rounded together.
func (p *planner) roundedBytes(m *nn.Model, slot *shape) (most int64) {
	product := func(x, dy, weights int) { most = max(most, p.factorBytes(x, dy, weights)) }
	of, stored := &p.job.Model, p.job.Stored
	for l, h := range slot.hops {
		in, out := of.Widths(l)
		if l == 0 {
			h, in, _ = p.input(slot)
		}
		rows, _ := multiplied(m, h)
		x, weights := rows*in, 2*in*out
		if p.rowsBelow(l) == compute.BF16s {
			x = 0
		}
		wide, attends := out, nn.FindKind(of.Kind).HasHeads
		if attends { // heads side by side
			wide = widest(m.Params.Layer(l))
			weights = 2 * in * wide
		}
		dy := rows * wide
		switch {
		case l == 0 && p.job.Mode.Columns: // whose results, and so gradients, are of float32
			if weights = in * out; m.MixesOwn() {
				x = rows * in
			}
			product(x, dy, weights)
			continue
		case of.Joins() && stored == compute.BF16s:
			x, weights = 0, 0
		}
		if !attends && of.Norm == nn.NormNone && of.Stored(l, stored) == compute.BF16s {
			dy = 0
		}
		if n, groups := grouped(m, &h); n > 0 { // whose gradients are of float32
			x, dy, weights = n*in, n*wide, groups*in*wide
			if stored == compute.BF16s && !attends {
				x = 0
			}
		}
		product(x, dy, weights)
		if n := h.destinations; l == of.Layers-1 && of.Jumps() {
			width := of.JumpWidth()
			product(n*width, n*of.Out, width*of.Out)
		}
		for t, n := range p.mappedRows(l, &h, slot.kinds) {
			dy := n * of.In
			if of.Projected(stored) == compute.BF16s {
				dy = 0
			}
			product(0, dy, of.In*of.TypeFeatures[t])
		}
	}
	return most
}

// grouped returns the rows that a layer which tells relations apart multiplies in one call, each by
// the weights of its group, and the number of groups. Other layers have no such rows.
func grouped(m *nn.Model, h *hopShape) (rows, groups int) {
	groups = m.Config.Schema.NumRelations()
	switch m.Needs().Relations {
	case nn.NoRelations:
		return 0, 0
	case nn.Paired: // a group of sources and one of destinations
		return h.pairs, 2 * groups
	}
	return h.rows, groups // and own rows, because these may be fewer where there are most rows
}

// roundedChunk is roundedBytes for inference over chunks of the given sizes in each layer, whose
// last layer may map rows of the layer before by the weights themselves, and which makes outputs of
// the given number of rows from those of all layers.
func (p *planner) roundedChunk(m *nn.Model, hops []hopShape, outputs int) (most int64) {
	of := &p.job.Model
	for l, h := range hops {
		in, out := of.Widths(l)
		rows, _ := multiplied(m, h)
		weights := in * out
		switch {
		case p.mapsFirst(l):
			rows = hops[l-1].destinations
		case of.Joins() && p.job.Stored == compute.BF16s:
			continue
		case nn.FindKind(of.Kind).HasHeads:
			weights = in * widest(m.Params.Layer(l))
		}
		if p.rowsBelow(l) == compute.BF16s {
			rows = 0
		}
		x := rows * in
		if n, groups := grouped(m, &h); n > 0 {
			x, weights = n*in, groups*weights
			if nn.FindKind(of.Kind).HasHeads { // GAT's scores are products of transformed rows
				x = max(x, n*widest(m.Params.Layer(l)))
			} else if p.job.Stored == compute.BF16s {
				x = 0
			}
		}
		most = max(most, p.factorBytes(x, 0, weights))
	}
	if of.Jumps() {
		most = max(most, p.factorBytes(outputs*of.JumpWidth(), 0, of.JumpWidth()*of.Out))
	}
	return most
}

// widest returns the largest number of rows of a matrix among parameters.
func widest(params []nn.Param) (rows int) {
	for _, p := range params {
		if len(p.Shape) == 2 {
			rows = max(rows, p.Shape[0])
		}
	}
	return rows
}

// mappedRows returns how many rows of each vertex type layer l maps, or nil if it maps no rows. If
// kinds is nil, the types of the sources are not known, and all may be of any one type.
func (p *planner) mappedRows(l int, h *hopShape, kinds []kindShape) (rows []int) {
	if l > 0 || !p.shards.Schema.Typed() || h.folded && !h.mapped {
		return nil
	}
	for t := range p.job.Model.TypeFeatures {
		n := h.sources
		if t < len(kinds) {
			n = kinds[t].all
		}
		rows = append(rows, n)
	}
	return rows
}

// partialBytes returns the bytes that a GPU keeps for the layer that needs most. For each chunk of
// rows these are the sums of the gradients that are not matrix products, and two moments of a norm;
// for each tile of rows with weights of their own, the sums of the gradient of these weights.
// Arrays grow by a quarter at a time.
func (p *planner) partialBytes(m *nn.Model, hops []hopShape) int64 {
	left, scratch, columns := 0, 0, 1
	if p.job.GPU.Rounded > 0 {
		columns = compute.PrecisionBF16.TileColumns()
	}
	heads := nn.FindKind(m.Config.Kind).HasHeads
	for l, h := range hops {
		_, chunks := multiplied(m, h)
		all := 0
		for _, p := range m.Params.Layer(l) {
			// vectors; those of heads have three dimensions, as have the weights of all relations
			if n := len(p.Shape); n < 2 || n == 3 && heads {
				all += p.Len()
			}
		}
		in, out := m.Config.Widths(l)
		left, scratch = max(left, chunks*all), max(scratch, 2*chunks*out)
		if heads { // side by side
			out = widest(m.Params.Layer(l))
			in = max(in, m.Config.Heads) // GAT's scores have a column for each head
		}
		if in%columns == 0 && out%columns == 0 {
			scratch = max(scratch, h.tiles*in*out)
		}
	}
	return 5 * int64(left+scratch)
}

// wideBytes returns what a GPU keeps for the product of the layer that needs most whose sum is
// stored rounded; a norm reads the sum itself. It may be of an inner matrix, as of attention's
// heads, or of a map of a vertex type's rows. The room grows by a quarter at a time.
func (p *planner) wideBytes(m *nn.Model, hops []hopShape, kinds []kindShape) int64 {
	most, stored := 0, p.job.Stored
	for l, h := range hops {
		rows, _ := multiplied(m, h)
		products := 0
		for _, p := range m.Params.Layer(l) {
			if len(p.Shape) == 2 {
				products++
			}
		}
		inner := m.Needs().Sources || products > 1 && !m.Config.Joins()
		if stored == compute.BF16s && (inner ||
			m.Config.Norm == nn.NormNone && m.Config.Stored(l, stored) == stored) {
			most = max(most, rows*widest(m.Params.Layer(l)))
		}
		for _, n := range p.mappedRows(l, &h, kinds) {
			if m.Config.Projected(stored) == compute.BF16s {
				most = max(most, n*m.Config.In)
			}
		}
	}
	return 5 * int64(most)
}
