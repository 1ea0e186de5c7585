package nn

import (
	"slices"

	"halognn/src/devices/compute"
)

// Needs says which rows a layer reads. An input layer gets only these: rows that it does not need
// are neither gathered nor copied to the device.
type Needs struct {
	Own bool // the row of every destination (Input.Own)
	// How the rows of every destination's in-neighbours are reduced to one row (Input.Aggregate). A
	// sum is weighted as the field Weights says.
	Aggregate compute.Reduction
	// Own and Aggregate are multiplied together: on a device with compute.PairKernels they come
	// side by side (Input.Aggregate).
	Joined bool
	// The rows of all sources (Input.X), because aggregation depends on parameters.
	Sources bool
	// The rows of sources come type by type (Input.Types), and sources are in the order of the
	// types.
	Types bool
	// The rows of a type may come averaged by relation, because the layer only applies a linear map
	// to them.
	Averages bool
	// If set, the rows of all types come averaged (Hop.Folded) in those minibatches in which this
	// takes fewer multiplications.
	Folding *Folding

	// What the hops of all layers must have:
	SelfEdges bool // each destination's segment begins with an edge from the destination itself
	// Hop.Transposed even for the input layer, and its Segments.Edges for all layers.
	Transposed bool
	Relations  Relating  // Hop.Ends, OwnEnds, Targets and RowsOf
	Weights    Weighting // Hop.Weights and TransposedWeights
	EdgeRows   bool      // Hop.EdgeRows
	// The weights in Hop.Weights are computed from the edge weights in the data.
	OfData bool
}

// Copies reports whether hops have copies of the sampled edges, with further edges among them.
func (n Needs) Copies() bool { return n.SelfEdges || n.Relations != NoRelations }

// OnlySums reports whether the layer reads rows of neighbours only for a sum, mean or maximum.
func (n Needs) OnlySums() bool { return n.Aggregate != compute.NoReduction && !n.Sources }

// Sums reports whether the layer reads rows only for a linear map of the rows, or of their sums or
// means.
func (n Needs) Sums() bool { return !n.Sources && n.Aggregate != compute.ReduceMax }

// Relating says whether a hop has a segment for each destination, or for each destination and
// relation.
type Relating uint8

// With relations every destination has one more segment, called its own segment, with one edge from
// the destination itself. All own segments come after those of the relations.
const (
	NoRelations Relating = iota
	OwnTogether          // all own segments are one group
	OwnByType            // own segments form a group for each type in which relations end
	// There are no own segments. Edges lead from pairs of a source and a relation (Hop.Pairs).
	Paired
)

// Weighting says how the weights of edges are made.
type Weighting uint8

// The values of Weighting. The weight of an edge is its weight in the data, or 1 if the data has
// none. An edge from a vertex to itself has the weight 1. If the sampler knows the probability with
// which it drew an edge, the weight is divided by this probability, and the sums below are over all
// in-edges in the whole graph. The results are then unbiased estimates of the results with all
// edges.
const (
	NoWeights    Weighting = iota
	WeightsPlain           // the weight of the edge
	// The weight divided by the sum of the weights into the destination, so that weighted sums are
	// means.
	WeightsMean
	// The weighting of GCN: the weight divided by the square root of the product of the sums of
	// weights at both ends, in the whole graph.
	WeightsSymmetric
)

// Hop is the topology that one layer works on. The destinations are also the first sources.
type Hop struct {
	Sources, Destinations int
	// Number of rows that the caller will put after the rows of the layer's output. They are
	// further sources of the next layer, which other ranks have computed.
	Others int
	// In-neighbours by destination. Not read if Input.Aggregate is given.
	Forward compute.Segments
	// Destinations by source. Backward reads it if Input.Gradient or Needs.Transposed is set.
	Transposed compute.Segments
	// [E] Weights of the edges of Forward, in host memory; nil if Needs.Weights asks for none.
	Weights           []float32
	TransposedWeights []float32      // [E] weights of the edges of Transposed
	EdgeRows          compute.Matrix // [E, EdgeIn] features of the edges of Forward
	// Number of edges of Forward, for Reserve if Forward is not given.
	Edges int
	// Numbers of segments of Forward and of Pairs, for Reserve if these are not given. If 0,
	// Reserve uses an upper bound.
	Rows, PairRows int
	// [Destinations] Ids in the dataset, from which dropout bits are drawn; nil if nothing is
	// dropped.
	Vertices []int32
	Dropout  compute.DropoutKey // key of this layer's dropout bits in this minibatch

	// With Needs.Relations, Forward has a segment for each destination and relation, and the
	// indices of Transposed are numbers of these segments.
	Ends []int32 // [R] 1 + last segment of each relation; own segments come after all these
	// [S] 1 + last segment of each group of own segments, counted from the first own segment.
	OwnEnds []int32
	// Targets lists for each destination its segments and then S+g. Here S is the number of all
	// segments, and g is the group of own segments of the destination or of its type. RowsOf lists
	// the destinations of each segment and group.
	Targets, RowsOf compute.Segments
	// Folded says that the input layer reads the rows of all types averaged. Its z has these rows,
	// without biases, and Targets refers to them. TypeEnds [T] divides the rows of each type: it
	// lists 1 + last row of each relation from the type, in order, and 1 + last own row, counted
	// from the type's first row. Of Forward only the length is then read.
	Folded   bool
	TypeEnds [][]int32
	// With Paired, the indices of Forward are numbers of pairs of a source and a relation, sorted
	// by relation. Pairs has the index among the sources of each pair's source, then of each
	// segment's destination. PairsOf lists, for each source, its entries in Pairs. PairEnds [2R]
	// lists, for each relation, 1 + last pair, and then, for each relation, 1 + last segment.
	Pairs, PairsOf compute.Segments
	PairEnds       []int32
}

func (h *Hop) edges() int { return max(h.Edges, len(h.Forward.Indices)) }

// edgeRows returns the features of the edges. If there are no edges, the matrix is empty but has
// cols columns.
func (h *Hop) edgeRows(cols int) compute.Matrix {
	if h.EdgeRows.Cols == 0 {
		return compute.Matrix{Cols: cols}
	}
	return h.EdgeRows
}

// Input is what one layer reads of a minibatch: the rows X of all sources, or those of Own and
// Aggregate that the layer needs, or Shares.
type Input struct {
	Hop
	X compute.Matrix // [Sources, in]
	// Rows of each type, from which the model makes X for the input layer.
	Types []compute.Matrix
	Own   compute.Matrix // [Destinations, in]
	// [Destinations, in], which the layer does not change. For a layer that multiplies both
	// together it may have own rows beside them: [Destinations, 2 in].
	Aggregate compute.Matrix
	Sparse    Sparse // sparse rows; the input layer reads them instead of Own and Aggregate
	// The shares that Columns has computed, [Destinations, width] each, to be added in this order.
	// The input layer then reads no rows. Forward overwrites the first share. Backward returns the
	// gradient of the sum of the shares.
	Shares []compute.Matrix
	// Gathers numbers from all ranks that share the minibatch, for norms over all its rows; nil if
	// this rank has all rows.
	Gather   Gather
	Train    bool // training: drop activations, and make room for backward
	Gradient bool // backward also returns the gradient of X
	Partial  bool // other ranks add to that gradient, so it is not complete yet
}

// Gather returns the numbers own of every rank that has rows of the minibatch, in rank order, also
// those of this rank. The result is valid until the next call. All these ranks must make the same
// calls. The argument backward says whether layers run backward or forward.
type Gather func(own []float32, backward bool) (all []float32, err error)

// gradient returns the size of the gradient that backward returns if in.Gradient is set. The input
// rows have cols columns.
func (in *Input) gradient(cols int) (rows, width int) {
	if len(in.Shares) > 0 {
		return in.Destinations, in.Shares[0].Cols
	}
	return in.Sources, cols
}

// own returns the rows of the destinations.
func (in *Input) own() compute.Matrix {
	if in.Own.Cols > 0 {
		return in.Own
	}
	return in.X.RowsAt(0, in.Destinations)
}

// Layer is the convolution of one layer: it turns the rows of one hop's sources into rows of its
// destinations. A layer keeps what its backward reads, such as aggregates or attention weights, in
// buffers of the model's store, so the caller has to keep only Input. Normalisation is not part of
// a Layer. The epilogue (activation and dropout) is passed to Forward and Backward, because devices
// apply it fastest while the rows are in the processor's cache.
type Layer interface {
	// Params declares the parameters.
	Params() []Param
	// Bind sets the arrays of the parameters' values and gradients, in the order of Params.
	Bind(values, grads [][]float32)
	// Needs says which rows Forward reads.
	Needs() Needs
	// Reserve makes room for a forward pass over in and, if in.Train is set, for a backward pass.
	// It fails only if device memory runs out. After it Forward and Backward cannot fail.
	Reserve(in *Input) error
	// Flops returns the number of multiplications and additions in the matrix products of Forward
	// and Backward on a hop, of which it reads only the counts. The argument gradient is
	// Input.Gradient.
	Flops(h *Hop, gradient bool) int
	// Forward sets y [Destinations, out], and applies the epilogue to it.
	Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue)
	// Backward backpropagates dy [Destinations, out], the gradient with respect to y, through the
	// epilogue in place. From the result it computes the gradients of the parameters, which
	// Device.Settle completes. If in.Gradient is set, it also computes dx (see Gradient). Forward
	// must have run before on the same input, with the result y.
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
