package trace

import "time"

// SetUpItem is a part of a rank's work before its first step. `make docs` prints the comments in
// docs/metrics.md.
type SetUpItem int

// The items in the order in which they first occur.
const (
	// from the beginning of the command: joining the other ranks (MPI_Init), reading the config
	SetUpLaunch SetUpItem = iota
	// opening and mapping the parts and comparing them over ranks; copying them with
	// `topology.load: copy` and `run.stage_dir`
	SetUpOpen
	// hashes of the parts, with `data.verify: hashes`
	SetUpVerify
	// dividing CPUs among ranks, opening the device; on a GPU, its resident rows
	SetUpDevice
	// dividing the training seeds among the streams
	SetUpSeeds
	// weights and optimiser; communicators and buffers of the sum of gradients
	SetUpModel
	// finding the ranks of the node, mapping the feature rows of their parts
	SetUpTables
	// `cache.policy: auto`: counting what each candidate would transfer
	SetUpChoose
	// ranking vertices for the cache; of a dynamic cache its scoreboards, or the minibatches of its
	// first window
	SetUpRank
	// `expected_remote_rows_per_step`, and the window of `lookahead`
	SetUpPredict
	// fetching the first rows of the cache
	SetUpFill
	// communicator of the exchange, samplers, goroutines
	SetUpPipeline
	// run directory, checkpoint to go on from, logs, watchdog
	SetUpRun
	NumSetUpItems
)

var setUpNames = [NumSetUpItems]string{
	"launch", "open", "verify", "device", "seeds", "model", "tables", "choose", "rank", "predict",
	"fill", "pipeline", "run",
}

// String returns the name under which the item is reported.
func (i SetUpItem) String() string { return setUpNames[i] }

// SetUp times the work of a rank before its first step. One goroutine does all of it, so every
// moment belongs to one item, and the items add up to the total. A nil SetUp measures nothing.
type SetUp struct {
	begun, last time.Time
	took        [NumSetUpItems]time.Duration
	total       time.Duration // 0 while it lasts
}

// NewSetUp returns the timer of a set-up that began at the given time.
func NewSetUp(begun time.Time) *SetUp { return &SetUp{begun: begun, last: begun} }

// Done adds the time since the last call, or since the beginning, to item. After End it does
// nothing, as a run may open another cache later.
func (s *SetUp) Done(item SetUpItem) {
	if s == nil || s.total > 0 {
		return
	}
	now := time.Now()
	s.took[item] += now.Sub(s.last)
	s.last = now
}

// End adds the time since the last call to item, and ends the set-up.
func (s *SetUp) End(item SetUpItem) {
	s.Done(item)
	if s != nil && s.total == 0 {
		s.total = time.Since(s.begun)
	}
}

// Seconds returns the seconds of the items and their total, which is 0 before End.
func (s *SetUp) Seconds() (items [NumSetUpItems]float64, total float64) {
	if s == nil {
		return items, 0
	}
	for i, t := range s.took {
		items[i] = t.Seconds()
	}
	return items, s.total.Seconds()
}
