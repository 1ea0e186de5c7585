package parallel

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/nn"
	"halognn/src/pipeline"
	"halognn/src/sample"
	"halognn/src/trace"
)

// Strategy is how the ranks share a step: which rank prepares which share of a minibatch, and what
// ranks exchange while they train on it. Training, evaluation and inference use only this
// interface. All ranks have the same strategy and call it in the same order; a Pipe calls Stages
// and Release.
//
//	Pipe      prepare:  Stages ── local, ordered, collective ──> Minibatch
//	caller    consume:  Step or Forward, then Counters
//	Pipe                Release
//
// Step and Forward are called on one goroutine, while stages of later minibatches run. They may
// start collectives on the strategy's own communicators, which the proof in
// docs/design/03-tick-schedule.md allows.
type Strategy interface {
	// Stages returns the stages that prepare a minibatch, from its seeds to the inputs of Step and
	// Forward, in order. Several pipelines may run the stages of one strategy, one at a time.
	Stages() []Stage

	// Step runs forward, loss and backward on a minibatch. It contains the loop over the layers,
	// and may exchange rows between two of them. A step has one or several minibatches on a rank.
	// If last, Step returns after the gradients of the step have been summed over these and over
	// the ranks. It reports its phases to phases. An error ends the job.
	Step(m *Minibatch, last bool, phases Phases) (Trained, error)

	// Forward returns the model's output [len(m.Scored), width] for a minibatch that is not
	// trained, in device memory: valid until the next Forward or Step.
	Forward(m *Minibatch) (compute.Matrix, error)

	// Release takes back the strategy's buffers from a consumed minibatch. After it m.Batch must
	// not be read.
	Release(m *Minibatch) error

	// Counters returns this rank's rows and collectives for a minibatch, complete after Step. It
	// returns an error, which means a bug, if rows do not add up.
	Counters(m *Minibatch) (trace.Counters, error)

	// Memory returns the strategy's memory besides the minibatches: allocated by package mem, and
	// pinned for a device. No stage may be running.
	Memory() (allocated, pinned trace.Memory)

	// Close frees everything. No stage may be running. Collective.
	Close() error
}

// Stage is a stage of a pipeline and the phase that its time is counted under. Make it with local,
// ordered or collective, so that every stage has a phase.
type Stage struct {
	stage pipeline.Stage[Minibatch]
	phase trace.Phase
}

// request is a collective under way.
type request = pipeline.Request

// local is a stage on the pool: see pipeline.Stage.
func local(p trace.Phase, name string, f func(*Minibatch) error) Stage {
	return Stage{pipeline.Stage[Minibatch]{Name: name, Local: f}, p}
}

// ordered is a stage that runs the minibatches in order. arrive is called with each minibatch in
// advance, in the first stage that is not local; it may be nil.
func ordered(p trace.Phase, name string, arrive, f func(*Minibatch) error) Stage {
	return Stage{pipeline.Stage[Minibatch]{Name: name, Arrive: arrive, Ordered: f}, p}
}

// collective is a stage in which all ranks take part. finish may be nil.
func collective(
	p trace.Phase, name string,
	start func(*Minibatch) (request, error), finish func(*Minibatch) error,
) Stage {
	return Stage{pipeline.Stage[Minibatch]{Name: name, Start: start, Finish: finish}, p}
}

// Phases receives the phases of the training goroutine. The phases of Step are Forward, Backward
// and, in the last minibatch of a step, Sync; a strategy that exchanges rows between two layers
// leaves Forward and Backward for Shuffle meanwhile.
type Phases interface {
	Begin(trace.Phase)
	End(trace.Phase)
}

// Trained is the result of Step.
type Trained struct {
	// Fault is the place where this rank's numbers stopped being finite; nil if its share of the
	// loss is finite.
	Fault *nn.Fault
	// Stats are of the step, over all ranks. With last only.
	Stats nn.Stats
}

// Options are the options of all strategies. A strategy ignores fields that it does not use.
type Options struct {
	Comm     comm.Comm // of all ranks; a strategy duplicates it for messages besides the exchange
	Topology *sample.Topology
	Sample   sample.Spec // the zero Spec for a model that reads no neighbours
	Eval     sample.Spec // of minibatches that are not trained; the zero Spec: Sample
	Near     sample.Near // vertices that keys make likelier in training
	MaxSeeds int         // of one minibatch
	Kernel   sample.Kernel

	// Rows [K+1]: rank r has the vertices Rows[r] to Rows[r+1]-1. Partitioned: it holds in Topology
	// the in-edges of these alone. SeedsElsewhere: seeds may be vertices of other ranks.
	Rows           []int64
	Partitioned    bool
	SeedsElsewhere bool
	GroupSize      int // consecutive ranks that train each minibatch together: sample.Share.Size

	Exchange *exchange.Exchange // of the rows that the input layer reads
	Cols     int                // columns of such a row, from FirstCol on
	FirstCol int                // 0 unless ranks hold columns of all rows: HoldsColumns
	Host     compute.Host
	Device   compute.Device // runs the model
	Resident bool           // rows come from the tables passed to Accelerator.Resident

	Model     *nn.Model
	Gradients *Gradients // nil for a strategy that does not train

	Labels  []int32 // [N] class of every vertex, or
	Targets []uint8 // [N*Classes] 0 or 1; neither if minibatches are not scored
	Classes int

	Workers int // minibatches that are sampled at the same time

	// Policy decides which remote rows are in the exchange's buffer during training; nil for no
	// cache or a static one. Minibatches that are not trained bypass it and fetch all remote rows.
	// Ahead is the number of minibatches that it sees in advance, and Depth the number between
	// decision and training: both as in pipeline.Options.
	Policy       cache.Policy
	Ahead, Depth int
}

// The modes that ranks can share a step in.
const (
	ModeData   = "data"   // every rank trains its own minibatches
	ModeSplit  = "split"  // all ranks train each minibatch together
	ModeHybrid = "hybrid" // the ranks of a node train each minibatch together
	// every rank trains its own minibatches, but for the first map, of which it has columns
	ModePushPull = "push-pull"
)

// mode makes strategies. A new mode is one file or a few, and a line in modes.
type mode struct {
	train func(Options) (Strategy, error)
	layer func(Options, int) (Strategy, error) // runs one layer, for inference layer by layer

	sharing sample.Sharing // of minibatches in training and its validation
	columns bool           // likewise ranks hold columns of all feature rows, and not rows
}

var modes = map[string]mode{
	ModeData:     {newData, newDataLayer, sample.Alone, false},
	ModeSplit:    {newSplit, newDataLayer, sample.Together, false},
	ModeHybrid:   {newHybrid, newDataLayer, sample.InNodes, false},
	ModePushPull: {newPushPull, newDataLayer, sample.Alone, true},
}

// Modes returns the names of all modes.
func Modes() []string { return slices.Sorted(maps.Keys(modes)) }

// SharingOf returns which ranks train each minibatch together in a mode.
func SharingOf(name string) (sample.Sharing, error) {
	m, err := modeOf(name)
	return m.sharing, err
}

// HoldsColumns reports whether the ranks of a mode hold some columns of all feature rows, instead of
// all columns of the rows of their own vertices.
func HoldsColumns(name string) bool {
	m, err := modeOf(name)
	return err == nil && m.columns
}

// New makes the strategy of a mode that trains and evaluates the model. Collective.
func New(mode string, o Options) (Strategy, error) {
	m, err := modeOf(mode)
	if err != nil {
		return nil, err
	}
	return m.train(o)
}

// NewLayer makes a strategy whose Forward runs only layer l of the model, on rows that the layer
// before has computed for all vertices. It does not train. Collective.
func NewLayer(mode string, o Options, l int) (Strategy, error) {
	m, err := modeOf(mode)
	if err != nil {
		return nil, err
	}
	return m.layer(o, l)
}

// modeOf looks a mode up. The empty name is ModeData.
func modeOf(name string) (mode, error) {
	if name == "" {
		name = ModeData
	}
	m, known := modes[name]
	if !known {
		return m, fmt.Errorf("parallel.mode %q is unknown; there is %v", name, Modes())
	}
	return m, nil
}

// errUntrained is the error of Step in a strategy without Gradients.
var errUntrained = errors.New("this strategy was made without gradients, to evaluate alone")
