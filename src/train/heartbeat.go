package train

import (
	"errors"
	"fmt"
	"os"
	"time"

	"halognn/src/trace"
)

// HeartbeatFile is where ranks say, while a run lasts, how far they are: a page of the file for each, so that every rank writes its own and can
// read all.
//
//	page 0   rank 0:  beats  age (ms since it was last at work)  epoch  step  place
//	page 1   rank 1   ...
//
// A file and not messages: a rank that has stopped answers none, its last line remains, and MPI may be what is stuck. It is opened
// for every beat and look, because NFS promises no more than that what was written before a close is seen after an open; and
// no page has two writers, because NFS clients write back whole pages.
const HeartbeatFile = "heartbeat"

const (
	beatPage  = 4096
	beatBytes = 96
	claimed   = ".stalled" // suffix of the file that the first rank to see a stall makes, so that one tells
)

// place is where the training goroutine of a rank is: a phase of a step, or one of those.
type place int64

const (
	inEvaluation place = place(trace.NumPhases) + iota
	inTest
	inSwitch // to another cache, with cache.policy auto
)

// beat is the line of one rank.
type beat struct {
	count       uint64
	age         time.Duration
	epoch, step int64
	place       place
}

// where says it in words.
func (b beat) where() string {
	switch {
	case b.epoch == 0:
		return "before its first step"
	case b.place == inEvaluation:
		return fmt.Sprintf("in the evaluation after epoch %d", b.epoch)
	case b.place == inTest:
		return "in the final test"
	case b.place == inSwitch:
		return fmt.Sprintf("changing the cache before epoch %d", b.epoch)
	}
	return fmt.Sprintf("at epoch %d, step %d, in stage %s", b.epoch, b.step, trace.Phase(b.place))
}

// before reports whether b is not as far as o.
func (b beat) before(o beat) bool {
	return b.epoch < o.epoch || b.epoch == o.epoch && b.step < o.step
}

// heartbeat is the file.
type heartbeat struct {
	path  string
	ranks int
}

// create makes the file, whole, so that a disk that fills up later stops no beat.
func (h heartbeat) create() error {
	_ = os.Remove(h.path + claimed) // of an earlier start
	return os.WriteFile(h.path, make([]byte, h.ranks*beatPage), 0o666)
}

// write replaces the line of a rank.
func (h heartbeat) write(rank int, b beat) error {
	f, err := os.OpenFile(h.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%d %d %d %d %d", b.count, b.age.Milliseconds(), b.epoch, b.step, b.place)
	_, err = f.WriteAt(fmt.Appendf(nil, "%-*s\n", beatBytes-1, line), int64(rank)*beatPage)
	return errors.Join(err, f.Close())
}

// read returns the lines of all ranks; zero for one that cannot be read.
func (h heartbeat) read() []beat {
	all := make([]beat, h.ranks)
	text, _ := os.ReadFile(h.path)
	for r := range all {
		at := r * beatPage
		if at+beatBytes > len(text) {
			break
		}
		var ms int64
		var b beat
		if _, err := fmt.Sscan(string(text[at:at+beatBytes]), &b.count, &ms, &b.epoch, &b.step, &b.place); err == nil {
			b.age = time.Duration(ms) * time.Millisecond
			all[r] = b
		}
	}
	return all
}

// claim reports whether this rank is the first to want to tell.
func (h heartbeat) claim() bool {
	f, err := os.OpenFile(h.path+claimed, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err == nil {
		err = f.Close()
	}
	return !errors.Is(err, os.ErrExist)
}
