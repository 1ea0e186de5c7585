package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"halognn/src/pipeline"
	"halognn/src/trace"
)

// ErrStalled is wrapped by the errors about runs in which no rank makes progress any more.
var ErrStalled = errors.New("the run has stalled")

// watchdog ends a run in which no rank is at work: one was stopped, hangs in a system call, or a collective never ends. A rank is at work
// if, since its last beat,
//
//   - a stage of any of its minibatches, a phase of training or a chunk of inference has ended, or
//   - its threads have computed for a tenth of the time, not counting the one that polls for messages, or
//   - pages of mapped files have come from disk.
//
// So a rank that is slow keeps all others waiting, and is not mistaken for one that hangs.
type watchdog struct {
	rank  int
	limit time.Duration
	polls bool        // the main thread's time is no work
	tell  func(error) // ends the job
	beats heartbeat

	progress           atomic.Uint64
	epoch, step, place atomic.Int64

	mu   sync.Mutex
	last pipeline.Span // of preparation that has ended

	quit chan struct{}
	done sync.WaitGroup
}

// lookers is how many ranks look at the others at most: enough that one is left, few enough for the filesystem.
const lookers = 8

// apart is how many beats lie between two looks: every rank that is alive has beaten meanwhile, however busy its node.
const apart = 4

// alive notes progress. A nil watchdog watches nothing.
func (w *watchdog) alive() {
	if w != nil {
		w.progress.Add(1)
	}
}

// prepared notes that a stage of a minibatch has ended.
func (w *watchdog) prepared(s pipeline.Span) {
	if w == nil {
		return
	}
	w.progress.Add(1)
	w.mu.Lock()
	w.last = s
	w.mu.Unlock()
}

// at notes where the training goroutine is.
func (w *watchdog) at(epoch, step int, p place) {
	if w != nil {
		w.epoch.Store(int64(epoch))
		w.step.Store(int64(step))
		w.place.Store(int64(p))
		w.progress.Add(1)
	}
}

// startWatchdog begins to watch if the run wants it. Collective.
func (r *run) startWatchdog() error {
	if r.Stall <= 0 || r.OnStall == nil {
		return nil
	}
	w := &watchdog{
		rank: r.Comm.Rank(), limit: r.Stall, polls: r.Polls, tell: r.OnStall, quit: make(chan struct{}),
		beats: heartbeat{filepath.Join(r.Dir, HeartbeatFile), r.Comm.Size()},
	}
	var err error
	if w.rank == 0 {
		err = w.beats.create()
	}
	if err := Agree(r.Comm, err); err != nil {
		return err
	}
	if err := Agree(r.Comm, w.beats.write(w.rank, beat{})); err != nil {
		return fmt.Errorf("%w; the run directory must be on a filesystem that all nodes share, or run.stall_seconds 0", err)
	}
	w.done.Add(1)
	go w.watch()
	r.watch = w
	r.closers = append(r.closers, w.close)
	return nil
}

// close ends the watch; rank 0 removes the file.
func (w *watchdog) close() error {
	if w == nil {
		return nil
	}
	close(w.quit)
	w.done.Wait()
	if w.rank > 0 {
		return nil
	}
	if err := os.Remove(w.beats.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // whoever removed it wanted what we want
}

// watch writes this rank's line and, when the rank has not been at work for the limit, looks at those of the others.
func (w *watchdog) watch() {
	defer w.done.Done()
	every := min(max(w.limit/16, 50*time.Millisecond), 5*time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	looker := w.rank%((w.beats.ranks+lookers-1)/lookers) == 0
	others := looks{rank: w.rank, limit: w.limit, every: every}
	last, since := w.work(), time.Now()
	for count := uint64(1); ; count++ {
		if now := w.work(); now.since(last, every) {
			last, since = now, time.Now()
		} else {
			last = now
		}
		own := beat{count, time.Since(since), w.epoch.Load(), w.step.Load(), place(w.place.Load())}
		_ = w.beats.write(w.rank, own) // a filesystem that fails shows elsewhere
		if looker {
			if silent, behind, stalled := others.look(own, time.Now(), w.beats.read); stalled {
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

// work is what shows whether a rank is at work.
type work struct {
	progress uint64
	cpu      time.Duration
	pages    int64
}

// fewPages come from disk in a process that only waits.
const fewPages = 8

// since reports whether there was work between two beats.
func (w work) since(last work, every time.Duration) bool {
	return w.progress != last.progress || w.cpu-last.cpu >= every/10 || w.pages-last.pages >= fewPages
}

func (w *watchdog) work() work {
	now := work{progress: w.progress.Load()}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		now.cpu, now.pages = time.Duration(u.Utime.Nano()+u.Stime.Nano()), u.Majflt
	}
	if w.polls {
		now.cpu -= mainThread()
	}
	return now
}

// mainThread returns the processor time of the main thread, by the number that Linux gives the clock of a thread.
func mainThread() time.Duration {
	const perThread, scheduler = 4, 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^os.Getpid()<<3|perThread|scheduler), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// looks are what a rank sees of the others while it is not at work itself.
type looks struct {
	rank         int
	limit, every time.Duration // every: from one beat to the next
	seen         []beat        // nil: nothing yet
	at           time.Time
}

// look reads the beats of all ranks if it is time to, and judges by them and those of the look before.
func (l *looks) look(own beat, at time.Time, read func() []beat) (silent, behind []int, stalled bool) {
	switch {
	case own.age < l.limit-apart*l.every:
		l.seen = nil
		return nil, nil, false
	case l.seen != nil && (own.age < l.limit || at.Sub(l.at) < apart*l.every):
		return nil, nil, false
	}
	before := l.seen
	l.seen, l.at = read(), at
	if before == nil {
		return nil, nil, false
	}
	return judge(l.rank, l.limit, own, before, l.seen)
}

// judge decides from two looks, some beats apart, by a rank that has not been at work for the limit. A rank whose count has not changed is silent: it
// has stopped, or its node has. If there is none, the job waits for the ranks that are not ahead of this one.
func judge(rank int, limit time.Duration, own beat, before, now []beat) (silent, behind []int, stalled bool) {
	least := own
	for r, b := range now {
		switch {
		case r == rank:
		case b.count == before[r].count:
			silent = append(silent, r)
		case b.age < limit:
			return nil, nil, false
		case b.before(least):
			least, behind = b, []int{r}
		case !least.before(b):
			behind = append(behind, r)
		}
	}
	return silent, behind, true
}

// end ends the job, unless another rank does.
func (w *watchdog) end(own beat, all []beat, silent, behind []int) {
	if !w.beats.claim() { // then this one is about to be ended, unless the other fails to
		select {
		case <-w.quit:
			return
		case <-time.After(10 * time.Second):
		}
	}
	w.tell(w.describe(own, all, silent, behind))
}

// waitsFor says what a rank waits for in the places where it waits.
var waitsFor = map[place]string{
	place(trace.Wait): "waiting for the next minibatch, whose rows come from other ranks",
	place(trace.Sync): "waiting for the sum of gradients of all ranks",
}

func (w *watchdog) describe(own beat, all []beat, silent, behind []int) error {
	var text strings.Builder
	fmt.Fprintf(&text, "rank %d has made no progress for %.1f s, nor has any other: it is %s", w.rank, own.age.Seconds(), own.where())
	if what := waitsFor[own.place]; what != "" {
		fmt.Fprintf(&text, ", %s", what)
	}
	w.mu.Lock()
	s := w.last
	w.mu.Unlock()
	if s.Stage != "" {
		fmt.Fprintf(&text, " (the last stage to end was %s of minibatch %d)", s.Stage, s.Item)
	}
	list := func(ranks []int, word string) {
		for k, r := range ranks {
			if k == 8 {
				fmt.Fprintf(&text, "; and %d more", len(ranks)-k)
				break
			}
			fmt.Fprintf(&text, "; %s rank %d, last seen %s", word, r, all[r].where())
		}
	}
	list(silent, "no sign of life from")
	if len(silent) == 0 {
		list(behind, "alive but not ahead:")
	}
	return fmt.Errorf("%s: %w; look at the nodes of these ranks (a stopped process, memory, disk, network), then start again with --resume; run.stall_seconds says how long to wait", text.String(), ErrStalled)
}
