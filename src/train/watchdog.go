package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"halognn/src/trace"
)

// ErrStalled is wrapped by the errors about runs in which no rank makes progress any more.
var ErrStalled = errors.New("the run has stalled")

// HeartbeatFile is where ranks say, while a run lasts, how far they are: a line of beatBytes for each, at a fixed place, so that every rank writes
// its own and reads all.
//
//	rank 0   beats  age (ms since progress)  epoch  step  stage
//	rank 1   ...
//
// A file and not messages: a rank that has stopped answers no messages, its last line remains, and MPI may be what is stuck. It
// costs a write of a line every few seconds and rank.
const HeartbeatFile = "heartbeat"

const beatBytes = 96

// watchdog ends a run in which nobody makes progress: a rank was stopped, hangs in a system call, or a collective never ends. Progress is the end of a
// stage for any minibatch, a phase of training or a chunk of inference on any rank. So a rank that is slow keeps all alive, unless one such piece of
// its work takes longer than the limit.
type watchdog struct {
	rank, ranks int
	limit       time.Duration
	path        string
	file        *os.File
	tell        func(error) // ends the job

	progress    atomic.Uint64
	epoch, step atomic.Int64
	stage       atomic.Int64 // trace.Phase of the training goroutine

	quit chan struct{}
	done sync.WaitGroup
}

// alive notes progress. A nil watchdog watches nothing.
func (w *watchdog) alive() {
	if w != nil {
		w.progress.Add(1)
	}
}

// at notes where the training goroutine is.
func (w *watchdog) at(epoch, step int, stage trace.Phase) {
	if w != nil {
		w.epoch.Store(int64(epoch))
		w.step.Store(int64(step))
		w.stage.Store(int64(stage))
		w.progress.Add(1)
	}
}

// startWatchdog begins to watch if the run wants it. Collective.
func (r *run) startWatchdog() error {
	if r.Stall <= 0 || r.OnStall == nil {
		return nil
	}
	w := &watchdog{
		rank: r.Comm.Rank(), ranks: r.Comm.Size(), limit: r.Stall, path: filepath.Join(r.Dir, HeartbeatFile), tell: r.OnStall, quit: make(chan struct{}),
	}
	var err error
	if w.rank == 0 {
		_ = os.Remove(w.path + claimed) // of an earlier start
		err = os.WriteFile(w.path, make([]byte, w.ranks*beatBytes), 0o666)
	}
	if err := Agree(r.Comm, err); err != nil {
		return err
	}
	w.file, err = os.OpenFile(w.path, os.O_RDWR, 0)
	if err := Agree(r.Comm, err); err != nil {
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
	close(w.quit)
	w.done.Wait()
	err := w.file.Close()
	if w.rank == 0 {
		err = errors.Join(err, os.Remove(w.path))
	}
	return err
}

// beat is the line of one rank.
type beat struct {
	count       uint64
	age         time.Duration
	epoch, step int64
	stage       trace.Phase
}

// watch writes this rank's line and, when the rank has not moved for the limit, looks at those of the others.
func (w *watchdog) watch() {
	defer w.done.Done()
	every := min(max(w.limit/16, 50*time.Millisecond), 5*time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var seen []beat // at the last tick, if this rank did not move
	last, since := w.progress.Load(), time.Now()
	for count := uint64(1); ; count++ {
		if now := w.progress.Load(); now != last {
			last, since = now, time.Now()
		}
		own := beat{count, time.Since(since), w.epoch.Load(), w.step.Load(), trace.Phase(w.stage.Load())}
		w.write(own) // a disk that is full shows elsewhere
		if own.age < w.limit {
			seen = nil
		} else {
			now := w.read()
			if seen != nil && w.stalled(own, seen, now) {
				return
			}
			seen = now
		}
		select {
		case <-w.quit:
			return
		case <-tick.C:
		}
	}
}

func (w *watchdog) write(b beat) {
	line := fmt.Sprintf("%d %d %d %d %d", b.count, b.age.Milliseconds(), b.epoch, b.step, b.stage)
	_, _ = w.file.WriteAt([]byte(fmt.Sprintf("%-*s\n", beatBytes-1, line)), int64(w.rank)*beatBytes)
}

// read returns the lines of all ranks; zero for one that cannot be read.
func (w *watchdog) read() []beat {
	all := make([]beat, w.ranks)
	raw := make([]byte, w.ranks*beatBytes)
	n, _ := w.file.ReadAt(raw, 0)
	for r := range all {
		if (r+1)*beatBytes > n {
			break
		}
		var ms int64
		b := &all[r]
		if _, err := fmt.Sscan(string(raw[r*beatBytes:(r+1)*beatBytes-1]), &b.count, &ms, &b.epoch, &b.step, &b.stage); err == nil {
			b.age = time.Duration(ms) * time.Millisecond
		}
	}
	return all
}

// stalled decides from two looks, a tick apart, and ends the job. A rank whose count has not changed is silent: it has stopped, or its node has.
func (w *watchdog) stalled(own beat, before, now []beat) bool {
	var silent, behind []int
	least := own
	for r, b := range now {
		if r == w.rank {
			continue
		}
		switch {
		case b.count == before[r].count:
			silent = append(silent, r)
		case b.age < w.limit: // slow, but it moves
			return false
		case b.epoch < least.epoch || b.epoch == least.epoch && b.step < least.step:
			least, behind = b, []int{r}
		case b.epoch == least.epoch && b.step == least.step:
			behind = append(behind, r)
		}
	}
	claim, err := os.OpenFile(w.path+claimed, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, os.ErrExist) { // another rank tells; it ends this one, unless it fails to
		select {
		case <-w.quit:
			return true
		case <-time.After(10 * time.Second):
		}
	} else if err == nil {
		claim.Close()
	}
	w.tell(w.describe(own, now, silent, behind))
	return true
}

// claimed is the suffix of the file that the first rank to see a stall makes, so that one tells.
const claimed = ".stalled"

// waitsFor says what each stage waits for.
var waitsFor = map[trace.Phase]string{
	trace.Wait: "the next minibatch, whose rows come from the ranks", trace.Sync: "the sum of gradients of all ranks",
}

func (w *watchdog) describe(own beat, all []beat, silent, behind []int) error {
	var text strings.Builder
	fmt.Fprintf(&text, "rank %d has made no progress for %.1f s, nor has any other: it is at epoch %d, step %d, in stage %s", w.rank, own.age.Seconds(), own.epoch, own.step, own.stage)
	if what := waitsFor[own.stage]; what != "" {
		fmt.Fprintf(&text, ", waiting for %s", what)
	}
	list := func(ranks []int, word string) {
		for k, r := range ranks {
			if k == 8 {
				fmt.Fprintf(&text, "; and %d more", len(ranks)-k)
				break
			}
			if all[r].epoch == 0 {
				fmt.Fprintf(&text, "; %s rank %d, last seen before its first step", word, r)
				continue
			}
			fmt.Fprintf(&text, "; %s rank %d, last seen at epoch %d, step %d, in stage %s", word, r, all[r].epoch, all[r].step, all[r].stage)
		}
	}
	list(silent, "no sign of life from")
	if len(silent) == 0 {
		list(behind, "alive but not ahead:")
	}
	return fmt.Errorf("%s: %w; look at the nodes of these ranks (a stopped process, memory, disk, network), then start again with --resume; run.stall_seconds says how long to wait", text.String(), ErrStalled)
}
