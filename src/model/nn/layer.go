package nn

import (
	"slices"

	"halognn/src/devices/compute"
)

// Needs says which rows a layer reads. An input layer gets no others: rows that it does not need
// are neither gathered nor copied to the device.
type Needs struct {
	Own bool // the row of every destination (Input.Own)
	// how the rows of every destination's in-neighbours are reduced (Input.Aggregate); a sum is
	// weighted by Weights
	Aggregate compute.Reduction
	// the rows of all sources (Input.X), because aggregation depends on parameters
	Sources bool
	// the rows of sources come type by type (Input.Types), and sources are in the order of the
	// types
	Types bool
	// rows of a type may come averaged by relation, because layers only apply a linear map to them
	Averages bool
	// if set, the rows of all types come averaged in minibatches where that takes fewer
	// multiplications (Hop.Folded)
	Folding *Folding

	// Of the hops of all layers:
	SelfEdges bool // each destination's segment begins with an edge from itself
	// Hop.Transposed for the input layer too, with Segments.Edges for all layers
	Transposed bool
	Relations  Relating  // Hop.Ends, OwnEnds, Targets and RowsOf
	Weights    Weighting // Hop.Weights and TransposedWeights
	EdgeRows   bool      // Hop.EdgeRows
	OfData     bool      // the weights in Hop.Weights are made from the weights in the data
}

// Copies reports whether the edges of hops are copies of the sampled ones, with more edges.
func (n Needs) Copies() bool { return n.SelfEdges || n.Relations != NoRelations }

// OnlySums reports whether rows of neighbours are read only for a sum, mean or maximum.
func (n Needs) OnlySums() bool { return n.Aggregate != compute.NoReduction && !n.Sources }

// Sums reports whether rows are read only for a linear map of themselves, or of their sums or
// means.
func (n Needs) Sums() bool { return !n.Sources && n.Aggregate != compute.ReduceMax }

// Relating says whether a hop has a segment for each destination, or for each destination and
// relation.
type Relating uint8

// With relations every destination has one more segment, its own, with an edge from itself. Own
// segments follow those of the relations.
const (
	NoRelations Relating = iota
	OwnTogether          // all own segments are one group
	OwnByType            // a group for each type in which relations end
	// no own segments: sources are pairs of a source and a relation (Hop.Pairs)
	Paired
)

// Weighting says how the weights of edges are made.
type Weighting uint8

// The weightings. An edge has its weight in the data, or 1; an edge from a vertex to itself has 1.
// Where a sampler knows the probability with which it drew an edge, the weight is divided by it,
// and divisors are sums over all in-edges in the whole graph: then results are unbiased estimates
// of those with all edges.
const (
	NoWeights    Weighting = iota
	WeightsPlain           // the weight of the edge
	// the weight over the sum of the destination's weights, so that weighted sums are means
	WeightsMean
	// GCN's: the weight over the square root of the sums at both ends, in the whole graph
	WeightsSymmetric
)

// Hop is the topology one layer works on. The destinations are the first sources.
type Hop struct {
	Sources, Destinations int
	// rows that the caller puts behind the layer's output: more sources of the next layer, which
	// other ranks have computed
	Others int
	// in-neighbours by destination; not read where Input.Aggregate is given
	Forward compute.Segments
	// destinations by source; read by backward if Input.Gradient or Needs.Transposed
	Transposed compute.Segments
	// [E] weights of the edges of Forward, in host memory; nil unless wanted
	Weights           []float32
	TransposedWeights []float32      // [E] weights of the edges of Transposed
	EdgeRows          compute.Matrix // [E, EdgeIn] features of the edges of Forward
	// number of edges of Forward, for Reserve if Forward is not given
	Edges int
	// numbers of segments of Forward and of Pairs, for Reserve if those are not given; 0: their
	// upper bound
	Rows, PairRows int
	// [Destinations] original ids: they key the dropout bits; nil if nothing is dropped
	Vertices []int32
	Dropout  compute.DropoutKey // names this layer's dropout bits of this minibatch

	// With Needs.Relations Forward has segments of destinations and relations, and Transposed
	// refers to these:
	Ends []int32 // [R] one past the last segment of each relation; own segments follow
	// [S] one past the last segment of each group of own segments, counted from the first own one
	OwnEnds []int32
	// Targets: for each destination, its segments and then S+g. Here S is the number of all
	// segments, and g is the group of own segments of the destination (or of its type). RowsOf: for
	// each segment or group, its destinations
	Targets, RowsOf compute.Segments
	// Folded: the input layer reads the rows of all types averaged. Its z has these rows, without
	// biases, and Targets refer to them. TypeEnds [T] are, for each type, one past the last row of
	// each relation from it, in their order, and of own rows, counted from the type's first row.
	// Only the length of Forward is read
	Folded   bool
	TypeEnds [][]int32
	// If Paired, the indices of Forward are pairs of a source and a relation, sorted by relation.
	// Pairs has the place among the sources of each pair, then of each segment's destination;
	// PairsOf has the same by source. PairEnds [2R]: one past the last pair, and then the last
	// segment, of each relation
	Pairs, PairsOf compute.Segments
	PairEnds       []int32
}

func (h *Hop) edges() int { return max(h.Edges, len(h.Forward.Indices)) }

// edgeRows returns the features of the edges, also where there are no edges.
func (h *Hop) edgeRows(cols int) compute.Matrix {
	if h.EdgeRows.Cols == 0 {
		return compute.Matrix{Cols: cols}
	}
	return h.EdgeRows
}

// Input is what one layer reads of a minibatch: the rows of all sources, or Own and Aggregate as
// far as it needs them, or Shares.
type Input struct {
	Hop
	X compute.Matrix // [Sources, in]
	// rows of each type, from which the model makes the X of the input layer
	Types     []compute.Matrix
	Own       compute.Matrix // [Destinations, in]
	Aggregate compute.Matrix // [Destinations, in], which the layer does not change
	Sparse    Sparse         // sparse rows, which replace Own and Aggregate of the input layer
	// the shares that Columns have computed, [Destinations, width] each, to be added in this order;
	// they replace all rows of the input layer. Forward changes the first. Backward then gives the
	// gradient of their sum
	Shares []compute.Matrix
	// gathers numbers from all ranks, for norms over all rows of the minibatch; nil unless other
	// ranks have some of these rows
	Gather   Gather
	Train    bool // drop activations and make room for backward
	Gradient bool // backward also returns the gradient of X
	Partial  bool // other ranks add to that gradient, so it is not complete yet
}

// Gather returns len(own) numbers from every rank with rows of the minibatch, in rank order, own
// among them. They are valid until the next call. All these ranks make the same calls; backward
// says which way the layers run.
type Gather func(own []float32, backward bool) (all []float32, err error)

// gradient returns the size of the gradient that backward gives if in.Gradient, for rows of cols
// columns.
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
// destinations. A layer keeps the inputs of its own backward (aggregates; in attention weights of
// edges and heads) in buffers of the model's store, so the caller keeps nothing but Input.
// Normalisation is not part of a Layer. Its epilogue is passed to Forward and Backward, because
// devices apply it best while the rows are in the cache.
type Layer interface {
	// Params declares the parameters.
	Params() []Param
	// Bind sets the arrays of the parameters' values and gradients, in the order of Params.
	Bind(values, grads [][]float32)
	// Needs says which rows Forward reads.
	Needs() Needs
	// Reserve makes room for a forward pass over in and, if in.Train, a backward one. It fails only
	// if device memory runs out; after it Forward and Backward cannot fail.
	Reserve(in *Input) error
	// Flops returns the multiplications and additions in the matrix products of Forward and
	// Backward on a hop, of which only the counts are read; gradient is Input.Gradient.
	Flops(h *Hop, gradient bool) int
	// Forward sets y [Destinations, out], and applies the epilogue to it.
	Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue)
	// Backward backpropagates dy [Destinations, out], the gradient with respect to y, through the
	// epilogue in place. From the result it sets the gradients of the parameters, which
	// Device.Settle completes, and, if in.Gradient, dx, as its completion says. Forward ran before,
	// on the same input, and gave y.
	Backward(dx *Gradient, dy, y compute.Matrix, in *Input, epilogue compute.Epilogue)
}

// makesArrays is a layer that makes host arrays for its kernels in every step.
type makesArrays interface{ makesArrays() }

// MakesArrays reports whether kernels are given host arrays that a layer makes in the step.
func (m *Model) MakesArrays() bool {
	return slices.ContainsFunc(m.stages, func(s stage) bool {
		_, makes := s.Layer.(makesArrays)
		return makes
	})
}

// steady is a layer whose kernels read arrays that no minibatch changes.
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
