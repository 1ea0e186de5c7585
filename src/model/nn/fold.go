package nn

import (
	"slices"

	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// Folding saves multiplications in the input layer of a relational model. Without folding, the
// layer multiplies each row by the map of its vertex type. Then it multiplies the means of the
// mapped rows by the weights of a relation. But both multiplications together are one linear map of
// the means of the unmapped rows:
//
//	z = W_r (P_t x + b_t) + b  =  (W_r P_t) x  +  (W_r b_t + b)
//	x    mean of rows of type t, [Features[t]]; P_t, b_t: map of the type; W_r, b: the relation's
//
// So if all input rows of a minibatch are either means by relation or destinations' own rows, each
// of them is multiplied only once in forward and once in backward. Mapped rows and their gradients
// are not needed. Let dC be the gradient of a group's W_r P_t, and dc that of its bias. Then the
// gradients of the parameters are:
//
//	dW_r = dC P_tᵀ + dc b_tᵀ      dP_t = sum over groups of W_rᵀ dC      db_t = sum of W_rᵀ dc
type Folding struct {
	Features []int // [T] number of feature columns of each type
	Sources  []int // [R] type of each relation's sources
	In, Out  int   // widths of the layer's input and output rows
	Always   bool  // whether to fold even if it takes more multiplications
}

// Fold says which minibatches are folded in the input layer.
type Fold uint8

// The values of Fold. FoldWherePays folds a minibatch if this takes fewer multiplications.
const (
	FoldWherePays Fold = iota
	// For GPUs. Without folding they launch a fixed number of kernels. With folding they launch
	// several for each relation.
	FoldNever
	FoldAlways
)

// The constant composing is the fixed cost of composing the weights of a group, as a number of
// multiplications. It stands for some six launches of small kernels.
const composing = 1 << 16

// folding returns the Folding of a model's input layer, or nil if the layer is never folded.
func (c Config) folding() *Folding {
	// if there is only one layer, nothing is folded, because the caller may ask for what that layer
	// reads
	if c.Fold == FoldNever || len(c.TypeFeatures) == 0 || c.Layers < 2 {
		return nil
	}
	f := &Folding{Features: c.TypeFeatures, Always: c.Fold == FoldAlways}
	f.In, f.Out = c.Widths(0)
	for r := range c.Schema.NumRelations() {
		source, _ := c.Schema.Ends(r)
		f.Sources = append(f.Sources, source)
	}
	return f
}

// Pays reports whether folding takes fewer multiplications for a minibatch, forward and backward,
// including those that compose the weights. For a vertex type t, the function `rows` returns the
// number of its means and own rows in the minibatch, and sources the number of its sources. Without
// folding, the map of the type is applied to the rows or to the sources, whichever are fewer.
func (f *Folding) Pays(rows, sources func(t int) int) bool {
	if f.Always || slices.Contains(f.Features, 0) {
		return f.Always && !slices.Contains(f.Features, 0)
	}
	folded, mapped := 0, 0
	for _, t := range f.Sources {
		folded += 3*f.Features[t]*f.In*f.Out + composing
	}
	for t, features := range f.Features {
		folded += 3*features*f.In*f.Out + composing // for the group of own rows
		folded += 2 * rows(t) * features * f.Out
		mapped += 2*min(rows(t), sources(t))*features*f.In + 3*rows(t)*f.In*f.Out
	}
	return folded < mapped
}

// folded composes the weights and biases of groups of rows, and computes with them. A vertex type
// has one group for each relation from it, in the order of relations, and after these one group for
// own rows.
type folded struct {
	dev      compute.Device
	project  *projection
	in, out  int
	groups   [][]group // [T] groups of each type
	at       []int     // [T] index in w of the weights of each type's first group
	first    []int     // [T] index of each type's first group among all groups
	w, dw    *buffer   // the matrix [out, features] of each group
	b, db    *buffer   // [groups, out]
	sets     *buffer   // [sets, out] biases of the sets of own weights, then their gradients
	turned   *buffer   // [in, out] a transposed matrix of weights
	elements int
}

// group says which weights a group of rows is multiplied by. These are the weights of a relation
// (its index is `relation`) or, if that index is negative, a set of own weights (its index is
// `set`). If both indices are negative, the group has no rows.
type group struct{ relation, set int }

// newFolded returns the folding of a relational layer whose input rows are mapped by p. It returns
// nil if the layer is never folded.
func newFolded(s *store, c Config, p *projection, own Relating) *folded {
	of := c.folding()
	if of == nil {
		return nil
	}
	f := &folded{dev: s.dev, project: p, in: of.In, out: of.Out,
		groups: make([][]group, len(of.Features)), w: s.buffer(), dw: s.buffer(), b: s.buffer(),
		db: s.buffer(), sets: s.buffer(), turned: s.buffer()}
	for r, t := range of.Sources {
		f.groups[t] = append(f.groups[t], group{r, -1})
	}
	sets, groups := 0, 0
	for t, features := range of.Features {
		g := group{-1, 0}
		if own == OwnByType {
			if g.set = -1; endsIn(&c.Schema, t) {
				g.set = sets
				sets++
			}
		}
		f.groups[t] = append(f.groups[t], g)
		f.first, f.at = append(f.first, groups), append(f.at, f.elements)
		groups += len(f.groups[t])
		f.elements += len(f.groups[t]) * f.out * features
	}
	return f
}

// endsIn reports whether a relation ends in a type.
func endsIn(s *graph.Schema, t int) bool {
	for r := range s.NumRelations() {
		if _, target := s.Ends(r); target == t {
			return true
		}
	}
	return false
}

func (f *folded) count() int { return f.first[len(f.first)-1] + len(f.groups[len(f.groups)-1]) }

func (f *folded) reserve(sets int) error {
	n := f.count() * f.out
	return reserveAll(sized{f.w, f.elements}, sized{f.dw, f.elements}, sized{f.b, n},
		sized{f.db, n}, sized{f.sets, sets * f.out}, sized{f.turned, f.in * f.out})
}

// typeGroups returns the groups of vertex type t in a minibatch, and where their weights lie in the
// buffer w and their biases in the buffer b.
func (f *folded) typeGroups(in *Input, t int) (g compute.Groups, w, b span) {
	features := f.project.maps[t].features
	n := len(f.groups[t])
	return compute.Groups{Ends: in.TypeEnds[t], Stride: f.out * features},
		span{f.at[t], f.at[t] + n*f.out*features},
		span{f.first[t] * f.out, (f.first[t] + n) * f.out}
}

// span is the part [lo,hi) of an array.
type span struct{ lo, hi int }

func (s span) of(x []float32) []float32 { return x[s.lo:s.hi] }

// each calls the function `do` for every group that has rows. It passes the map of the group's
// type, and the weights and biases of the group in the buffers w and b.
func (f *folded) each(w, b *buffer, do func(g group, m *typeMap, w, b compute.Matrix)) {
	for t, groups := range f.groups {
		m := &f.project.maps[t]
		for i, g := range groups {
			if g.relation < 0 && g.set < 0 {
				continue
			}
			size := f.out * m.features
			do(g, m, matrix(w.data[f.at[t]+i*size:][:size], f.out, m.features),
				matrix(b.data[(f.first[t]+i)*f.out:][:f.out], 1, f.out))
		}
	}
}

// weightsOf returns the weights of a group or, if gradient is true, the gradient of these weights.
// The matrix is [out,in], or [in,out] if w.turned() is true.
func (f *folded) weightsOf(g group, w relationWeights, gradient bool) compute.Matrix {
	relations, own, stride, strideOwn := w.weightsOrGradients(gradient)
	at, of := g.relation*stride, relations
	if g.relation < 0 {
		at, of = g.set*strideOwn, own
	}
	rows, cols := f.out, f.in
	if w.turned() {
		rows, cols = cols, rows
	}
	return matrix(of[at:][:rows*cols], rows, cols)
}

// compose computes the weights and biases of all groups, from the maps of vertex types and from the
// weights of the layer, which w prepares.
func (f *folded) compose(w relationWeights) {
	d, sets := f.dev, f.sets.matrix(w.sets(), f.out)
	w.prepare(sets)
	f.each(f.w, f.b, func(g group, m *typeMap, c, b compute.Matrix) {
		of, bias := f.weightsOf(g, w, false), matrix(m.bias, 1, f.in)
		if w.turned() {
			d.MatMulWeights(c, of, m.w)
			d.MatMulInput(b, bias, of, false)
		} else {
			d.MatMulInput(c, of, m.w, false)
			d.MatMul(b, bias, of, false)
		}
		if g.relation < 0 {
			d.CopyColumns(b, 0, sets.RowsAt(g.set, g.set+1), 0, f.out, true)
		}
	})
}

// decompose computes the gradients of the parameters from the gradients of the groups' weights and
// biases. If several types share a set of own weights, its gradients are added in the order of
// types.
func (f *folded) decompose(w relationWeights) {
	d, sets := f.dev, f.sets.matrix(w.sets(), f.out)
	own := 0 // number of sets of own weights that already have a gradient
	for t, groups := range f.groups {
		m := &f.project.maps[t]
		first := true
		f.eachOf(t, groups, func(g group, dc, db compute.Matrix) {
			of, dw := f.weightsOf(g, w, false), f.weightsOf(g, w, true)
			add := g.relation < 0 && g.set < own
			f.split(w, m, of, dw, dc, db, add, !first)
			first = false
			if g.relation < 0 {
				d.CopyColumns(sets.RowsAt(g.set, g.set+1), 0, db, 0, f.out, add)
				own = max(own, g.set+1)
			}
		})
	}
	w.finish(sets)
}

// eachOf calls the function `do` for every group of type t that has rows. It passes the gradients
// of the group's weights and bias.
func (f *folded) eachOf(t int, groups []group, do func(g group, dc, db compute.Matrix)) {
	features := f.project.maps[t].features
	size := f.out * features
	for i, g := range groups {
		if g.relation >= 0 || g.set >= 0 {
			do(g, matrix(f.dw.data[f.at[t]+i*size:][:size], f.out, features),
				matrix(f.db.data[(f.first[t]+i)*f.out:][:f.out], 1, f.out))
		}
	}
}

// split computes the gradient of a group's weights in the layer, and of the map of the group's
// vertex type. If add is true, it adds to the gradient of the weights, otherwise it overwrites
// this. The argument `addMap` means the same for the map.
func (f *folded) split(w relationWeights, m *typeMap, of, dw, dc, db compute.Matrix, add,
	addMap bool) {
	d, bias, dbias := f.dev, matrix(m.bias, 1, f.in), matrix(m.dbias, 1, f.in)
	column := func(row compute.Matrix) compute.Matrix { return matrix(row.Data, row.Cols, 1) }
	if w.turned() { // dw is [in,out]
		d.MatMul(dw, m.w, dc, add)
		d.MatMulInput(dw, column(bias), db, true)
		d.MatMulInput(m.dw, of, dc, addMap)
		d.MatMul(dbias, db, of, addMap)
		return
	}
	d.MatMul(dw, dc, m.w, add)
	d.MatMulInput(dw, column(db), bias, true)
	turned := f.turned.matrix(f.in, f.out)
	d.Transpose(turned, of)
	d.MatMulInput(m.dw, turned, dc, addMap)
	d.MatMulInput(dbias, db, of, addMap)
}

// forward sets z [rows, out] from the means and own rows of all types.
func (f *folded) forward(z compute.Matrix, w relationWeights, in *Input) {
	f.compose(w)
	at := 0
	for t, x := range in.Types {
		g, weights, biases := f.typeGroups(in, t)
		f.dev.GroupDense(z.RowsAt(at, at+x.Rows), x, weights.of(f.w.data), biases.of(f.b.data), g)
		at += x.Rows
	}
}

// backward sets the gradients of the parameters from dz, the gradient of z.
func (f *folded) backward(dz compute.Matrix, w relationWeights, in *Input) {
	at := 0
	for t, x := range in.Types {
		g, weights, biases := f.typeGroups(in, t)
		f.dev.GroupDenseBackward(weights.of(f.dw.data), biases.of(f.db.data),
			dz.RowsAt(at, at+x.Rows), x, g)
		at += x.Rows
	}
	f.decompose(w)
}

// rowGradient sets drows to the gradient of the input rows of type t. The argument `dz` has the
// gradient of the rows of z that were computed from these input rows.
func (f *folded) rowGradient(drows compute.Matrix, t int, dz compute.Matrix, in *Input) {
	g, weights, _ := f.typeGroups(in, t)
	f.dev.GroupMatMulInput(drows, dz, weights.of(f.w.data), g)
}
