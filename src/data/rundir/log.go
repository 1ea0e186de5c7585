package rundir

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
)

// Log is metrics.jsonl, which has one JSON object in each line. Many goroutines may use it. It
// keeps the first error, which Sync and Close return.
type Log struct {
	mu   sync.Mutex
	file *os.File
	buf  *bufio.Writer
	err  error

	now     func() time.Time
	flushed time.Time // when Write last made records visible
}

// flushEvery is about how long a record waits until readers can see it, while further records are
// written.
const flushEvery = 2 * time.Second

// Position is a point between two steps of training.
type Position struct {
	Epoch int // number of the epoch, from 1
	// number of the next step, from 0; it equals the number of steps of the epoch if only the
	// evaluation is left
	Step int
}

// Begin deletes half-written files of an earlier start, and makes metrics.jsonl. If an earlier
// start saved no checkpoint, its records move to metrics.history.jsonl.
func Begin(dir string) (*Log, error) {
	if err := removeScraps(dir); err != nil {
		return nil, err
	}
	return continueLog(dir, func([]byte) bool { return false })
}

// Continue prepares dir for a run that resumes from the checkpoint at path. The checkpoint was made
// at a position in the training that is given (`at`). Continue deletes half-written files, and the
// summary, which is out of date. It renames newer checkpoints, which are damaged, so that no later
// search finds them. It opens metrics.jsonl for appending, with only the records of steps before
// the position, so that no step is in the file twice. Later records move to metrics.history.jsonl.
func Continue(dir, path string, at Position) (*Log, error) {
	if err := removeScraps(dir); err != nil {
		return nil, err
	}
	if err := setAside(dir, filepath.Base(path)); err != nil {
		return nil, err
	}
	err := os.Remove(filepath.Join(dir, SummaryFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return continueLog(dir, at.follows)
}

// follows reports whether the step of a record comes before the position p. A record of a whole
// epoch has no step; it comes before p if its epoch comes before the epoch of p.
func (p Position) follows(record []byte) bool {
	var of struct {
		Epoch int
		Step  *int
	}
	if json.Unmarshal(record, &of) != nil {
		return false
	}
	return of.Epoch < p.Epoch || of.Epoch == p.Epoch && of.Step != nil && *of.Step < p.Step
}

// continueLog opens the log of a run for more records. First it moves the lines for which the
// function `keep` returns false to the history, and drops a last line that is cut off. It replaces
// the log only after the history is on disk, and completely or not at all. A missing log counts as
// empty.
func continueLog(dir string, keep func(line []byte) bool) (*Log, error) {
	path := filepath.Join(dir, MetricsFile)
	old, err := mem.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var kept, repeated []byte
	for line := range bytes.Lines(old) {
		switch {
		case !bytes.HasSuffix(line, []byte("\n")):
		case keep(line):
			kept = append(kept, line...)
		default:
			repeated = append(repeated, line...)
		}
	}
	if err := appendTo(filepath.Join(dir, HistoryFile), repeated); err != nil {
		return nil, err
	}
	err = renameio.WriteFile(path, kept, 0o666, renameio.WithTempDir(dir))
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	return newLog(f), nil
}

// appendTo appends data to the file at path, and returns once the data is on disk. It makes no file
// if there is no data.
func appendTo(path string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func newLog(f *os.File) *Log {
	return &Log{file: f, buf: bufio.NewWriterSize(f, 1<<16), now: time.Now, flushed: time.Now()}
}

// Write appends a record. Every few seconds it also makes all records so far visible to readers.
func (l *Log) Write(record any) {
	line, err := json.Marshal(record)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.buf.Write(append(line, '\n'))
	}
	if now := l.now(); err == nil && now.Sub(l.flushed) >= flushEvery {
		err, l.flushed = l.buf.Flush(), now
	}
	if l.err == nil {
		l.err = err
	}
}

// Flush makes all records visible to readers of the file.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.buf.Flush()
	if err == nil {
		err = fault.At(fault.Metrics, 0, -1, -1) // only rank 0 writes this log
	}
	if l.err == nil {
		l.err = err
	}
}

// Sync returns when all records are on disk. It returns the first error since the log was opened.
// Other goroutines may write records in the meantime.
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

// failed returns the first error, with the name of the file.
func (l *Log) failed() error {
	if l.err == nil {
		return nil
	}
	return fmt.Errorf("writing %s: %w", l.file.Name(), l.err)
}

// Close flushes and closes the file, and returns the first error since the log was opened.
func (l *Log) Close() error {
	l.Flush()
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	return l.failed()
}
