// Package trace measures where a rank's time goes, models the time of a step, and prints both: sums
// per phase, spans for Perfetto, tables for the terminal.
//
//	pool, lane, training ──┬─ Clock.Add(phase, ns) ──> totals of the rank ──> records, Table
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

// Phase is a part of a step; docs/metrics.md defines each.
type Phase int

// The phases in the order of a step.
const (
	Sample   Phase = iota // drawing blocks
	Ask                   // asking owners for neighbours: from start to completion of the rounds
	Plan                  // locating each row
	Score                 // the policy of a dynamic cache: decisions, scores, feeding its window
	Exchange              // ids out, rows back, from start to completion
	Slice                 // copying the rows that other ranks requested into one buffer
	Gather                // collecting and aggregating the input rows
	Forward
	Backward
	Sync   // waiting for the gradient sum after backward has ended
	Update // optimiser
	Wait   // training waits for the next minibatch
	// training pauses for a checkpoint: agreeing, copying the state; at a stop, the write before
	Save
	NumPhases
)

var phaseNames = [NumPhases]string{
	"sample", "ask", "plan", "score", "exchange", "slice", "gather", "forward", "backward", "sync",
	"update", "wait", "save",
}

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
