// Package nn is the model: layers with forward and backward, losses, parameters, optimisers,
// schedules and metrics. A compute.Device does all computation. The package knows no ranks and
// draws no minibatches.
//
//	hop 0 (input)        hop 1                hop L-1
//	[S0,In] ── layer 0 ──> [D0,H] ── layer 1 ──> ... ── layer L-1 ──> [seeds,Out] ──> loss
//	                       D0 = S1               S(L-1) = D(L-2)        │
//	dX (if wanted) <─ 0 ── dy <──── layer 1 ──<── ... <─ layer L-1 ──── dlogits
//
//	one layer, forward:   conv ──> [norm] ──> ReLU or ELU ──> dropout
//	                      (without jumping knowledge the last layer is its conv alone)
//
// Layers can be run one by one (ForwardLayer, BackwardLayer). So a strategy that splits a minibatch
// over ranks can exchange rows between two layers. Forward and Backward run all layers. Parameters
// and gradients are two flat arrays in the order in which backward finishes them, so that each
// layer is one contiguous bucket of a gradient allreduce:
//
//	offset 0        16                        ...                         Len
//	       │ header │ [statistics] │ layer L-1 │ layer L-2 │ ... │ layer 0 │
//	       └── bucket L-1 ────────────────────┘└─ bucket ─┘     └ bucket ─┘
//	       Loss, counts and batch statistics of the step are known before backward starts, so they
//	       travel in the first bucket.
//
// An input layer that takes means of neighbours does not read its sources. It reads rows that were
// aggregated while the minibatch was prepared (Input.Own, Input.Aggregate). These are several times
// fewer than the sources. Each layer declares which rows it reads (Needs).
//
// In steady state nothing is allocated, because the device memory for activations grows to somewhat
// more than the largest minibatch so far needs. Only one goroutine may use a model at a time.
package nn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// The normalisations between two layers.
const (
	NormNone = "none"
	// LayerNorm over the columns of a row, eps 1e-5: PyTorch Geometric's LayerNorm(mode="node")
	NormLayer = "layer"
	// BatchNorm over the rows of a minibatch, eps 1e-5, momentum 0.1: PyTorch Geometric's BatchNorm
	NormBatch = "batch"
)

// The activations between two layers.
const (
	ReLU = "relu"
	ELU  = "elu"
)

// The layers from whose rows the logits are computed.
const (
	JumpNone = "none" // only the last layer, whose rows are the logits
	JumpCat  = "cat"  // all layers: a linear map of their rows, put side by side
	JumpMax  = "max"  // all layers: a linear map of the maximum of each column
)

// How SAGE aggregates the rows of neighbours.
const (
	AggregateMean = "mean"
	AggregateMax  = "max" // the maximum of each column
)

// How GCN weighs an edge.
const (
	// Divide by the sum of the weights of the destination's edges in the hop, which gives a mean.
	GCNRight = "right"
	GCNBoth  = "both" // divide by the degrees of both ends in the whole graph
)

// How the results of heads are made into hidden rows. In the last layer heads are averaged.
const (
	HeadsConcat = "concat" // side by side; Config.Heads must divide Config.Hidden
	HeadsMean   = "mean"   // the mean of the heads, each of which is as wide as the hidden rows
)

// Config is the architecture of a model.
type Config struct {
	Kind   string // name in the table kinds
	Layers int    // number of convolutions, >= 1
	// Widths of features, hidden rows and logits, each >= 1. One layer does not use Hidden.
	In, Hidden, Out int
	Dropout         float32 // probability in [0,1) of dropping a hidden activation; 0: none are
	Norm            string  // NormNone, NormLayer or NormBatch, in every hidden layer
	Activation      string  // ReLU or ELU, in every hidden layer; empty means ReLU
	EdgeFeatures    bool    // whether layers read features of edges if there are any (see EdgeIn)
	// Number of columns of the edge features that layers read; 0 if they read none.
	EdgeIn      int
	EdgeWeights bool // whether edges are weighted by their weights in the data
	// Whether training divides the weight of an edge by the probability that the edge was drawn.
	// Sums over drawn edges then estimate the sums over all in-edges.
	Estimates bool
	// Whether a vertex's own row is added to the layer's result before the activation. This is done
	// in layers that read and make hidden rows.
	Residual bool
	Jumping  string // JumpNone, JumpCat or JumpMax; empty means JumpNone
	Task     string // name in the table of package task
	Scorer   string // how links are scored, perhaps with parameters; only for tasks of links
	// If links have labels: the number of outputs for a link. If it is 0, links have no labels, and
	// each link has one score, by which it is ranked.
	Rated int

	// The vertex types and relations of a graph with types. On such a graph, the field In is the
	// width to which the model maps the rows of all types.
	Schema       graph.Schema
	TypeFeatures []int // [T] width of each type's rows; 0 if the type has no rows
	Project      int   // width to which rows are mapped; 0 means Hidden
	// Number of basis matrices. The weights of each relation are a combination of these. If it is
	// 0, each relation has a matrix of its own. Only for kind rgcn.
	Bases int
	// Which minibatches are folded, so that the maps of types and the weights of relations are
	// multiplied into one matrix. The device decides this, not the user.
	Fold Fold

	// Number of columns of the rows that are learned for vertices without features; 0 for none.
	Learned int
	// [T] Whether each type has learned rows, of the width TypeFeatures or In; nil if none has.
	Learns []bool

	Aggregation string // for kind sage: AggregateMean or AggregateMax; empty means AggregateMean
	GCNNorm     string // for kind gcn: GCNRight or GCNBoth; empty means GCNRight
	Heads       int    // number of heads, >= 1; only for kinds with attention
	// For kinds with attention: HeadsConcat or HeadsMean; empty means HeadsConcat.
	HeadMerge string
	// For kinds with attention: the factor in [0,1] by which LeakyReLU multiplies scores below 0.
	// If 0, it is a ReLU.
	Slope float32
}

// Outputs returns the number of outputs for a seed. If links have labels, these are the outputs for
// a link; otherwise they are the logits.
func (c Config) Outputs() int { return cmp.Or(c.Rated, c.Out) }

// ReadsNeighbours reports whether the model reads more than the rows of its seeds.
func (c Config) ReadsNeighbours() bool {
	k := FindKind(c.Kind)
	return k == nil || k.ReadsNeighbours
}

// Weighs reports whether the layers can weight edges. They can if they aggregate by sum or mean.
func (c Config) Weighs() bool {
	k := FindKind(c.Kind)
	return k != nil && k.WeighsEdges && !c.TakesMaxima()
}

// TakesMaxima reports whether the layers aggregate neighbours by maxima. Kinds that can aggregate
// in only one way ignore Config.Aggregation.
func (c Config) TakesMaxima() bool {
	k := FindKind(c.Kind)
	return k != nil && k.MayTakeMaxima && c.Aggregation == AggregateMax
}

// Widths returns the widths of layer l's input and output rows.
func (c Config) Widths(l int) (in, out int) {
	in, out = c.Hidden, c.Hidden
	if l == 0 {
		in = c.In
	}
	if !c.hidden(l) {
		out = c.Out
	}
	return in, out
}

// BatchNorms returns the number of batch norms in the model.
func (c Config) BatchNorms() int {
	n := 0
	for l := 0; l < c.Layers && c.Norm == NormBatch && c.hidden(l); l++ {
		n++
	}
	return n
}

// Jumps reports whether the model has jumping knowledge.
func (c Config) Jumps() bool { return c.Jumping == JumpCat || c.Jumping == JumpMax }

// hidden reports whether the result of layer l is hidden rows, not logits.
func (c Config) hidden(l int) bool { return l < c.Layers-1 || c.Jumps() }

// isStored reports whether the rows of layer l have the type in which the device stores rows. They
// have it if the layer is hidden and ends in a matrix product or a norm. Layers with attention or
// relations write their rows in several steps, in place, in float32.
func (c Config) isStored(l int) bool {
	k := FindKind(c.Kind)
	return c.hidden(l) && (c.Norm != NormNone || k != nil && !k.HasHeads && !k.inPlace &&
		!c.Schema.Typed())
}

// Stored returns the type in which the rows of layer l are stored. The argument of is the type in
// which the device stores rows.
func (c Config) Stored(l int, of compute.Elements) compute.Elements {
	if !c.isStored(l) {
		return compute.Float32s
	}
	_, out := c.Widths(l)
	return evenly(out, of)
}

// Projected does what Stored does, for the rows that the maps of vertex types make.
func (c Config) Projected(of compute.Elements) compute.Elements { return evenly(c.In, of) }

// evenly returns the type of stored rows of a width: the given type or, for an odd width, float32,
// because rows are sent to other ranks as whole float32.
func evenly(width int, of compute.Elements) compute.Elements {
	if width%2 != 0 {
		return compute.Float32s
	}
	return of
}

// OutputRows returns the number of vertices whose rows of all layers fit into the given number of
// bytes. It is at least 1.
func (c Config) OutputRows(bytes int) int { return max(1, bytes/(4*c.Layers*c.Hidden)) }

// JumpWidth returns the width of the rows from which jumping knowledge computes the logits.
func (c Config) JumpWidth() int {
	if c.Jumping == JumpMax {
		return c.Hidden
	}
	return c.Layers * c.Hidden
}

// layer makes layer l without memory. Only methods such as Needs and Flops may be called on it.
func (c Config) layer(l int) Layer { return c.newLayer(new(store), l) }

// newLayer makes layer l.
func (c Config) newLayer(s *store, l int) Layer {
	k := FindKind(c.Kind)
	if c.Schema.Typed() {
		return k.relational(s, c, l)
	}
	return k.layer(s, c, l)
}

// relationalKinds lists the kinds that read relations.
func relationalKinds() (names []string) {
	for _, k := range kinds {
		if k.relational != nil {
			names = append(names, k.Name)
		}
	}
	return names
}

// Needs says which rows the input layer reads, as Model.Needs does. Check must accept c. In
// layer-wise inference every layer runs as an input layer, so it may have a residual connection,
// for which it reads own rows.
func (c Config) Needs() Needs {
	n := c.layer(0).Needs()
	n.Types = c.Schema.Typed()
	// a layer with weighted sums must read the rows themselves, and not means of them
	if n.Types && n.Relations != Paired && n.Weights == NoWeights {
		n.Averages, n.Folding = true, c.folding()
	}
	// learned rows are read in the training step and get a gradient, so they cannot be aggregated
	// while the minibatch is prepared
	if c.LearnsRows() && !n.Types {
		n.Own, n.Aggregate, n.Sources, n.Transposed = false, compute.NoReduction, true, true
	}
	n.Own = n.Own || c.Residual && !n.Sources
	// a residual, and inference of a single layer, need own rows in a matrix of their own
	n.Joined = n.Joined && !c.Residual && c.Layers > 1
	return n
}

// Adds reports whether the input layer only adds the rows of neighbours, either those of all
// relations or those of each relation separately. If the graph is not known yet (In is 0), it
// reports whether the layer does so on some graph.
func (c Config) Adds() bool {
	k := FindKind(c.Kind)
	switch {
	case c.Schema.Typed() && k.relational == nil: // Check refuses such a config
		return false
	case !c.Schema.Typed() && c.In == 0 && k.relational != nil && !k.HasHeads:
		return true
	}
	n := c.Needs()
	return n.OnlySums() || n.Averages
}

// Joins reports whether own rows and aggregates take one product on a device with PairKernels.
func (c Config) Joins() bool {
	k := FindKind(c.Kind)
	return k != nil && !c.Schema.Typed() && c.layer(0).Needs().Joined
}

// LearnsRows reports whether the model is trained with rows of vertices without features.
func (c Config) LearnsRows() bool { return c.Learns != nil }

// Fixed returns the architecture for passes that do not train. They read learned rows like others.
func (c Config) Fixed() Config {
	c.Learns = nil
	return c
}

// Flops returns the number of operations in the matrix products of layer l in a training step. It
// reads only the counts of the hop. Check must accept c.
func (c Config) Flops(l int, h *Hop) int {
	flops := c.layer(l).Flops(h, l > 0)
	if l == c.Layers-1 && c.Jumps() {
		flops += 2 * passes(true) * h.Destinations * c.JumpWidth() * c.Out
	}
	return flops
}

// Check returns all errors in c, joined into one.
func (c Config) Check() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	k := FindKind(c.Kind)
	fault(k == nil, "model kind %q is not one of: %s", c.Kind, strings.Join(kindNames(), ", "))
	fault(c.Layers < 1, "model has %d layers; it needs at least 1", c.Layers)
	fault(c.In < 1, "model input width is %d; the dataset needs at least 1 feature", c.In)
	fault(c.hidden(0) && c.Hidden < 1, "model hidden width is %d; it must be at least 1", c.Hidden)
	fault(c.Out < 1, "model output width is %d; the dataset needs at least 1 class", c.Out)
	fault(!(c.Dropout >= 0 && c.Dropout < 1),
		"model dropout is %g; it must be at least 0 and below 1", c.Dropout)
	oneOf := func(what, word string, words ...string) {
		fault(!slices.Contains(words, word), "model %s %q is not one of: %s", what, word,
			strings.Join(words, ", "))
	}
	oneOf("norm", c.Norm, NormNone, NormLayer, NormBatch)
	oneOf("activation", cmp.Or(c.Activation, ReLU), ReLU, ELU)
	oneOf("jumping", cmp.Or(c.Jumping, JumpNone), JumpNone, JumpCat, JumpMax)
	oneOf("aggregation", cmp.Or(c.Aggregation, AggregateMean), AggregateMean, AggregateMax)
	maxima := map[bool]string{true: " with maxima"}[c.TakesMaxima()]
	fault(k != nil && c.EdgeWeights && !c.Weighs(),
		"the edges of the graph have weights, which model kind %s%s cannot use: set "+
			"model.edge_weights=false to leave them out, or choose sage with means, gcn, gin or "+
			"rgcn",
		c.Kind, maxima)
	fault(k != nil && c.EdgeIn > 0 && !k.ReadsEdges, "model kind %s cannot read features of "+
		"edges; set model.edge_features=false",
		c.Kind)
	lacks := k != nil && c.EdgeIn < 1 && k.NeedsEdges && !c.Schema.Typed()
	fault(lacks && c.EdgeFeatures, "model kind %s needs features of edges, but the graph has "+
		"none; import it with edge features, or choose gin", c.Kind)
	fault(lacks && !c.EdgeFeatures, "model kind %s needs features of edges, but "+
		"model.edge_features is false; set it to true, or choose gin", c.Kind)
	fault(k != nil && c.Estimates && !c.Weighs(),
		"the sampler weighs edges by the probability that it drew them, which model kind %s%s "+
			"cannot "+
			"use: choose sample.kind neighbour, or sage with means, gcn, gin or rgcn", c.Kind,
		maxima)
	oneOf("gcn_norm", cmp.Or(c.GCNNorm, GCNRight), GCNRight, GCNBoth)
	if k != nil && k.HasHeads {
		fault(c.Heads < 1, "model has %d heads; it needs at least 1", c.Heads)
		oneOf("head_merge", cmp.Or(c.HeadMerge, HeadsConcat), HeadsConcat, HeadsMean)
		faults = append(faults, c.CheckHeads())
		fault(!(c.Slope >= 0 && c.Slope <= 1), "model slope is %g; it must be 0 to 1", c.Slope)
	}
	fault(c.Bases < 0 || c.Project < 0,
		"model.bases is %d and model.project %d; both must be at least 0", c.Bases, c.Project)
	faults = append(faults, c.CheckTypes())
	fault(c.Rated > 1 && c.Scorer != task.DistMult && c.Scorer != task.MLP,
		"links.score %s gives one number for a link, but its label needs %d; choose %s, %s or %s",
		c.Scorer, c.Rated, task.ScoreAuto, task.MLP, task.DistMult)
	fault(task.Find(c.Task) == nil, "task %q is not one of: %s", c.Task, task.Names())
	return errors.Join(faults...)
}

// CheckHeads returns an error if heads are side by side and do not divide the hidden width.
func (c Config) CheckHeads() error {
	k := FindKind(c.Kind)
	if k == nil || !k.HasHeads || c.Heads < 1 || !c.hidden(0) || c.HeadMerge == HeadsMean ||
		c.Hidden%c.Heads == 0 {
		return nil
	}
	return fmt.Errorf("model.hidden is %d, which is not a multiple of model.heads, %d, whose "+
		"rows lie side by side; change one of the two, or set model.head_merge=%s", c.Hidden,
		c.Heads, HeadsMean)
}

// CheckTypes returns the errors of Check that concern vertex types and relations, joined into one.
func (c Config) CheckTypes() error {
	k := FindKind(c.Kind)
	if k == nil || !c.Schema.Typed() {
		return nil
	}
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(k.relational == nil, "the graph has vertex types and relations, which model kind %s "+
		"does not tell apart; choose %s", c.Kind, strings.Join(relationalKinds(), " or "))
	fault(c.EdgeIn > 0, "the edges of the graph have features, but models of relations cannot "+
		"read them; set model.edge_features=false")
	fault(c.TakesMaxima(), "model aggregation %s does not tell relations apart; choose %s",
		c.Aggregation, AggregateMean)
	fault(len(c.TypeFeatures) != c.Schema.NumTypes(), "the model has %d row widths, but %d vertex "+
		"types need one width each", len(c.TypeFeatures), c.Schema.NumTypes())
	for _, t := range c.Schema.Types {
		ends := slices.ContainsFunc(c.Schema.Relations,
			func(r graph.Relation) bool { return r.Target == t })
		fault(!ends && k.relational != nil && c.Kind != "rgcn",
			"no relation ends in vertex type %s, but model kind %s needs one; import with "+
				"--reverse, or choose rgcn", t, c.Kind)
	}
	return errors.Join(faults...)
}
