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

// Strategy is how the ranks share a step: who prepares which part of a minibatch, and what they
// exchange while they train on it. Training, evaluation and inference see nothing else of it. All
// ranks have the same one and call it in the same order; a Pipe does so with Stages and Release.
//
//	Pipe      prepare:  Stages ── local, ordered, collective ──> Minibatch
//	caller    consume:  Step or Forward, then Counters
//	Pipe                Release
//
// Step and Forward are called on one goroutine, beside the stages of later minibatches. They may
// hold collectives, on communicators of the strategy's own: the pipeline's proof allows that.
type Strategy interface {
	// Stages returns the way of a minibatch from its seeds to what Step and Forward read, in order.
	// Several pipelines may run the stages of one strategy, one at a time.
	Stages() []Stage

	// Step runs forward, loss and backward on a minibatch. It owns the loop over the layers, and
	// may exchange rows between two of them. A step has one minibatch or several on a rank; with
	// last, their gradients are summed, here and over the ranks, when Step returns. phases is told
	// what goes on. An error ends the job.
	Step(m *Minibatch, last bool, phases Phases) (Trained, error)

	// Forward returns the model's output [len(m.Scored), width] for a minibatch that is not
	// trained, in device memory: valid until the next Forward or Step.
	Forward(m *Minibatch) (compute.Matrix, error)

	// Release takes back what a minibatch holds of the strategy's, when it has been consumed:
	// nothing of m.Batch may be read any more.
	Release(m *Minibatch) error

	// Counters returns what a minibatch has cost this rank, in rows and in collectives: complete
	// after Step. It is an error, and a bug, if rows do not add up.
	Counters(m *Minibatch) (trace.Counters, error)

	// Memory returns what the strategy holds now beside the minibatches: what package mem has
	// allocated, and what is pinned for a device. No stage may be running.
	Memory() (allocated, pinned trace.Memory)

	// Close gives everything back. No stage may be running. Collective.
	Close() error
}

// Stage is a stage of a pipeline and the phase that its time is counted under. Only local, ordered
// and collective make one, so there is none without a phase.
type Stage struct {
	stage pipeline.Stage[Minibatch]
	phase trace.Phase
}

// request is a collective that has been started.
type request = pipeline.Request

// local is a stage on the pool: see pipeline.Stage.
func local(p trace.Phase, name string, f func(*Minibatch) error) Stage {
	return Stage{pipeline.Stage[Minibatch]{Name: name, Local: f}, p}
}

// ordered is a stage that takes the minibatches in order. arrive, of the first stage that is not
// local, sees each of them ahead of time; it may be nil.
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

// Phases is told what the goroutine that trains is at. The phases of Step are Forward, Backward
// and, in the last minibatch of a step, Sync.
type Phases interface {
	Begin(trace.Phase)
	End(trace.Phase)
}

// Trained is what Step finds out.
type Trained struct {
	// Fault is where this rank's share of the loss stopped being a number; nil if it is one.
	Fault *nn.Fault
	// Stats are of the step, over all ranks. With last only.
	Stats nn.Stats
}

// Options are what strategies are made of. What a field is for that a strategy has no use for, it
// ignores.
type Options struct {
	Comm     comm.Comm // of all ranks; a strategy that sends besides the exchange makes copies
	Topology *sample.Topology
	Sample   sample.Spec // the zero Spec for a model that reads no neighbours
	Eval     sample.Spec // of minibatches that are not trained; the zero Spec: Sample
	MaxSeeds int         // of one minibatch
	Kernel   sample.Kernel

	// Rows [K+1], of a partitioned topology: rank r holds the in-edges of vertices Rows[r] to
	// Rows[r+1]-1 alone, in Topology. nil where every rank holds all. SeedsElsewhere: seeds may be
	// vertices of other ranks.
	Rows           []int64
	SeedsElsewhere bool

	Exchange *exchange.Exchange // of the rows that the input layer reads
	Cols     int                // of such a row
	Host     compute.Host
	Device   compute.Device // that the model computes on
	Resident bool           // the rows lie where compute.Accelerator.Resident knows them

	Model     *nn.Model
	Gradients *Gradients // nil for a strategy that does not train

	Labels  []int32 // [N] class of every vertex, or
	Targets []uint8 // [N*Classes] 0 or 1; neither if minibatches are not scored
	Classes int

	Workers int // minibatches that are sampled at the same time

	// Policy decides which remote rows are in the exchange's buffer while minibatches are trained;
	// nil for no cache, or one that does not change. Minibatches that are not trained neither ask
	// nor tell it, and fetch what is remote. Ahead is how many minibatches it sees in advance, and
	// Depth how many may be between its decision and their training: both as in pipeline.Options.
	Policy       cache.Policy
	Ahead, Depth int
}

// The modes that ranks can share a step in.
const (
	ModeData = "data" // every rank trains minibatches of its own
)

// mode makes strategies. A mode is a file, or a few, and a line in modes.
type mode struct {
	train func(Options) (Strategy, error)
	layer func(Options, int) (Strategy, error) // runs one layer, for inference layer by layer
}

var modes = map[string]mode{
	ModeData: {newData, newDataLayer},
}

// Modes returns the names of all modes.
func Modes() []string { return slices.Sorted(maps.Keys(modes)) }

// New makes the strategy of a mode that trains and evaluates the model. Collective.
func New(mode string, o Options) (Strategy, error) {
	m, err := modeOf(mode)
	if err != nil {
		return nil, err
	}
	return m.train(o)
}

// NewLayer makes a strategy whose Forward runs layer l of the model alone, on rows that the layer
// before has made for all vertices. It trains nothing. Collective.
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

// errUntrained is the error of Step where there is nothing to sum gradients with.
var errUntrained = errors.New("this strategy was made without gradients, to evaluate alone")
