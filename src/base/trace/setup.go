package trace

import "time"

// SetUpItem is a part of a rank's work before its first step. `make docs` prints the comments in
// docs/metrics.md.
type SetUpItem int

// The items in the order in which they first occur.
const (
	// joining the other ranks (MPI_Init), reading the config
	SetUpLaunch SetUpItem = iota
	// opening, mapping and comparing the parts; copying them (`topology.load: copy`,
	// `run.stage_dir`)
	SetUpOpen
	// hashes of the parts (`data.verify: hashes`)
	SetUpVerify
	// dividing CPUs, opening the device; a GPU's resident rows
	SetUpDevice
	// dividing training seeds among streams
	SetUpSeeds
	// weights, optimiser, communicators and buffers of gradients
	SetUpModel
	// mapping the feature rows of the node's ranks
	SetUpTables
	// `cache.policy: auto`: counting what each candidate would transfer
	SetUpChoose
	// ranking vertices for the cache; a dynamic one's scoreboards or first window
	SetUpRank
	// `expected_remote_rows_per_step`, and the window of `lookahead`
	SetUpPredict
	// fetching the first rows of the cache
	SetUpFill
	// communicator of the exchange, samplers, goroutines
	SetUpPipeline
	// run directory, checkpoint, logs, watchdog
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
	total       time.Duration // total time; 0 while the set-up lasts
}

// NewSetUp returns the timer of a set-up that began at the given time.
func NewSetUp(begun time.Time) *SetUp { return &SetUp{begun: begun, last: begun} }

// Done adds the time since the last call, or since the beginning, to an item. After End it does
// nothing: a run may open another cache later, which is not part of the set-up.
func (s *SetUp) Done(item SetUpItem) {
	if s == nil || s.total > 0 {
		return
	}
	now := time.Now()
	s.took[item] += now.Sub(s.last)
	s.last = now
}

// End adds the time since the last call to an item, and ends the set-up.
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
