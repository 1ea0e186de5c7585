package nn

import (
	"slices"

	"halognn/src/devices/compute"
)

// relationHeads is used by all layers with an attention convolution for each relation. In the
// matrices below, a pair stands for a source and a relation by which it has out-edges. A row stands
// for a destination and a relation by which it has in-edges:
//
//	x  [pairs + rows, in]     rows of the pairs' sources, then of the rows' destinations
//	z  [pairs + rows, cols]   x times the weights of the relation
//	o  [rows + S, out]        for each row, the sum of z over its edges; then biases of types
//	y  [D, out]               for each destination, the sum of its rows of o
//
// Attention weights are a softmax over the edges of a row.
type relationHeads struct {
	attention
	eachRelation
	// w and dw are [2 relations, stride]: weights for sources, then weights for destinations. bias
	// and dbias are [relations, stride].
	w, dw, bias, dbias compute.Matrix
	x, z, dx, dz       *buffer
	o                  *buffer
	biases             *buffer // [relations, out]
	// [2, out] row 0 is the bias that Finish adds: it stays zero, because o has the biases already.
	// Row 1 is the gradient of that bias.
	zeros *buffer
}

func newRelationHeads(s *store, c Config, l int) relationHeads {
	h := relationHeads{attention: newAttention(s, c, l), eachRelation: newEachRelation(c, l)}
	for _, b := range []**buffer{&h.x, &h.z, &h.dx, &h.dz, &h.o, &h.biases, &h.zeros} {
		*b = s.buffer()
	}
	return h
}

func (g *relationHeads) Needs() Needs {
	return Needs{Sources: true, Transposed: true, Relations: Paired}
}

// weightsOf declares a weight matrix for each relation, and biasesOf a bias for each relation. The
// method vectors declares, for each relation, one vector for each head, by which the head scores
// edges.
func (g *relationHeads) weightsOf(suffix string) []Param {
	return g.each(suffix, func(name string) Param { return glorot(name, g.cols(), g.in) })
}

func (g *relationHeads) vectors(suffix string) []Param {
	return g.each(suffix, func(name string) Param { return glorot(name, 1, g.heads, g.width) })
}

func (g *relationHeads) biasesOf(suffix string) []Param {
	return g.each(suffix, func(name string) Param { return constant(name, g.out, 0) })
}

// bind sets the weights, which are the first two kinds of parameters, and the bias. The argument
// `bias` is the index of the bias among the kinds of parameters.
func (g *relationHeads) bind(values, grads [][]float32, bias int) {
	size := g.cols() * g.in
	g.w, g.dw = g.reach(values, 0, 2, size), g.reach(grads, 0, 2, size)
	g.bias, g.dbias = g.reach(values, bias, 1, g.out), g.reach(grads, bias, 1, g.out)
}

// counts returns the number of pairs and the number of rows of a hop. If the hop has only counts,
// they are upper bounds.
func (g *relationHeads) counts(h *Hop) (pairs, rows int) {
	switch {
	case h.Forward.Indptr == nil && h.Rows > 0:
		return h.PairRows - h.Rows, h.Rows
	case h.Forward.Indptr == nil:
		return h.Edges, min(h.Edges, h.Destinations*len(g.names))
	}
	rows = h.Forward.Len()
	return h.Pairs.Len() - rows, rows
}

func (g *relationHeads) reserve(in *Input) error {
	pairs, rows := g.counts(&in.Hop)
	n, edges := pairs+rows, in.edges()*g.heads
	err := reserveAll(sized{g.alpha, edges}, sized{g.x, n * g.in}, sized{g.z, n * g.cols()},
		sized{g.o, (rows + g.into.Len()) * g.out}, sized{g.biases, len(g.names) * g.out},
		sized{g.zeros, 2 * g.out})
	if g.mean && err == nil {
		err = g.wide.reserve(rows * g.cols())
	}
	if in.Train && err == nil {
		err = reserveAll(sized{g.dalpha, edges}, sized{g.dz, n * g.cols()})
	}
	if in.Gradient && err == nil {
		err = g.dx.reserve(n * g.in)
	}
	return err
}

func (g *relationHeads) Flops(h *Hop, gradient bool) int {
	pairs, rows := g.counts(h)
	return 2 * passes(gradient) * (pairs + rows) * g.in * g.cols()
}

// groups returns the groups of pairs and rows that are multiplied by the same weights: a group of
// pairs for each relation, and then a group of rows for each relation. The weights of a group have
// size elements.
func (g *relationHeads) groups(h *Hop, size int) compute.Groups {
	return compute.Groups{Ends: h.PairEnds, Stride: aligned(size)}
}

// transform computes z.
func (g *relationHeads) transform(in *Input) (z compute.Matrix) {
	n := in.Pairs.Len()
	x, z := g.x.matrix(n, g.in), g.z.matrix(n, g.cols())
	g.dev.SegmentSum(x, in.Pairs, nil, in.X, false)
	g.dev.GroupMatMul(z, x, g.w.Data, g.groups(&in.Hop, g.cols()*g.in))
	return z
}

// transformBackward computes dx and the gradients of the weights, from dz.
func (g *relationHeads) transformBackward(dx *Gradient, dz compute.Matrix, in *Input) {
	n, groups := in.Pairs.Len(), g.groups(&in.Hop, g.cols()*g.in)
	g.dev.GroupMatMulWeights(g.dw.Data, dz, g.x.matrix(n, g.in), groups)
	if in.Gradient {
		gathered := g.dx.matrix(n, g.in)
		g.dev.GroupMatMulInput(gathered, dz, g.w.Data, groups)
		g.dev.SegmentSumCompleted(dx.Matrix, in.PairsOf, nil, gathered,
			dx.completion(g.dev, dz, compute.Matrix{}))
	}
}

// headSums returns the rows of o, and the matrix for the sums of the heads, from which these rows
// are computed.
func (g *relationHeads) headSums(rows int) (o, sums compute.Matrix) {
	o = g.o.matrix(rows+g.into.Len(), g.out)
	if g.mean {
		return o, g.wide.matrix(rows, g.cols())
	}
	return o, o.RowsAt(0, rows)
}

// finish computes y from the sums of the heads.
func (g *relationHeads) finish(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	rows := in.Hop.Forward.Len()
	o, sums := g.headSums(rows)
	if g.mean {
		g.dev.HeadMean(o.RowsAt(0, rows), sums)
	}
	biases := g.biases.matrix(len(g.names), g.out)
	g.dev.CopyColumns(biases, 0, g.bias, 0, g.out, false)
	g.dev.SegmentSum(o.RowsAt(rows, o.Rows), g.into, nil, biases, false)
	g.dev.SegmentSum(y, in.Targets, nil, o, false)
	g.dev.Finish(y, y, g.zeros.data[:g.out], epilogue)
}

// finishBackward returns the gradient of the sums of the heads.
func (g *relationHeads) finishBackward(dy, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) compute.Matrix {
	rows := in.Hop.Forward.Len()
	g.dev.FinishBackward(g.zeros.data[g.out:2*g.out], dy, y, epilogue)
	do, dsums := g.headSums(rows)
	g.dev.SegmentSum(do, in.RowsOf, nil, dy, false)
	biases := g.biases.matrix(len(g.names), g.out)
	g.dev.SegmentSum(biases, g.from, nil, do.RowsAt(rows, do.Rows), false)
	g.dev.CopyColumns(g.dbias, 0, biases, 0, g.out, false)
	if g.mean {
		g.dev.HeadMeanBackward(dsums, do.RowsAt(0, rows))
	}
	return dsums
}

// relationGAT is a GATConv for each relation, without edges from vertices to themselves:
// GATConv((in, in), width, heads, add_self_loops=False). The vector of each head becomes a row of a
// matrix [heads,cols], which is zero outside of the head's columns. So one kernel can score the
// pairs and rows of all relations by matrix products.
type relationGAT struct {
	relationHeads
	att, datt compute.Matrix // [2 relations, stride]
	// [2 relations, heads*cols] the vectors as matrices, and the gradients of these matrices.
	spread, dwide *buffer
	scores, ds    *buffer // [pairs + rows, heads]
	dscored       *buffer // [pairs + rows, cols]
}

func newRelationGAT(s *store, c Config, l int) Layer {
	return &relationGAT{relationHeads: newRelationHeads(s, c, l), spread: s.buffer(),
		dwide: s.buffer(), scores: s.buffer(), ds: s.buffer(), dscored: s.buffer()}
}

func (g *relationGAT) Params() []Param {
	return slices.Concat(g.weightsOf(".lin_src.weight"), g.weightsOf(".lin_dst.weight"),
		g.vectors(".att_src"), g.vectors(".att_dst"), g.biasesOf(".bias"))
}

func (g *relationGAT) Bind(values, grads [][]float32) {
	g.bind(values, grads, 4)
	g.att, g.datt = g.reach(values, 2, 2, g.cols()), g.reach(grads, 2, 2, g.cols())
}

func (g *relationGAT) Reserve(in *Input) error {
	pairs, rows := g.counts(&in.Hop)
	n, wide := pairs+rows, 2*len(g.names)*aligned(g.heads*g.cols())
	err := g.reserve(in)
	if err == nil {
		err = reserveAll(sized{g.spread, wide}, sized{g.scores, n * g.heads})
	}
	if in.Train && err == nil {
		err = reserveAll(sized{g.dwide, wide}, sized{g.ds, n * g.heads},
			sized{g.dscored, n * g.cols()})
	}
	return err
}

// copyHeads copies the vectors of heads into the matrices. If spread is false, it copies them back.
func (g *relationGAT) copyHeads(to, from compute.Matrix, spread bool) {
	for h := range g.heads {
		at, wide := h*g.width, h*(g.cols()+g.width)
		if spread {
			g.dev.CopyColumns(to, wide, from, at, g.width, false)
		} else {
			g.dev.CopyColumns(to, at, from, wide, g.width, false)
		}
	}
}

func (g *relationGAT) wideOf(b *buffer) compute.Matrix {
	return b.matrix(2*len(g.names), aligned(g.heads*g.cols()))
}

func (g *relationGAT) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	pairs, rows := g.counts(&in.Hop)
	z, spread, scores := g.transform(in), g.wideOf(g.spread), g.scores.matrix(pairs+rows, g.heads)
	g.copyHeads(spread, g.att, true)
	g.dev.GroupMatMul(scores, z, spread.Data, g.groups(&in.Hop, g.heads*g.cols()))
	_, sums := g.headSums(rows)
	g.dev.Attend(sums, g.weights(in), in.Hop.Forward, scores.RowsAt(0, pairs),
		scores.RowsAt(pairs, pairs+rows), z.RowsAt(0, pairs), g.slope)
	g.finish(y, in, epilogue)
}

func (g *relationGAT) Backward(dx *Gradient, dy, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) {
	pairs, rows := g.counts(&in.Hop)
	n := pairs + rows
	z, scores, ds := g.z.matrix(n, g.cols()), g.scores.matrix(n, g.heads), g.ds.matrix(n, g.heads)
	dz, dscored := g.dz.matrix(n, g.cols()), g.dscored.matrix(n, g.cols())
	dsums := g.finishBackward(dy, y, in, epilogue)
	g.dev.AttendBackward(dz.RowsAt(0, pairs), ds.RowsAt(0, pairs), ds.RowsAt(pairs, n),
		g.rows(g.dalpha, in.edges()), in.Hop.Forward, in.Transposed, g.weights(in),
		scores.RowsAt(0, pairs), scores.RowsAt(pairs, n), z.RowsAt(0, pairs), dsums, g.slope)
	spread, dwide, groups := g.wideOf(g.spread), g.wideOf(g.dwide),
		g.groups(&in.Hop, g.heads*g.cols())
	g.dev.GroupMatMulWeights(dwide.Data, ds, z, groups)
	g.copyHeads(g.datt, dwide, false)
	g.dev.GroupMatMulInput(dscored, ds, spread.Data, groups)
	g.dev.CopyColumns(dscored.RowsAt(0, pairs), 0, dz.RowsAt(0, pairs), 0, g.cols(), true)
	g.transformBackward(dx, dscored, in)
}

// relationGATv2 is a GATv2Conv for each relation, without edges from vertices to themselves.
type relationGATv2 struct {
	relationHeads
	att, datt compute.Matrix // [relations, stride]
	// [2 relations, stride] biases of z for sources, then for destinations
	shift, dshift compute.Matrix
	shifts        *buffer // [2 relations, cols]

	// [pairs + rows] For each pair and row, group has the number of its group of weights, and all
	// has the numbers 0, 1, 2 and so on.
	group, all []int32
	// The array ends has the numbers 0, 1, 2 and so on. The array bounds [2 relations + 1] has the
	// ends of the groups.
	ends, bounds []int64
}

func (*relationGATv2) makesArrays() {}

func newRelationGATv2(s *store, c Config, l int) Layer {
	return &relationGATv2{relationHeads: newRelationHeads(s, c, l), shifts: s.buffer()}
}

func (g *relationGATv2) Params() []Param {
	shift := func(name string) Param { return bias(name, g.cols(), g.in) }
	return slices.Concat(g.weightsOf(".lin_l.weight"), g.weightsOf(".lin_r.weight"),
		g.each(".lin_l.bias", shift), g.each(".lin_r.bias", shift), g.vectors(".att"),
		g.biasesOf(".bias"))
}

func (g *relationGATv2) Bind(values, grads [][]float32) {
	g.bind(values, grads, 5)
	g.shift, g.dshift = g.reach(values, 2, 2, g.cols()), g.reach(grads, 2, 2, g.cols())
	g.att, g.datt = g.reach(values, 4, 1, g.cols()), g.reach(grads, 4, 1, g.cols())
}

func (g *relationGATv2) Reserve(in *Input) error {
	if err := g.shifts.reserve(2 * len(g.names) * g.cols()); err != nil {
		return err
	}
	if in.Hop.Forward.Indptr != nil {
		g.fillIndices(&in.Hop)
	}
	return g.relationHeads.reserve(in)
}

// fillIndices fills the arrays by which kernels find the group of each pair and row.
func (g *relationGATv2) fillIndices(h *Hop) {
	for len(g.ends) <= h.Pairs.Len() {
		g.ends, g.all = append(g.ends, int64(len(g.ends))), append(g.all, int32(len(g.all)))
	}
	g.group, g.bounds = g.group[:0], append(g.bounds[:0], 0)
	for i, end := range h.PairEnds {
		for len(g.group) < int(end) {
			g.group = append(g.group, int32(i))
		}
		g.bounds = append(g.bounds, int64(end))
	}
}

// vectorsOf returns the vectors that score pairs. There are vectors for each relation.
func (g *relationGATv2) vectorsOf(h *Hop) compute.Vectors {
	n := len(g.names)
	return compute.Vectors{Data: g.att.Data, Stride: g.att.Cols, Ends: h.Ends[:n],
		Sources: h.PairEnds[:n]}
}

func (g *relationGATv2) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	pairs, rows := g.counts(&in.Hop)
	z, n := g.transform(in), pairs+rows
	shifts := g.shifts.matrix(2*len(g.names), g.cols())
	g.dev.CopyColumns(shifts, 0, g.shift, 0, g.cols(), false)
	g.dev.SegmentSum(z, compute.Segments{Indptr: g.ends[:n+1], Indices: g.group}, nil, shifts, true)
	g.dev.EdgeDotSoftmax(g.weights(in), in.Hop.Forward, z.RowsAt(0, pairs), z.RowsAt(pairs, n),
		g.vectorsOf(&in.Hop), g.slope)
	_, sums := g.headSums(rows)
	g.dev.EdgeSum(sums, in.Hop.Forward, g.weights(in), z.RowsAt(0, pairs))
	g.finish(y, in, epilogue)
}

func (g *relationGATv2) Backward(dx *Gradient, dy, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) {
	pairs, rows := g.counts(&in.Hop)
	n := pairs + rows
	z, dz, dalpha := g.z.matrix(n, g.cols()), g.dz.matrix(n, g.cols()), g.rows(g.dalpha, in.edges())
	dsums := g.finishBackward(dy, y, in, epilogue)
	g.dev.EdgeSumBackward(dz.RowsAt(0, pairs), dalpha, in.Transposed, g.weights(in),
		z.RowsAt(0, pairs), dsums)
	g.dev.EdgeDotSoftmaxBackward(dz.RowsAt(0, pairs), dz.RowsAt(pairs, n), g.datt.Data, dalpha,
		in.Hop.Forward, in.Transposed, g.weights(in), z.RowsAt(0, pairs), z.RowsAt(pairs, n),
		g.vectorsOf(&in.Hop), g.slope)
	shifts := g.shifts.matrix(2*len(g.names), g.cols())
	g.dev.SegmentSum(shifts, compute.Segments{Indptr: g.bounds, Indices: g.all[:n]}, nil, dz, false)
	g.dev.CopyColumns(g.dshift, 0, shifts, 0, g.cols(), false)
	g.transformBackward(dx, dz, in)
}
