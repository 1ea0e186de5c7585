package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"halognn/src/base/mem"
)

// Heartbeat is the file in which ranks report their progress during a run. Every rank writes to its
// own page, and can read all pages:
//
//	page 0   rank 0:  beats  age (ms since it was last at work)  epoch  step  place
//	page 1   rank 1   ...
//
// It is a file, not a message, because a rank that has stopped answers no message but leaves its
// last line, and because MPI itself may be stuck. Each page has only one writer, because NFS
// clients write back whole pages.
type Heartbeat struct {
	path  string
	ranks int
}

// Beat is what one rank writes to its page of the Heartbeat. The zero Beat means that the rank has
// not begun.
type Beat struct {
	Count uint64
	// time since the rank last did some work; stored in whole milliseconds
	Age         time.Duration
	Epoch, Step int64
	Place       int64 // position in the step, as a number that the writer defines
}

const (
	beatPage  = 4096
	beatBytes = 96
	claimed   = ".stalled" // suffix of the file that is made by the first rank to report a stall
)

// HeartbeatOf returns the heartbeat of a run with the given number of ranks.
func HeartbeatOf(dir string, ranks int) Heartbeat {
	return Heartbeat{filepath.Join(dir, HeartbeatFile), ranks}
}

// Ranks returns the number of ranks.
func (h Heartbeat) Ranks() int { return h.ranks }

// Create makes the file in its full size, so that beats can be written even when the disk is full.
func (h Heartbeat) Create() error {
	_ = os.Remove(h.path + claimed) // an earlier start may have left it
	return os.WriteFile(h.path, make([]byte, h.ranks*beatPage), 0o666)
}

// Remove deletes the file, if it exists.
func (h Heartbeat) Remove() error {
	if err := os.Remove(h.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Write replaces the line of a rank. The file must exist.
func (h Heartbeat) Write(rank int, b Beat) error {
	line := fmt.Sprintf("%d %d %d %d %d", b.Count, b.Age.Milliseconds(), b.Epoch, b.Step, b.Place)
	return overwrite(h.path, fmt.Appendf(nil, "%-*s\n", beatBytes-1, line), int64(rank)*beatPage)
}

// Read returns the lines of all ranks. The Beat of a line that cannot be read is zero.
func (h Heartbeat) Read() []Beat {
	all := make([]Beat, h.ranks)
	text, _ := mem.ReadFile(h.path)
	for r := range all {
		at := r * beatPage
		if at+beatBytes > len(text) {
			break
		}
		var ms int64
		var b Beat
		line := string(text[at : at+beatBytes])
		if _, err := fmt.Sscan(line, &b.Count, &ms, &b.Epoch, &b.Step, &b.Place); err == nil {
			b.Age = time.Duration(ms) * time.Millisecond
			all[r] = b
		}
	}
	return all
}

// Claim reports whether this rank is the first to report a stall.
func (h Heartbeat) Claim() bool {
	f, err := os.OpenFile(h.path+claimed, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err == nil {
		err = f.Close()
	}
	return !errors.Is(err, fs.ErrExist)
}
