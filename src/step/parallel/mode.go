package parallel

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
)

// Mode is a way in which ranks share a step: its description, how minibatches are made and trained,
// its communication cost, and what it cannot be combined with.
type Mode struct {
	job.Mode
	Doc   string // which ranks do what, as a clause of docs/config.md
	Depth int    // default of pipeline.depth; 0 means the default of all modes

	// compose sets the Draw, Rows and Between of a strategy. Collective.
	compose func(*Strategy) error
	// collectives returns the number of collectives of a minibatch.
	collectives func(Messages) int
	// refuses lists what the mode cannot be combined with; nil if there is nothing.
	refuses func(*job.Spec) []clash
}

// The names of the modes.
const (
	ModeData     = "data"
	ModeSplit    = "split"
	ModeHybrid   = "hybrid"
	ModePushPull = "push-pull"
)

// sharedDepth is the default depth of modes in which ranks draw minibatches together, with a
// collective for each hop. With a smaller depth, several ticks of the pipeline would pass before
// the next minibatch can start.
const sharedDepth = 4

// modes is the table of modes, in the order of docs/config.md. A new mode is a row here, and a file
// with the functions that only it has.
var modes = []*Mode{
	{
		Mode:    job.Mode{Name: ModeData},
		Doc:     "every rank trains its own minibatches, and gradients are added",
		compose: composeData, collectives: dataCollectives,
	},
	{
		Mode: job.Mode{Name: ModeSplit, Sharing: sample.Together},
		Doc: "all ranks train each minibatch together, each for its own vertices, and hidden " +
			"rows travel between layers ([when](guide/modes.md))",
		Depth:   sharedDepth,
		compose: composeSplit, collectives: splitCollectives, refuses: splitRefuses,
	},
	{
		Mode: job.Mode{Name: ModeHybrid, Sharing: sample.InNodes},
		Doc: "`split` within each node; nodes have minibatches of their own, and gradients are " +
			"added",
		Depth: sharedDepth, compose: composeHybrid, collectives: hybridCollectives,
		refuses: hybridRefuses,
	},
	{
		Mode: job.Mode{Name: ModePushPull, Columns: true},
		Doc: "every rank trains its own minibatches and holds some columns of all features; " +
			"ranks compute the first linear map together, and partial sums travel",
		compose: composePushPull, collectives: pushPullCollectives, refuses: pushPullRefuses,
	},
}

// Modes returns all modes, in the order of the table.
func Modes() []*Mode { return slices.Clone(modes) }

// ModeOf returns the mode with the given name. The empty name is the first mode.
func ModeOf(name string) (*Mode, error) {
	if name == "" {
		return modes[0], nil
	}
	var names []string
	for _, m := range modes {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return nil, fmt.Errorf("parallel.mode %q is unknown; choose one of %v", name, names)
}

// Register adds a mode to the table and returns the function that removes it.
func Register(m *Mode) (remove func()) {
	modes = append(modes, m)
	return func() { modes = slices.DeleteFunc(modes, func(o *Mode) bool { return o == m }) }
}

// Options are what a strategy is made of. A strategy ignores fields that its mode does not use.
type Options struct {
	Comm   comm.Comm // for all ranks; a strategy duplicates it for messages besides the exchange
	Host   compute.Host
	Device compute.Device // runs the model

	Model     *nn.Model
	Gradients *Gradients // nil for a strategy that does not train
	Shuffles  Shuffling  // path of rows between layers; "" is ShuffleAuto

	Drawing
	Reading
}

// Drawing says how minibatches are drawn.
type Drawing struct {
	Topology *sample.Topology
	Sample   sample.Spec // the zero Spec for a model that reads no neighbours
	Eval     sample.Spec // for minibatches that are not trained; if zero, Sample is used
	Near     sample.Near // vertices that training prefers to draw, by the factor in a key
	MaxSeeds int         // largest number of seeds of a minibatch; 0 if not known
	Edges    int64       // number of edges of the whole graph
	Workers  int         // number of minibatches that are sampled at the same time

	Undigested bool // nobody reads the digests of the minibatches, so they are not made

	// On says where minibatches are drawn: DrawHost, the default, DrawDevice or DrawAuto.
	// HostDraws is the reason why no device can draw them; "" if a device can. Parts [P+1] has the
	// first vertex of each part, for drawing on a device.
	On, HostDraws string
	Parts         []int64

	// Rows [K+1] says that rank r has the vertices Rows[r] to Rows[r+1]-1. Partitioned says that
	// the Topology of a rank holds only the in-edges of its vertices, and SeedsElsewhere that seeds
	// may be vertices of other ranks.
	Rows           []int64
	Partitioned    bool
	SeedsElsewhere bool
	GroupSize      int // number of consecutive ranks that train each minibatch together

	Labels task.Labels // labels of all vertices; no labels if minibatches are not scored
}

// Reading says where the rows of the first layer come from.
type Reading struct {
	Exchange *exchange.Exchange // exchange of the rows that the input layer reads
	Cols     int                // number of columns of such a row, from FirstCol on
	FirstCol int                // 0 unless ranks hold columns of all rows: job.Mode.Columns
	Resident bool               // rows lie in the tables passed to Accelerator.Resident
	Mapped   bool               // rows are mapped (MapFirst): their sums are outputs, not rounded
	Here     int                // ranks on this node, which share its limit on pinned memory

	// EdgeExchange fetches the feature rows of edges, which have EdgeCols columns; its ids are
	// positions in the topology. It is nil for models that read no edge features.
	EdgeExchange *exchange.Exchange
	EdgeCols     int
	// Learned are the learned rows in training. Without training they are fetched as features.
	Learned LearnedRows

	// Policy decides which remote rows are in the exchange's buffer during training; nil for no
	// cache or a static one. Minibatches that are not trained bypass it and fetch all remote rows.
	// It sees Ahead minibatches in advance, and Depth minibatches lie between decision and
	// training, as in pipeline.Options.
	Policy       cache.Policy
	Ahead, Depth int
}

// needs returns what the model reads. Learned rows are read in the step if they are trained,
// otherwise as feature rows.
func (o *Options) needs() nn.Needs {
	if o.Learned.Rows == nil {
		return o.Model.Config.Fixed().Needs()
	}
	return o.Model.Needs()
}

// layerNeeds returns what layer l reads when it runs alone.
func (o *Options) layerNeeds(l int) nn.Needs {
	needs := o.needs()
	if l > 0 { // hidden rows of all types have the same width
		needs.Types, needs.Averages, needs.Folding = false, false, nil
	}
	return needs
}

// aggregateNeeds returns what must be read for the aggregates only.
func (o *Options) aggregateNeeds() nn.Needs {
	needs := o.needs()
	needs.Own = false
	return needs
}

// New makes the strategy of a mode that trains and evaluates the model. Collective.
func New(mode string, o Options) (*Strategy, error) {
	m, err := ModeOf(mode)
	if err != nil {
		return nil, err
	}
	return m.new(o)
}

// new makes a strategy and composes the mode's parts.
func (m *Mode) new(o Options) (*Strategy, error) {
	s := newStrategy(o, o.needs(), 0, o.Model.Config.Layers)
	s.output = true
	if err := m.compose(s); err != nil {
		return nil, s.closeAfter(err)
	}
	s.drawOnHost()
	var err error
	if s.queue, err = openStepQueue(s); err != nil {
		return nil, s.closeAfter(err)
	}
	return s, nil
}

// composeData makes data parallelism: every rank draws its own minibatches, alone if it has the
// whole topology, otherwise with the help of other ranks. It fetches the feature rows that it
// lacks, and trains. Ranks meet in the two collectives of a fetch and in the sum of the gradients.
func composeData(s *Strategy) error {
	s.bound()
	s.rows = newFetched(s, frontier{s.o.Exchange})
	if err := errors.Join(addEdgeRows(s), addLearned(s)); err != nil {
		return err
	}
	return s.drawOwn()
}

// NewLayer makes a strategy whose Forward runs only layer l of the model. It reads the rows of the
// layer before, which are already computed for all vertices; each rank has the rows of its own
// vertices. It does not train. Collective.
func NewLayer(o Options, l int) (*Strategy, error) {
	s := newStrategy(o, o.layerNeeds(l), l, 1)
	if err := composeData(s); err != nil {
		return nil, s.closeAfter(err)
	}
	return s, nil
}

// NewAggregates makes a strategy whose Forward returns the aggregates over neighbours' rows that
// the layers of the model read, [len(m.Scored), o.Cols]: sum, mean or maximum. These work column by
// column, so the rows may hold only some columns of a layer's input, or rows that are mapped
// (nn.Model.MapFirst). It does not train. Collective.
func NewAggregates(o Options) (*Strategy, error) {
	s := newStrategy(o, o.aggregateNeeds(), 0, 0)
	if err := composeData(s); err != nil {
		return nil, s.closeAfter(err)
	}
	return s, nil
}
