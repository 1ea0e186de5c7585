// Package trace measures where a rank's time goes, has the model of what a step takes, and writes what a run
// reports: one JSON line per record, and the table at its end.
//
//	pool, lane, training ── Clock.Add(phase, ns) ──> per-rank totals ──> epoch record ──> metrics.jsonl
//	                                                                └──> Table ──> terminal
//
// Phases of different goroutines overlap, so they do not add up to the epoch: what training could not hide is Wait. The
// package knows no ranks, graphs or devices.
package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"

	"halognn/src/fault"
)

// Phase is a part of a step; docs/metrics.md defines each.
type Phase int

// The phases in the order of a step.
const (
	Sample   Phase = iota // drawing blocks
	Plan                  // finding out where each row lies
	Score                 // the policy of a cache that changes: decisions, scores, what it is told
	Exchange              // ids out, rows back, from start to completion
	Slice                 // copying together the rows that others have asked for
	Gather                // collecting and aggregating one's own
	Forward
	Backward
	Sync   // waiting for the gradient sum after backward has ended
	Update // optimiser
	Wait   // training waits for the next minibatch
	Save   // training stands still for a checkpoint: agreeing, copying the state; at a stop, waiting for the write before
	NumPhases
)

var phaseNames = [NumPhases]string{
	"sample", "plan", "score", "exchange", "slice", "gather", "forward", "backward", "sync", "update", "wait", "save",
}

// String returns the name under which the phase is reported.
func (p Phase) String() string { return phaseNames[p] }

// Clock adds up the time of each phase. It may be used from many goroutines. The zero Clock is ready.
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

// Log writes one JSON object a line. It may be used from many goroutines; the first error is kept for Close.
type Log struct {
	mu   sync.Mutex
	file *os.File
	buf  *bufio.Writer
	err  error
}

// CreateLog makes or empties the file at path.
func CreateLog(path string) (*Log, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &Log{file: f, buf: bufio.NewWriterSize(f, 1<<16)}, nil
}

// ContinueLog opens the log at path for further records, after dropping the lines that keep does not want, and a last line that was
// cut short. The file is replaced whole or not at all. One that is missing counts as empty.
func ContinueLog(path string, keep func(line []byte) bool) (*Log, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var kept []byte
	for line := range bytes.Lines(old) {
		if bytes.HasSuffix(line, []byte("\n")) && keep(line) {
			kept = append(kept, line...)
		}
	}
	if err := renameio.WriteFile(path, kept, 0o666, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	return &Log{file: f, buf: bufio.NewWriterSize(f, 1<<16)}, nil
}

// Write appends one record.
func (l *Log) Write(record any) {
	line, err := json.Marshal(record)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.buf.Write(append(line, '\n'))
	}
	if l.err == nil {
		l.err = err
	}
}

// Flush makes what was written visible to readers of the file.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.buf.Flush()
	if err == nil {
		err = fault.At(fault.Metrics, 0, -1, -1) // rank 0 writes
	}
	if l.err == nil {
		l.err = err
	}
}

// Sync returns when what was written is on disk, and the first error of the log's life. Records may be written meanwhile.
func (l *Log) Sync() error {
	l.Flush()
	err := l.file.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	return l.failed()
}

// failed returns the first error with the name of the file.
func (l *Log) failed() error {
	if l.err == nil {
		return nil
	}
	return fmt.Errorf("writing %s: %w", l.file.Name(), l.err)
}

// Close flushes and closes the file and returns the first error of the log's life.
func (l *Log) Close() error {
	l.Flush()
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	return l.failed()
}

// Table writes rows of cells in aligned columns: the first column to the left, the rest to the right.
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
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
