package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"halognn/src/base/mem"
	"halognn/src/data/rundir"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/runs/config"
)

// Saver writes checkpoints on rank 0: training copies its state, and a goroutine writes the copy.
//
//	step i ── vote ── gradient sum ── update ── copy ──┬── step i+1 ──────────────────────────>
//	                                                   └── files, sync, rename, prune ── done
//
// If a save is due while an earlier one is still being written, it happens at the first step after
// the write has ended.
type Saver struct {
	o     config.Saves
	run   string       // the run directory
	lock  *rundir.Lock // the lock of the run directory
	saved int          // number of updates at the last save, or at the start
	at    time.Time

	weights, best []float32 // [Params.Len()] copies, allocated by the first save
	bestOf        int       // epoch of the weights in best
	slots         [][]float32

	writing chan error // receives the result of the current write; nil if there is none
	Last    string     // the newest complete checkpoint; "" if there is none
	before  string     // the complete checkpoint before Last
	pending string     // the checkpoint being written
	slow    bool       // a save has had to wait for a write

	took time.Duration // time in which the last save was copied and written
	rare bool          // the user has been told that saves by time are rarer than asked for
}

// saveShare is the largest share of the time that saves by time may take.
const saveShare = 0.005

// NewSaver returns the saver of a run that has made the given number of updates. The argument
// `start` is the checkpoint from which the run continues, if any. The argument `lock` is the lock
// of the run directory.
func NewSaver(o config.Saves, run string, lock *rundir.Lock, updates int, start string) *Saver {
	return &Saver{o: o, run: run, lock: lock, saved: updates, at: time.Now(), Last: start}
}

// Close waits for the end of a write and frees the copies.
func (s *Saver) Close() error {
	err := s.Wait()
	mem.Free(s.weights)
	mem.Free(s.best)
	for _, slot := range s.slots {
		mem.Free(slot)
	}
	return err
}

// Due reports whether the state after the given number of updates should be saved.
func (s *Saver) Due(updates int, note func(format string, args ...any)) (bool, error) {
	idle, err := s.poll()
	if err != nil {
		return false, err
	}
	n := s.o.EverySteps
	due := n > 0 && updates/n > s.saved/n || idle && s.dueByTime(note)
	if due && !idle && !s.slow {
		s.slow = true
		note("a checkpoint was due while the previous one was still being written. It is made " +
			"once that write has ended, and later checkpoints wait alike")
	}
	return due && idle, nil
}

// dueByTime reports whether enough time has passed since the last save. No save may be under way. A
// save costs more than the pause for copying, because writing takes processor time from the next
// steps.
func (s *Saver) dueByTime(note func(format string, args ...any)) bool {
	asked := time.Duration(s.o.EveryMinutes * float64(time.Minute))
	if asked <= 0 {
		return false
	}
	every := max(asked, time.Duration(float64(s.took)/saveShare))
	if every > asked && !s.rare {
		s.rare = true
		note("a checkpoint took %.3g s. So the next one is made after %.3g minutes instead of "+
			"%g (checkpoint.every_minutes), and checkpoints take at most %g %% of the time",
			s.took.Seconds(), every.Minutes(), s.o.EveryMinutes, saveShare*100)
	}
	return time.Since(s.at) >= every
}

// Next records that the state after the given number of updates is to be saved, at the end of
// training or before. It returns the path of the checkpoint, and whether it has to be written. It
// need not be if a resumed run is stopped before its first step, because the checkpoint then exists
// already. No write may be under way.
func (s *Saver) Next(updates int, end bool) (path string, needed bool) {
	s.saved, s.at = updates, time.Now()
	path = rundir.CheckpointPath(s.run, updates, end)
	_, err := os.Stat(path)
	return path, err != nil
}

// Contents is what a checkpoint is made of. The saver owns State, Metadata and Log until the write
// has ended. It copies the arrays at once.
type Contents struct {
	State     *State
	Device    compute.Device
	Params    *nn.Params
	Optimizer *nn.Optimizer
	Best      []float32         // [Params.Len()] the best weights, in host memory
	Metadata  map[string]string // metadata of the model files
	Log       *rundir.Log
	// checksums of files of learned rows that are already written; nil if there are none
	Learned  rundir.FileSums
	Diverged bool // some learned rows are not finite
}

// Save copies the arrays and starts to write the checkpoint.
func (s *Saver) Save(path string, of Contents) {
	s.copy(&of)
	s.pending, s.writing = path, make(chan error, 1)
	files, done := s.contents(&of), s.writing
	go func() {
		err := s.write(path, files, &of)
		s.took = time.Since(s.at)
		done <- err
	}()
}

// copy copies the arrays. It is cheap: it moves a few bytes for each weight, and a step computes
// thousands of operations for each weight.
func (s *Saver) copy(of *Contents) {
	n, slots := of.Params.Len(), of.Optimizer.Slots()
	if s.weights == nil {
		s.weights, s.best = mem.Make[float32](n), mem.Make[float32](n)
		for range slots {
			s.slots = append(s.slots, mem.Make[float32](n))
		}
	}
	of.Device.Download(s.weights, of.Params.Values)
	for i, slot := range slots {
		of.Device.Download(s.slots[i], slot.Data)
	}
	if s.bestOf != of.State.BestEpoch {
		s.bestOf = of.State.BestEpoch
		copy(s.best, of.Best)
	}
}

// contents returns the files of a checkpoint, made from the copies.
func (s *Saver) contents(of *Contents) []rundir.File {
	tensors := func(name string, t []nn.Tensor) rundir.File {
		write := func(w io.Writer) error { return nn.FormatSafetensors(w, t, of.Metadata) }
		return rundir.File{Name: name, Write: write}
	}
	var slots []nn.Tensor
	for i, slot := range of.Optimizer.Slots() {
		slots = append(slots, of.Params.Views(s.slots[i], slot.Name+".")...)
	}
	files := []rundir.File{
		tensors(rundir.ModelFile, of.Params.Views(s.weights, "")),
		tensors(rundir.OptimizerFile, slots),
	}
	if of.State.BestEpoch > 0 {
		files = append(files, tensors(rundir.BestFile, of.Params.Views(s.best, "")))
	}
	return files
}

// Bytes returns the memory of the copies: 0 on ranks other than 0.
func (s *Saver) Bytes() int64 {
	if s == nil {
		return 0
	}
	n := len(s.weights) + len(s.best)
	for _, slot := range s.slots {
		n += len(slot)
	}
	return int64(n) * 4
}

// write writes a checkpoint. It runs in a goroutine of its own. It does not save weights that are
// not finite, because training is about to end with an error about them.
func (s *Saver) write(path string, files []rundir.File, of *Contents) error {
	for _, array := range append([][]float32{s.weights}, s.slots...) {
		if of.Diverged || !nn.Finite(array) {
			return fmt.Errorf("checkpoint %s: not written, because weights or optimiser state "+
				"are not finite: %w", path, nn.ErrDiverged)
		}
	}
	err := s.lock.Held()
	if err != nil {
		return err
	}
	// the log must be on disk first, because a resumed run appends to it after the steps of the
	// checkpoint
	if err := of.Log.Sync(); err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	complete := func(sums rundir.FileSums) any {
		of.State.Files = sums
		return of.State
	}
	if of.Learned == nil {
		err = rundir.WriteCheckpoint(path, files, complete)
	} else {
		err = rundir.CompleteCheckpoint(path, files, of.Learned, complete)
	}
	if err != nil {
		return err
	}
	return rundir.Prune(s.run, max(1, s.o.Keep))
}

// poll returns the error of a write that has ended, and whether the saver is idle: no write is
// under way.
func (s *Saver) poll() (idle bool, err error) {
	if s.writing == nil {
		return true, nil
	}
	select {
	case err := <-s.writing:
		return true, s.written(err)
	default:
		return false, nil
	}
}

// Wait waits for the end of the write and returns its error.
func (s *Saver) Wait() error {
	if s == nil || s.writing == nil {
		return nil
	}
	return s.written(<-s.writing)
}

// written handles the result of a write that has ended. If the write failed because the state was
// not finite, it returns no error: training is about to end with an error about its loss, which
// says more.
func (s *Saver) written(err error) error {
	s.writing = nil
	if err == nil {
		s.before, s.Last = s.Last, s.pending
	}
	if errors.Is(err, nn.ErrDiverged) {
		return nil
	}
	return err
}

// Good returns the last good checkpoint after the given number of updates, for messages. A
// checkpoint made after the last update has the weights with which training diverged, so it is not
// good.
func (s *Saver) Good(updates int) string {
	if s == nil {
		return ""
	}
	good, bad := s.Last, ""
	// compares a prefix, because the checkpoint at the end of training has a longer name
	latest := filepath.Base(rundir.CheckpointPath(s.run, updates, false))
	if good != "" && strings.HasPrefix(filepath.Base(good), latest) {
		good, bad = s.before, good+" holds the weights that diverged, and "
		if _, err := os.Stat(good); err != nil { // the checkpoint has been pruned
			good = ""
		}
	}
	switch {
	case good != "":
		return "; " + bad + "the last good checkpoint is " + good
	case bad != "":
		return "; " + bad + "there is no good checkpoint"
	}
	return "; there is no checkpoint"
}
