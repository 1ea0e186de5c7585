package nn

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/devices/compute"
)

// relational is a layer that gives every relation weights of its own (Schlichtkrull et al.,
// Modeling Relational Data with Graph Convolutional Networks, ESWC 2018). There is a row for each
// pair of a destination and a relation by which this destination has in-edges. Each destination
// also has a row for itself:
//
//	agg  [rows + D, in]        means over in-edges, or weighted sums that estimate them;
//	                           then the destinations' own rows
//	z    [rows + D + S, out]   rows of agg times the weights of their relation, or own weights;
//	                           then biases
//	y    [D, out]              for each destination, the sum of its rows of z
//
// So a layer launches a fixed number of kernels, however many relations there are. S is the number
// of sets of own weights and biases: one set for all vertices, or one for each vertex type in which
// relations end.
//
// A minibatch of a graph with types may be folded (see Folding). Then z has a row for each mean and
// own row of each type, and no biases. Backward returns the gradient of z instead of dx.
type relational struct {
	dev     compute.Device
	in, out int
	weights relationWeights
	weighs  bool // whether weighted sums over edges are used instead of means
	ofData  bool // whether the weights of edges are computed from the weights in the data

	folds *folded // nil if rows are never folded

	agg, z, dagg *buffer
	// [2, out] the bias that Finish adds, which stays zero because z has the biases; its gradient
	zeros *buffer
}

// relationWeights are the parameters of a relational layer.
type relationWeights interface {
	params() []Param
	bind(values, grads [][]float32)
	relations() int
	sets() int
	own() Relating // how destinations' own rows are grouped into sets
	// turned reports whether matrices of weights are [in,out] and not [out,in]
	turned() bool
	reserve() error
	// prepare computes the weights of relations and of sets in the form that kernels read. It
	// writes the biases of the sets to bias [sets,out].
	prepare(bias compute.Matrix)
	// weightsOrGradients returns the weights of relations and the own weights of sets. If gradient
	// is true, it returns the gradients of these instead. A stride is the distance in elements from
	// one matrix to the next.
	weightsOrGradients(gradient bool) (relations, own []float32, strideRelations, strideOwn int)
	// finish completes the gradients of the parameters. The argument `dbias` has the gradients of
	// the biases of the sets.
	finish(dbias compute.Matrix)
}

func newRelational(s *store, c Config, l int, w relationWeights) Layer {
	in, out := c.Widths(l)
	return &relational{dev: s.dev, in: in, out: out, weights: w, weighs: c.EdgeWeights ||
		c.Estimates, ofData: c.EdgeWeights, agg: s.rows(), z: s.buffer(), dagg: s.buffer(),
		zeros: s.buffer()}
}

func (r *relational) steady() []compute.Segments {
	if w, ok := r.weights.(steady); ok {
		return w.steady()
	}
	return nil
}

func (r *relational) Params() []Param                { return r.weights.params() }
func (r *relational) Bind(values, grads [][]float32) { r.weights.bind(values, grads) }

func (r *relational) Needs() Needs {
	n := Needs{Sources: true, Transposed: true, Relations: r.weights.own(), OfData: r.ofData}
	if r.weighs {
		n.Weights = WeightsMean
	}
	return n
}

// rowCounts returns the number of rows of agg that belong to relations, and the number of all rows
// of z.
func (r *relational) rowCounts(h *Hop) (relations, all int) {
	// an upper bound, which is used if only counts are known
	n := min(h.Edges, h.Destinations*(r.weights.relations()+1))
	if h.Rows > 0 {
		n = h.Rows
	}
	if h.Forward.Indptr != nil {
		n = h.Forward.Len()
	}
	return n - h.Destinations, n + r.weights.sets()
}

func (r *relational) Reserve(in *Input) error {
	relations, all := r.rowCounts(&in.Hop)
	if in.Folded {
		return errors.Join(r.z.reserve((relations+in.Destinations)*r.out), r.zeros.reserve(2*r.out),
			r.weights.reserve(), r.folds.reserve(r.weights.sets()))
	}
	n := relations + in.Destinations
	err := reserveAll(sized{r.agg, n * r.in}, sized{r.z, all * r.out}, sized{r.zeros, 2 * r.out})
	if err == nil && in.Gradient {
		err = r.dagg.reserve(n * r.in)
	}
	if err == nil {
		err = r.weights.reserve()
	}
	return err
}

func (r *relational) Flops(h *Hop, gradient bool) int {
	relations, _ := r.rowCounts(h)
	return 2 * passes(gradient) * (relations + h.Destinations) * r.in * r.out
}

// groups returns the groups of the rows that belong to relations, and the groups of own rows. It
// also returns the weights of both, or their gradients.
func (r *relational) groups(h *Hop, gradient bool) (relations, own compute.Groups, w,
	wOwn []float32) {
	n := r.weights.relations()
	w, wOwn, stride, strideOwn := r.weights.weightsOrGradients(gradient)
	return compute.Groups{Ends: h.Ends[:n], Stride: stride},
		compute.Groups{Ends: h.OwnEnds, Stride: strideOwn}, w, wOwn
}

func (r *relational) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	relations, all := r.rowCounts(&in.Hop)
	n := relations + in.Destinations
	if in.Folded {
		z := r.z.matrix(n, r.out)
		r.folds.forward(z, r.weights, in)
		r.dev.SegmentSum(y, in.Targets, nil, z, false)
		r.dev.Finish(y, y, r.zeros.data[:r.out], epilogue)
		return
	}
	agg, z := r.agg.matrix(n, r.in), r.z.matrix(all, r.out)
	r.weights.prepare(z.RowsAt(n, all))
	if r.weighs {
		r.dev.SegmentSum(agg, in.Hop.Forward, in.Weights, in.X, false)
	} else {
		r.dev.SegmentMean(agg, in.Hop.Forward, in.X)
	}
	g, own, w, wOwn := r.groups(&in.Hop, false)
	product := r.dev.GroupMatMul
	if r.weights.turned() {
		product = r.dev.GroupMatMulInput
	}
	product(z.RowsAt(0, relations), agg.RowsAt(0, relations), w, g)
	product(z.RowsAt(relations, n), agg.RowsAt(relations, n), wOwn, own)
	r.dev.SegmentSum(y, in.Targets, nil, z, false)
	// the bias is zero, because z already has the biases
	r.dev.Finish(y, y, r.zeros.data[:r.out], epilogue)
}

func (r *relational) Backward(dx *Gradient, dy, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) {
	relations, all := r.rowCounts(&in.Hop)
	n := relations + in.Destinations
	r.dev.FinishBackward(r.zeros.data[r.out:2*r.out], dy, y, epilogue)
	if in.Folded {
		dz := r.z.matrix(n, r.out)
		r.dev.SegmentSum(dz, in.RowsOf, nil, dy, false)
		r.folds.backward(dz, r.weights, in)
		dx.Matrix = dz
		return
	}
	agg, dz := r.agg.matrix(n, r.in), r.z.matrix(all, r.out)
	r.dev.SegmentSum(dz, in.RowsOf, nil, dy, false)
	g, own, dw, dwOwn := r.groups(&in.Hop, true)
	_, _, w, wOwn := r.groups(&in.Hop, false)
	dzOf, aggOf := [2]compute.Matrix{dz.RowsAt(0, relations), dz.RowsAt(relations, n)},
		[2]compute.Matrix{agg.RowsAt(0, relations), agg.RowsAt(relations, n)}
	back := r.dev.GroupMatMulInput
	if r.weights.turned() {
		back = r.dev.GroupMatMul
		r.dev.GroupMatMulWeights(dw, aggOf[0], dzOf[0], g)
		r.dev.GroupMatMulWeights(dwOwn, aggOf[1], dzOf[1], own)
	} else {
		r.dev.GroupMatMulWeights(dw, dzOf[0], aggOf[0], g)
		r.dev.GroupMatMulWeights(dwOwn, dzOf[1], aggOf[1], own)
	}
	r.weights.finish(dz.RowsAt(n, all))
	if in.Gradient {
		dagg := r.dagg.matrix(n, r.in)
		back(dagg.RowsAt(0, relations), dzOf[0], w, g)
		back(dagg.RowsAt(relations, n), dzOf[1], wOwn, own)
		end := dx.completion(r.dev, dy, compute.Matrix{})
		if r.weighs {
			r.dev.SegmentSumCompleted(dx.Matrix, in.Transposed, in.TransposedWeights, dagg, end)
		} else {
			r.dev.SegmentMeanBackward(dx.Matrix, in.Hop.Forward, in.Transposed, dagg, end)
		}
	}
}

// reduces implements reduces.
func (r *relational) reduces() bool { return true }

// rgcn has the weights of RGCNConv of PyTorch Geometric: a matrix and a bias for own rows, and a
// matrix W_r for each relation. If there are bases, W_r is a combination of matrices that all
// relations share: W_r = sum_b comp_rb V_b.
type rgcn struct {
	dev                      compute.Device
	name                     string
	in, out, matrices, bases int // matrices: the number of relations
	// [matrices, in*out]; if there are bases, [bases, in*out]
	w, dw               compute.Matrix
	comp, dcomp         compute.Matrix // [matrices, bases]
	root, droot         []float32      // [in,out]
	bias, dbias         []float32
	combined, dcombined *buffer // [matrices, in*out]
}

func newRGCN(s *store, c Config, l int) Layer {
	in, out := c.Widths(l)
	w := &rgcn{dev: s.dev, name: fmt.Sprintf("convs.%d", l), in: in, out: out,
		matrices: c.Schema.NumRelations(), bases: c.Bases, combined: s.buffer(),
		dcombined: s.buffer()}
	return newRelational(s, c, l, w)
}

func (w *rgcn) relations() int { return w.matrices }
func (w *rgcn) sets() int      { return 1 }
func (w *rgcn) own() Relating  { return OwnTogether }
func (w *rgcn) turned() bool   { return true }

func (w *rgcn) params() []Param {
	n := w.matrices
	var all []Param
	if w.bases > 0 {
		n = w.bases
		all = append(all, glorot(w.name+".comp", w.matrices, w.bases))
	}
	return append(all, glorot(w.name+".weight", n, w.in, w.out),
		glorot(w.name+".root", w.in, w.out), constant(w.name+".bias", w.out, 0))
}

func (w *rgcn) bind(values, grads [][]float32) {
	size, n := w.in*w.out, w.matrices
	if w.bases > 0 {
		n = w.bases
		w.comp, w.dcomp = matrix(values[0], w.matrices, w.bases),
			matrix(grads[0], w.matrices, w.bases)
		values, grads = values[1:], grads[1:]
	}
	w.w, w.dw = matrix(values[0], n, size), matrix(grads[0], n, size)
	w.root, w.droot, w.bias, w.dbias = values[1], grads[1], values[2], grads[2]
}

func (w *rgcn) reserve() error {
	if w.bases == 0 {
		return nil
	}
	n := w.matrices * w.in * w.out
	return reserveAll(sized{w.combined, n}, sized{w.dcombined, n})
}

func (w *rgcn) prepare(bias compute.Matrix) {
	if w.bases > 0 {
		w.dev.MatMulInput(w.combined.matrix(w.matrices, w.in*w.out), w.comp, w.w, false)
	}
	w.dev.CopyColumns(bias, 0, matrix(w.bias, 1, w.out), 0, w.out, false)
}

func (w *rgcn) weightsOrGradients(gradient bool) (relations, own []float32, strideRelations,
	strideOwn int) {
	size := w.in * w.out
	relations, own = w.w.Data, w.root
	if gradient {
		relations, own = w.dw.Data, w.droot
	}
	if w.bases > 0 && gradient {
		relations = w.dcombined.data
	} else if w.bases > 0 {
		relations = w.combined.data
	}
	return relations, own, size, size
}

func (w *rgcn) finish(dbias compute.Matrix) {
	if w.bases > 0 {
		d := w.dcombined.matrix(w.matrices, w.in*w.out)
		w.dev.MatMul(w.dcomp, d, w.w, false)
		w.dev.MatMulWeights(w.dw, w.comp, d)
	}
	w.dev.CopyColumns(matrix(w.dbias, 1, w.out), 0, dbias, 0, w.out, false)
}

// eachRelation is used by all layers that have a convolution for each relation and add the results,
// as HeteroConv of PyTorch Geometric does.
//
// A kind of parameters has one parameter for each relation. The distance between them is the same
// number of elements, so that one kernel can read them all.
type eachRelation struct {
	names []string
	// Two lists: into has the relations of each set, and from has the set of each relation.
	into, from compute.Segments
}

func newEachRelation(c Config, l int) (e eachRelation) {
	e.into.Indptr, e.from.Indptr = []int64{0}, []int64{0}
	ending := make([][]int32, c.Schema.NumTypes()) // the relations that end in each vertex type
	for r, rel := range c.Schema.Relations {
		e.names = append(e.names, fmt.Sprintf("convs.%d.convs.<%s___%s___%s>", l, rel.Source,
			rel.Name, rel.Target))
		_, target := c.Schema.Ends(r)
		ending[target] = append(ending[target], int32(r))
		e.from.Indptr = append(e.from.Indptr, int64(r+1))
	}
	e.from.Indices = make([]int32, len(e.names))
	for _, relations := range ending {
		if len(relations) == 0 {
			continue
		}
		for _, r := range relations {
			e.from.Indices[r] = int32(e.into.Len())
		}
		e.into.Indices = append(e.into.Indices, relations...)
		e.into.Indptr = append(e.into.Indptr, int64(len(e.into.Indices)))
	}
	return e
}

func (e *eachRelation) steady() []compute.Segments {
	return []compute.Segments{e.into, e.from}
}

// each declares one parameter for every relation.
func (e *eachRelation) each(suffix string, declare func(name string) Param) (all []Param) {
	for _, name := range e.names {
		all = append(all, declare(name+suffix))
	}
	return all
}

// reach returns the parameters of several kinds as one matrix, with a row for each parameter. The
// kinds have the numbers kind to kind+kinds-1. Each parameter has size elements. One array contains
// all of them, because parameters follow each other in memory at aligned addresses.
func (e *eachRelation) reach(of [][]float32, kind, kinds, size int) compute.Matrix {
	n, stride := len(e.names), aligned(size)
	return matrix(of[kind*n][:kinds*n*stride], kinds*n, stride)
}

// relationSAGE has the weights of a SAGEConv for each relation. Relations that end in the same type
// multiply the same own rows. So their matrices for own rows are added first, and so are their
// biases.
type relationSAGE struct {
	eachRelation
	dev                  compute.Device
	in, out              int
	neigh, dneigh        []float32
	self, dself          compute.Matrix // [relations, stride]
	bias, dbias          compute.Matrix // [relations, stride]
	summed, dsummed      *buffer        // [sets, stride]
	biases, wide         *buffer        // [sets, stride]
	stride, strideOfBias int
}

func newRelationSAGE(s *store, c Config, l int) Layer {
	w := &relationSAGE{eachRelation: newEachRelation(c, l), dev: s.dev, summed: s.buffer(),
		dsummed: s.buffer(), biases: s.buffer(), wide: s.buffer()}
	w.in, w.out = c.Widths(l)
	w.stride, w.strideOfBias = aligned(w.in*w.out), aligned(w.out)
	return newRelational(s, c, l, w)
}

func (w *relationSAGE) relations() int { return len(w.names) }
func (w *relationSAGE) sets() int      { return w.into.Len() }
func (w *relationSAGE) own() Relating  { return OwnByType }
func (w *relationSAGE) turned() bool   { return false }

func (w *relationSAGE) params() []Param {
	of := func(name string) Param { return weight(name, w.out, w.in) }
	return slices.Concat(w.each(".lin_l.weight", of),
		w.each(".lin_l.bias", func(name string) Param { return bias(name, w.out, w.in) }),
		w.each(".lin_r.weight", of))
}

func (w *relationSAGE) bind(values, grads [][]float32) {
	size := w.in * w.out
	w.neigh, w.dneigh = w.reach(values, 0, 1, size).Data, w.reach(grads, 0, 1, size).Data
	w.bias, w.dbias = w.reach(values, 1, 1, w.out), w.reach(grads, 1, 1, w.out)
	w.self, w.dself = w.reach(values, 2, 1, size), w.reach(grads, 2, 1, size)
}

func (w *relationSAGE) reserve() error {
	n := w.sets() * w.stride
	return reserveAll(sized{w.summed, n}, sized{w.dsummed, n},
		sized{w.biases, w.sets() * w.strideOfBias}, sized{w.wide, w.sets() * w.strideOfBias})
}

func (w *relationSAGE) prepare(bias compute.Matrix) {
	w.dev.SegmentSum(w.summed.matrix(w.sets(), w.stride), w.into, nil, w.self, false)
	biases := w.biases.matrix(w.sets(), w.strideOfBias)
	w.dev.SegmentSum(biases, w.into, nil, w.bias, false)
	w.dev.CopyColumns(bias, 0, biases, 0, w.out, false)
}

func (w *relationSAGE) weightsOrGradients(gradient bool) (relations, own []float32, strideRelations,
	strideOwn int) {
	if gradient {
		return w.dneigh, w.dsummed.data, w.stride, w.stride
	}
	return w.neigh, w.summed.data, w.stride, w.stride
}

func (w *relationSAGE) finish(dbias compute.Matrix) {
	w.dev.SegmentSum(w.dself, w.from, nil, w.dsummed.matrix(w.sets(), w.stride), false)
	wide := w.wide.matrix(w.sets(), w.strideOfBias) // the columns after the bias stay zero
	w.dev.CopyColumns(wide, 0, dbias, 0, w.out, false)
	w.dev.SegmentSum(w.dbias, w.from, nil, wide, false)
}
