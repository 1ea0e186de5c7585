// Package trace measures where a rank's time goes, models the time of a step, and prints both: sums
// per phase, spans for Perfetto, tables for the terminal.
//
//	pool, issuer, training ┬─ Clock.Add(phase, ns) ──> totals of the rank ──> records, Table
//	                       └─ Recorder.Span ─────────> trace/rank-0003.json
//
// Phases of different goroutines overlap, so they do not add up to the epoch: the time that is not
// hidden is Wait. The package knows no ranks, graphs or devices.
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
	// on the pool: drawing blocks and transposes. Shuffling an epoch and cutting the seeds of a
	// step run on the training goroutine
	Sample Phase = iota
	// by the issuer: with a partitioned topology, asking owners for neighbours; with `parallel.mode:
	// push-pull`, sending input hops: from the start to the completion of each
	Ask
	// on the pool: finding each row of the frontier; grouping fetched rows by owner
	Plan
	// on a goroutine of its own, in order: the policy of a dynamic cache: its decisions, its
	// scores, and feeding it the window
	Score
	// by the issuer: ids and rows: from the start to the completion of each all-to-all, summed over
	// the two
	Exchange
	// on the pool: copying the rows that other ranks requested into one buffer
	Slice
	// on the pool, with a dynamic cache on a goroutine of its own, in order: collecting and
	// aggregating the input rows; copying rows into the cache
	Gather
	// training: layers and loss
	Forward
	// training: gradients; where a GPU's steps are queued, also the wait for the device
	Backward
	// training, where ranks share minibatches (`parallel.mode`): sending hidden rows and gradients
	// between two layers; where they hold columns: partial sums of the first layer and their gradients.
	// Where rows go from GPU to GPU (`compute.shuffles`) the host only queues them: the wait is in
	// `forward` and `backward`
	Shuffle
	// training: waiting for the sum of gradients after backward has ended
	Sync
	// training: the optimiser
	Update
	// training: waiting for the next minibatch, the first of an epoch included
	Wait
	// training: pausing for a checkpoint: one all-gather, copying the state and, at a stop, waiting
	// for the previous write. Writing files runs beside the next steps and does not count
	Save
	NumPhases
)

var phaseNames = [NumPhases]string{
	"sample", "ask", "plan", "score", "exchange", "slice", "gather", "forward", "backward",
	"shuffle", "sync", "update", "wait", "save",
}

// OfTraining returns the phases of the training goroutine. They add up to its epoch, except for the
// time between them.
func OfTraining() []Phase { return []Phase{Forward, Backward, Shuffle, Sync, Update, Wait, Save} }

// String returns the name under which the phase is reported.
func (p Phase) String() string { return phaseNames[p] }

// Clock adds up the time of each phase. It may be used from many goroutines. The zero Clock is
// ready.
type Clock struct{ ns [NumPhases]atomic.Int64 }

// Add adds d to phase p.
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
