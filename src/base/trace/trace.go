// Package trace measures where a rank's time goes, models the time of a step, and prints both: sums
// per phase, spans for Perfetto, tables for the terminal.
//
//	pool, issuer, training ┬─ Clock.Add(phase, ns) ──> totals of the rank ──> records, Table
//	                       └─ Recorder.Span ─────────> trace/rank-0003.json
//
// Phases of different goroutines overlap, so they do not add up to the time of the epoch. Wait is
// the time in which training had to wait for the other goroutines. The package knows no ranks,
// graphs or devices.
package trace

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// Phase is a part of a step. `make docs` prints the comments in docs/metrics.md.
type Phase int

// The phases in the order of a step.
const (
	// on the pool: drawing blocks and transposes
	Sample Phase = iota
	// by the issuer: asking owners for neighbours (partitioned topology), sending input hops
	// (`push-pull`), from start to completion
	Ask
	// on the pool: finding each row of the frontier, grouping fetched rows by owner
	Plan
	// on its own goroutine: a dynamic cache's decisions and scores, feeding its window
	Score
	// by the issuer: both all-to-alls, ids and rows, from start to completion
	Exchange
	// on the pool: copying rows that others requested
	Slice
	// on the pool, with a dynamic cache on its own goroutine: collecting and aggregating input
	// rows, copying rows into the cache
	Gather
	// training: layers and loss
	Forward
	// training: gradients, and the wait for a GPU's queued steps
	Backward
	// training: sending hidden rows, partial sums and gradients between layers (`parallel.mode`).
	// From GPU to GPU (`compute.shuffles`) they are only queued: the wait is in `forward` and
	// `backward`
	Shuffle
	// training: waiting for the sum of gradients after backward
	Sync
	// training: the optimiser
	Update
	// training: waiting for the next minibatch
	Wait
	// training: the pause to copy a checkpoint's state and, before a stop, to finish the previous
	// write. Files are written during later steps
	Save
	NumPhases
)

var phaseNames = [NumPhases]string{
	"sample", "ask", "plan", "score", "exchange", "slice", "gather", "forward", "backward",
	"shuffle", "sync", "update", "wait", "save",
}

// OfTraining returns the phases of the training goroutine. They add up to the time of the epoch,
// except for short times between them.
func OfTraining() []Phase { return []Phase{Forward, Backward, Shuffle, Sync, Update, Wait, Save} }

// String returns the name under which the phase is reported.
func (p Phase) String() string { return phaseNames[p] }

// Clock adds up the time of each phase. It may be used from many goroutines. The zero Clock is
// ready.
type Clock struct{ ns [NumPhases]atomic.Int64 }

// Add adds the duration d to the time of phase p.
func (c *Clock) Add(p Phase, d time.Duration) { c.ns[p].Add(int64(d)) }

// Seconds returns the seconds of every phase since the last Take.
func (c *Clock) Seconds() (seconds [NumPhases]float64) {
	for p := range seconds {
		seconds[p] = float64(c.ns[p].Load()) / 1e9
	}
	return seconds
}

// Take returns the seconds of every phase since the last Take and starts again at zero.
func (c *Clock) Take() (seconds [NumPhases]float64) {
	for p := range seconds {
		seconds[p] = float64(c.ns[p].Swap(0)) / 1e9
	}
	return seconds
}

// Table writes rows of cells in aligned columns: the first column to the left, the rest to the
// right.
func Table(w io.Writer, rows [][]string) error {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			if i == 0 {
				line += fmt.Sprintf("  %-*s", width[i], cell)
			} else {
				line += fmt.Sprintf("  %*s", width[i], cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}
