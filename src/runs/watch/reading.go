package watch

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
)

// Reading watches what a rank reads on its own before a Watchdog watches the run, because a file
// system may never answer. The function read that During calls must not call a collective: while a
// rank waits for others, nothing shows whether its own file system answers.
type Reading struct {
	Limit   time.Duration // time without progress after which Stalled is called; 0 means never
	Stalled func(error)   // ends the job
	waits   atomic.Int32
}

// Waiting records that the reader begins, or ends, to wait for another process on purpose.
func (r *Reading) Waiting(begins bool) {
	if begins {
		r.waits.Add(1)
	} else {
		r.waits.Add(-1)
	}
}

// During calls read and watches the process meanwhile. Messages call the thing that is read by the
// given name. Reading bytes is progress, and so is all that a Watchdog counts as progress.
func (r *Reading) During(name string, read func() error) error {
	if _, known := mem.ReadBytes(); r.Limit <= 0 || !known {
		return read()
	}
	quit := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		every := min(max(r.Limit/16, 50*time.Millisecond), 5*time.Second)
		tick := time.NewTicker(every)
		defer tick.Stop()
		last, since := r.work(), time.Now()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			now := r.work()
			if now.since(last.work, every) || now.chars-last.chars >= fewChars ||
				r.waits.Load() > 0 {
				since = time.Now()
			}
			last = now
			if age := time.Since(since); age >= r.Limit {
				r.Stalled(fmt.Errorf("reading %s has made no progress for %.1f s: %w. Look at "+
					"its file system (a server that is gone, a disk that fails). "+
					"The key run.stall_seconds sets how long to wait",
					name, age.Seconds(), ErrStalled))
				return
			}
		}
	})
	defer watching.Wait()
	defer close(quit)
	return read()
}

// readWork holds the counts of work, and the number of bytes read.
type readWork struct {
	work
	chars int64
}

// fewChars is a number of bytes that is larger than what the watch itself reads between two beats.
const fewChars = 1 << 14

func (r *Reading) work() (w readWork) {
	w.cpu, w.pages = trace.ProcessorTime(false), majorFaults()
	w.chars, _ = mem.ReadBytes()
	return w
}
