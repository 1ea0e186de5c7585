// Package watch ends a run in which no rank makes progress.
//
//	stages, phases, chunks ── Prepared, At, Alive ──> Watchdog ── a line a beat ──> RUN/heartbeat
//	                                                     │                               │
//	                                     Stalled(err) <──┴──────── lines of all ranks <──┘
//
// A rank makes no progress if it was stopped, hangs in a system call, or waits in a collective that
// never ends. It is at work if, since its last beat,
//
//   - a stage of any of its minibatches, a phase of training or a chunk of inference has ended, or
//   - its threads have computed for a tenth of the time, not counting the one that polls for
//     messages, or
//   - pages of mapped files have come from disk.
//
// So a slow rank, for which all others wait, is not mistaken for one that hangs. The package
// communicates with other ranks only through the file, because MPI itself may be stuck.
package watch

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
)

type beat = rundir.Beat

// ErrStalled is wrapped by the error of a run in which no rank makes progress.
var ErrStalled = errors.New("the run has stalled")

// Options describe the watched rank.
type Options struct {
	Beats   rundir.Heartbeat // its file must exist
	Rank    int              // rank of the caller, below Beats.Ranks()
	Limit   time.Duration    // time without progress on any rank after which Stalled is called
	Polls   bool             // the main thread polls for messages: its time does not count as work
	Stalled func(error)      // ends the job, whatever state the other ranks are in
}

// Watchdog watches a run from one rank. A nil Watchdog watches nothing. All methods but Close may
// be called from many goroutines; they cost a few atomic operations and allocate nothing.
type Watchdog struct {
	o                  Options
	progress           atomic.Uint64
	epoch, step, place atomic.Int64

	mu    sync.Mutex
	stage string // the stage of preparation that ended last
	item  int    // the minibatch of that stage

	quit chan struct{}
	done sync.WaitGroup
}

// Place is where the training goroutine of a rank is: a trace.Phase of a step, or one of the places
// below.
type Place int64

// The places outside steps.
const (
	Evaluation  Place = Place(trace.NumPhases) + iota
	FinalTest         // includes writing the results
	CacheSwitch       // the change to another cache, with cache.policy auto
)

// monitors is the largest number of ranks that read the lines of all others. It is so large that
// one of these ranks survives, and so small that the filesystem is not overloaded.
const monitors = 8

// beatsBetweenScans is the number of beats between two scans. In this time every living rank beats,
// however busy its node is.
const beatsBetweenScans = 4

// Start writes the rank's first line and begins to watch.
func Start(o Options) (*Watchdog, error) {
	if err := o.Beats.Write(o.Rank, beat{}); err != nil {
		return nil, err
	}
	w := &Watchdog{o: o, quit: make(chan struct{})}
	w.done.Go(w.watch)
	return w, nil
}

// Close ends the watch. Rank 0 removes the file.
func (w *Watchdog) Close() error {
	if w == nil {
		return nil
	}
	close(w.quit)
	w.done.Wait()
	if w.o.Rank > 0 {
		return nil
	}
	return w.o.Beats.Remove()
}

// Alive records progress.
func (w *Watchdog) Alive() {
	if w != nil {
		w.progress.Add(1)
	}
}

// Prepared records that a stage of a minibatch has ended.
func (w *Watchdog) Prepared(stage string, item int) {
	if w == nil {
		return
	}
	w.progress.Add(1)
	w.mu.Lock()
	w.stage, w.item = stage, item
	w.mu.Unlock()
}

// At records where the training goroutine is. Epochs count from 1, steps from 0.
func (w *Watchdog) At(epoch, step int, p Place) {
	if w != nil {
		w.epoch.Store(int64(epoch))
		w.step.Store(int64(step))
		w.place.Store(int64(p))
		w.progress.Add(1)
	}
}

// watch writes this rank's line. If the rank has not been at work for the limit, it reads the lines
// of the others.
func (w *Watchdog) watch() {
	every := min(max(w.o.Limit/16, 50*time.Millisecond), 5*time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	ranks := w.o.Beats.Ranks()
	monitor := w.o.Rank%((ranks+monitors-1)/monitors) == 0
	others := scans{rank: w.o.Rank, limit: w.o.Limit, every: every}
	last, since := w.work(), time.Now()
	for count := uint64(1); ; count++ {
		now := w.work()
		if now.since(last, every) {
			since = time.Now()
		}
		last = now
		own := beat{
			Count: count, Age: time.Since(since),
			Epoch: w.epoch.Load(), Step: w.step.Load(), Place: w.place.Load(),
		}
		_ = w.o.Beats.Write(w.o.Rank, own) // a filesystem that fails shows in other errors
		if monitor {
			silent, behind, stalled := others.scan(own, time.Now(), w.o.Beats.Read)
			if stalled {
				w.end(own, others.seen, silent, behind)
				return
			}
		}
		select {
		case <-w.quit:
			return
		case <-tick.C:
		}
	}
}

// work holds the counts that show whether a rank is at work.
type work struct {
	progress uint64
	cpu      time.Duration
	pages    int64
}

// fewPages is the largest number of pages that a process that only waits may read from disk between
// two beats.
const fewPages = 8

func (w work) since(last work, every time.Duration) bool {
	return w.progress != last.progress || w.cpu-last.cpu >= every/10 ||
		w.pages-last.pages >= fewPages
}

func (w *Watchdog) work() work {
	return work{w.progress.Load(), trace.ProcessorTime(w.o.Polls), majorFaults()}
}

// majorFaults returns how many pages of mapped files have been read from disk.
func majorFaults() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // on an error u stays 0
	return u.Majflt
}

// scans holds the lines of other ranks that a rank has read while it was not at work itself.
type scans struct {
	rank         int
	limit, every time.Duration // limit of Options, and time between two beats
	seen         []beat        // the beats of the previous scan; nil before the first
	at           time.Time
}

// scan reads the beats of all ranks when a scan is due, and diagnoses the run from them and from
// the beats of the previous scan.
func (s *scans) scan(own beat, at time.Time, read func() []beat) (
	silent, behind []int, stalled bool,
) {
	switch {
	case own.Age < s.limit-beatsBetweenScans*s.every:
		s.seen = nil
		return nil, nil, false
	case s.seen != nil && (own.Age < s.limit || at.Sub(s.at) < beatsBetweenScans*s.every):
		return nil, nil, false
	}
	before := s.seen
	s.seen, s.at = read(), at
	if before == nil {
		return nil, nil, false
	}
	return diagnose(s.rank, s.limit, own, before, s.seen)
}

// diagnose compares two scans that are some beats apart. It runs on a rank that has not been at
// work for the limit. The run has stalled unless another rank has been at work. A rank whose count
// of beats has not changed is silent: its process or its node has stopped. If no rank is silent,
// the job waits for one of the ranks in the result behind. These are the ranks that are not ahead
// of this one.
func diagnose(rank int, limit time.Duration, own beat, before, now []beat) (
	silent, behind []int, stalled bool,
) {
	least := own
	for r, b := range now {
		switch {
		case r == rank:
		case b.Count == before[r].Count:
			silent = append(silent, r)
		case b.Age < limit:
			return nil, nil, false
		case earlier(b, least):
			least, behind = b, []int{r}
		case !earlier(least, b):
			behind = append(behind, r)
		}
	}
	return silent, behind, true
}

func earlier(a, b beat) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Step < b.Step
}

// end ends the job, unless another rank does that.
func (w *Watchdog) end(own beat, all []beat, silent, behind []int) {
	if !w.o.Beats.Claim() { // another rank ends the job, unless that rank fails too
		select {
		case <-w.quit:
			return
		case <-time.After(10 * time.Second):
		}
	}
	w.o.Stalled(w.describe(own, all, silent, behind))
}

// waitsFor says what a rank waits for, in the places where it waits.
var waitsFor = map[Place]string{
	Place(trace.Wait):    "waiting for the next minibatch, whose rows come from other ranks",
	Place(trace.Shuffle): "waiting for rows or sums of other ranks within a step",
	Place(trace.Sync):    "waiting for the sum of gradients of all ranks",
}

// where says in words where a rank is.
func where(b beat) string {
	switch p := Place(b.Place); {
	case b.Epoch == 0:
		return "before its first step"
	case p == Evaluation:
		return fmt.Sprintf("in the evaluation after epoch %d", b.Epoch)
	case p == FinalTest:
		return "in the final test"
	case p == CacheSwitch:
		return fmt.Sprintf("changing the cache before epoch %d", b.Epoch)
	default:
		return fmt.Sprintf("at epoch %d, step %d, in stage %s", b.Epoch, b.Step, trace.Phase(p))
	}
}

// describe returns the error of a run that has stalled, as this rank sees it.
func (w *Watchdog) describe(own beat, all []beat, silent, behind []int) error {
	var text strings.Builder
	fmt.Fprintf(&text, "rank %d has made no progress for %.1f s, nor has any other: it is %s",
		w.o.Rank, own.Age.Seconds(), where(own))
	if what := waitsFor[Place(own.Place)]; what != "" {
		fmt.Fprintf(&text, ", %s", what)
	}
	w.mu.Lock()
	stage, item := w.stage, w.item
	w.mu.Unlock()
	if stage != "" {
		fmt.Fprintf(&text, " (the last stage to end was %s of minibatch %d)", stage, item)
	}
	list := func(ranks []int, word string) {
		for k, r := range ranks {
			if k == 8 {
				fmt.Fprintf(&text, "; and %d more", len(ranks)-k)
				break
			}
			fmt.Fprintf(&text, "; %s rank %d, last seen %s", word, r, where(all[r]))
		}
	}
	list(silent, "no sign of life from")
	if len(silent) == 0 {
		list(behind, "alive, but no further than this rank:")
	}
	return fmt.Errorf("%s: %w. Look at the nodes of these ranks "+
		"(a stopped process, memory, disk, network), then start again with --resume. "+
		"The key run.stall_seconds sets how long to wait", text.String(), ErrStalled)
}
