package nn

import (
	"slices"

	"halognn/src/devices/compute"
)

// Needs says which rows a layer reads. The input layer gets only these rows. Other rows are neither
// gathered nor copied to the device.
type Needs struct {
	Own bool // whether the layer reads the row of every destination (Input.Own)
	// How the rows of every destination's in-neighbours are reduced to one row (Input.Aggregate).
	// If it is a sum, it is weighted as Weights says.
	Aggregate compute.Reduction
	// Whether the layer multiplies Own and Aggregate in one product. On a device with
	// compute.PairKernels they then come side by side in Input.Aggregate.
	Joined bool
	// Whether the layer reads the rows of all sources (Input.X): it aggregates them by parameters.
	Sources bool
	// Whether the rows of sources come in a matrix for each vertex type (Input.Types). The sources
	// are then in the order of the types.
	Types bool
	// Whether the rows of a type may be replaced by their means by relation, because the layer only
	// applies a linear map to them.
	Averages bool
	// If not nil, the rows of all types are replaced by means (Hop.Folded) in those minibatches in
	// which this takes fewer multiplications.
	Folding *Folding

	// The fields below say what the hops of all layers must have.
	SelfEdges bool // each destination's segment begins with an edge from the destination itself
	// Hop.Transposed is needed even for the input layer, and its Segments.Edges for all layers.
	Transposed bool
	Relations  Relating  // how Hop.Ends, OwnEnds, Targets and RowsOf divide the segments
	Weights    Weighting // how Hop.Weights and TransposedWeights are made
	EdgeRows   bool      // whether Hop.EdgeRows is needed
	// Whether the weights in Hop.Weights are computed from the edge weights in the data.
	OfData bool
}

// Copies reports whether hops copy the sampled edges, to add edges or to sort them by relation.
func (n Needs) Copies() bool { return n.SelfEdges || n.Relations != NoRelations }

// OnlySums reports whether the layer reads rows of neighbours only for a sum, mean or maximum.
func (n Needs) OnlySums() bool { return n.Aggregate != compute.NoReduction && !n.Sources }

// Sums reports whether the layer only applies a linear map to rows, or to their sums or means.
func (n Needs) Sums() bool { return !n.Sources && n.Aggregate != compute.ReduceMax }

// Relating says whether a hop has a segment for each destination, or for each destination and
// relation.
type Relating uint8

// With all other values than NoRelations and Paired, every destination has one more segment, its
// own, with one edge from the destination itself. All own segments come after those of relations.
const (
	NoRelations Relating = iota
	OwnTogether          // all own segments are one group
	OwnByType            // own segments form a group for each type in which relations end
	// There are no own segments. Edges lead from pairs of a source and a relation (Hop.Pairs).
	Paired
)

// Weighting says how the weight of an edge in a hop is computed.
type Weighting uint8

// The values of Weighting. In them, "weight" is the weight of the edge in the data, or 1 if edges
// have no weights. An edge from a vertex to itself has the weight 1. If the sampler knows the
// probability with which it drew an edge, the weight is divided by this probability, and sums of
// weights are over all in-edges in the whole graph. Sums over drawn edges are then unbiased
// estimates of the sums over all edges.
const (
	NoWeights    Weighting = iota
	WeightsPlain           // the weight
	// The weight divided by the sum of the weights into the destination, so that weighted sums are
	// means.
	WeightsMean
	// The weighting of GCN: the weight divided by the square root of the product of the sums of
	// weights at both ends, in the whole graph.
	WeightsSymmetric
)

// Hop is the topology that one layer works on. Its destinations are also its first sources.
type Hop struct {
	Sources, Destinations int
	// Number of rows that the caller will put after the rows of the layer's output. Other ranks
	// have computed these rows, and the next layer reads them as further sources.
	Others int
	// For each destination, the indices of its in-neighbours. Not read if Input.Aggregate is given.
	Forward compute.Segments
	// For each source, its destinations. Read if Input.Gradient or Needs.Transposed is set.
	Transposed compute.Segments
	// [E] Weights of the edges of Forward, in host memory; nil if Needs.Weights is NoWeights.
	Weights           []float32
	TransposedWeights []float32      // [E] weights of the edges of Transposed
	EdgeRows          compute.Matrix // [E, EdgeIn] features of the edges of Forward
	// Number of edges of Forward. Reserve uses it if Forward is not given.
	Edges int
	// Numbers of segments of Forward and of Pairs. Reserve uses them if Forward and Pairs are not
	// given. If they are 0, Reserve uses an upper bound.
	Rows, PairRows int
	// [Destinations] Ids in the dataset, which are keys for drawing dropout bits. It is nil if no
	// activations are dropped.
	Vertices []int32
	Dropout  compute.DropoutKey // key of this layer's dropout bits in this minibatch

	// The fields below are used if Needs.Relations is set. Forward then has a segment for each
	// destination and relation. The indices of Transposed are numbers of these segments.
	Ends []int32 // [R] 1 + last segment of each relation; own segments come after the last relation
	// [sets] 1 + last segment of each group of own segments, counted from the first own segment.
	OwnEnds []int32
	// Targets lists, for each destination, its segments and then the number S+g. Here S is the
	// number of all segments, and g is the destination's group of own segments. RowsOf is the
	// reverse: it lists the destinations of each segment and of each group.
	Targets, RowsOf compute.Segments
	// Folded is true if the input layer reads means and own rows of each type instead of all rows.
	// The layer's z then has a row for each of these, without biases, and Targets refers to them.
	// TypeEnds [T] lists, for each type, 1 + last row of each relation from the type, and then 1 +
	// last own row, counted from the type's first row. Only the length of Forward is read.
	Folded   bool
	TypeEnds [][]int32
	// If Needs.Relations is Paired, the indices of Forward are numbers of pairs of a source and a
	// relation, sorted by relation. Pairs has the source of each pair, and then the destination of
	// each segment, both as indices among the sources. PairsOf lists each source's entries in
	// Pairs. PairEnds [2R] has 1 + last pair of every relation, then 1 + last segment of every one.
	Pairs, PairsOf compute.Segments
	PairEnds       []int32
}

func (h *Hop) edges() int { return max(h.Edges, len(h.Forward.Indices)) }

// edgeRows returns the features of the edges. If there are no edges, the matrix has cols columns.
func (h *Hop) edgeRows(cols int) compute.Matrix {
	if h.EdgeRows.Cols == 0 {
		return compute.Matrix{Cols: cols}
	}
	return h.EdgeRows
}

// Input is what one layer reads of a minibatch. It has the rows X of all sources; or Own and
// Aggregate, or the one of them that the layer needs; or Shares.
type Input struct {
	Hop
	X compute.Matrix // [Sources, in]
	// Rows of each vertex type, from which the model makes X for the input layer.
	Types []compute.Matrix
	Own   compute.Matrix // [Destinations, in]
	// [Destinations, in] The layer does not change it. For a layer with Needs.Joined it may be
	// [Destinations, 2 in]: own rows, and beside them the aggregates.
	Aggregate compute.Matrix
	Sparse    Sparse // sparse rows, which the input layer reads instead of Own and Aggregate
	// Matrices [Destinations, width] that Columns has computed, to be added in this order. If they
	// are given, the input layer reads no rows. Forward overwrites the first share. Backward
	// returns the gradient of the sum of the shares.
	Shares []compute.Matrix
	// Gather is needed if several ranks have rows of the minibatch, for norms over all its rows. It
	// is nil if this rank has all rows.
	Gather   Gather
	Train    bool // whether this is training, with dropout and a backward pass
	Gradient bool // whether backward also returns the gradient of X
	Partial  bool // whether other ranks add to the gradient of X, so that it is not complete yet
}

// Gather returns the numbers that ranks pass to it (`own`), for all ranks that have rows of the
// minibatch, in rank order. The result is valid until the next call. All these ranks must make the
// same calls. In the backward pass, `backward` is true.
type Gather func(own []float32, backward bool) (all []float32, err error)

// gradient returns the size of the gradient that backward returns if in.Gradient is set. The
// argument `cols` is the number of columns of the input rows.
func (in *Input) gradient(cols int) (rows, width int) {
	if len(in.Shares) > 0 {
		return in.Destinations, in.Shares[0].Cols
	}
	return in.Sources, cols
}

// ownRows returns the rows of the destinations.
func (in *Input) ownRows() compute.Matrix {
	if in.Own.Cols > 0 {
		return in.Own
	}
	return in.X.RowsAt(0, in.Destinations)
}

// Layer is the convolution of one layer: it turns the rows of one hop's sources into rows of its
// destinations. What Backward reads, such as aggregates or attention weights, is kept in buffers of
// the model's store, so the caller has to keep only Input. Normalisation is not part of a Layer.
// The epilogue (activation and dropout) is passed to Forward and Backward, because devices apply it
// fastest while the rows are in the processor's cache.
type Layer interface {
	// Params declares the parameters.
	Params() []Param
	// Bind sets the arrays of the parameters' values and gradients, in the order of Params.
	Bind(values, grads [][]float32)
	// Needs says which rows Forward reads.
	Needs() Needs
	// Reserve makes room for a forward pass over in and, if in.Train is set, for a backward pass.
	// It fails only if device memory runs out. After Reserve, Forward and Backward cannot fail.
	Reserve(in *Input) error
	// Flops returns the number of multiplications and additions in the matrix products of Forward
	// and Backward on a hop. It reads only the counts of the hop. The argument `gradient` is
	// Input.Gradient.
	Flops(h *Hop, gradient bool) int
	// Forward sets y [Destinations, out], and applies the epilogue to it.
	Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue)
	// Backward backpropagates dy [Destinations, out], the gradient with respect to y, through the
	// epilogue in place. From the result it computes the gradients of the parameters. These are
	// complete after Device.Settle. If in.Gradient is set, it also computes dx (see Gradient).
	// Forward must have run before on the same input, with the result y.
	Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue)
}

// makesArrays is implemented by a layer that makes host arrays for its kernels in every step.
type makesArrays interface{ makesArrays() }

// MakesArrays reports whether a layer of the model makes host arrays for its kernels in every step.
func (m *Model) MakesArrays() bool {
	return slices.ContainsFunc(m.stages, func(s stage) bool {
		_, makes := s.Layer.(makesArrays)
		return makes
	})
}

// steady is implemented by a layer whose kernels read host arrays that stay the same for all
// minibatches.
type steady interface{ steady() []compute.Segments }

// Steady returns the host arrays that kernels read in every minibatch and that never change.
func (m *Model) Steady() (all []compute.Segments) {
	for _, s := range m.stages {
		if l, ok := s.Layer.(steady); ok {
			all = append(all, l.steady()...)
		}
	}
	return all
}
