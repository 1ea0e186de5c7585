package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"halognn/src/config"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/rundir"
)

// saver writes checkpoints on rank 0: training copies its state, and a goroutine writes the copy.
//
//	step i ── vote ── gradient sum ── update ── copy ──┬── step i+1 ──────────────────────────>
//	                                                   └── files, sync, rename, prune ── done
//
// A save that falls due meanwhile waits for the end of the write, and happens at the first step
// after it.
type saver struct {
	o     config.Saves
	run   string       // its directory
	lock  *rundir.Lock // of the directory
	saved int          // number of updates at the last save, or at the start
	at    time.Time

	weights, best []float32 // [Params.Len()] copies, made with the first save
	bestOf        int       // epoch of the weights in best
	slots         [][]float32

	writing chan error // nil: nothing is being written
	last    string     // the newest complete checkpoint; empty: none
	before  string     // the one before it
	pending string     // the checkpoint being written
	slow    bool       // a save has had to wait for a write

	took time.Duration // of the last save: copy and files
	rare bool          // the user knows that saves by time are rarer than asked for
}

// saveShare bounds the share of the time that saves by time may take.
const saveShare = 0.005

// openSaver makes rank 0's saver; on other ranks it is nil.
func (r keeper) openSaver() {
	if r.s.Comm.Rank() > 0 {
		return
	}
	r.of.saver = &saver{o: r.s.o.Checkpoint, run: r.s.Dir, lock: r.of.lock,
		saved: r.of.optimizer.Steps(),
		at:    time.Now()}
	if c := r.s.Resume; c != nil {
		r.of.saver.last = c.path
	}
	r.s.closers = append(r.s.closers, func() error {
		err := r.of.saver.wait()
		mem.Free(r.of.saver.weights)
		mem.Free(r.of.saver.best)
		for _, s := range r.of.saver.slots {
			mem.Free(s)
		}
		return err
	})
}

// due reports whether the state after the given number of updates should be saved.
func (s *saver) due(updates int, note func(format string, args ...any)) (bool, error) {
	idle, err := s.poll()
	if err != nil {
		return false, err
	}
	n := s.o.EverySteps
	due := n > 0 && updates/n > s.saved/n || idle && s.dueByTime(note)
	if due && !idle && !s.slow {
		s.slow = true
		note("a checkpoint fell due while the one before it was still being written; it follows " +
			"at the next step after that, here and from now on")
	}
	return due && idle, nil
}

// dueByTime reports whether enough time has passed since the last save. None may be under way. Not
// only the pause counts as its cost: writing takes processor time from the next steps too.
func (s *saver) dueByTime(note func(format string, args ...any)) bool {
	asked := time.Duration(s.o.EveryMinutes * float64(time.Minute))
	if asked <= 0 {
		return false
	}
	every := max(asked, time.Duration(float64(s.took)/saveShare))
	if every > asked && !s.rare {
		s.rare = true
		note("a checkpoint took %.3g s: the next one by time follows %.3g minutes after it, not %g "+
			"(checkpoint.every_minutes), so that they cost %g %% of the time at most, here and from "+
			"now on", s.took.Seconds(), every.Minutes(), s.o.EveryMinutes, saveShare*100)
	}
	return time.Since(s.at) >= every
}

// copy copies the arrays of the run. It is cheap: a few bytes a weight, beside thousands of
// operations a weight in each step.
func (s *saver) copy(r *run) {
	p := r.s.model.Params
	if s.weights == nil {
		s.weights, s.best = mem.Make[float32](p.Len()), mem.Make[float32](p.Len())
		for range r.optimizer.Slots() {
			s.slots = append(s.slots, mem.Make[float32](p.Len()))
		}
	}
	r.s.Device.Download(s.weights, p.Values)
	for i, slot := range r.optimizer.Slots() {
		r.s.Device.Download(s.slots[i], slot.Data)
	}
	if s.bestOf != r.best.epoch {
		s.bestOf = r.best.epoch
		copy(s.best, r.best.weights)
	}
}

// bytes returns the memory of the copies: 0 on ranks other than 0.
func (s *saver) bytes() int64 {
	if s == nil {
		return 0
	}
	n := len(s.weights) + len(s.best)
	for _, slot := range s.slots {
		n += len(slot)
	}
	return int64(n) * 4
}

// write writes a checkpoint; it runs in the goroutine. It does not save weights that are not
// finite, because training is about to end with an error about them.
func (s *saver) write(path string, files []rundir.File, state *checkpointState,
	log *rundir.Log) error {
	for _, array := range append([][]float32{s.weights}, s.slots...) {
		if !nn.Finite(array) {
			return fmt.Errorf("checkpoint %s: not written, because weights or optimiser state "+
				"are not finite: %w", path, ErrDiverged)
		}
	}
	if err := s.lock.Held(); err != nil {
		return err
	}
	// A restart continues the log after the steps of the checkpoint.
	if err := log.Sync(); err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	complete := func(sums rundir.FileSums) any {
		state.Files = sums
		return state
	}
	if err := rundir.WriteCheckpoint(path, files, complete); err != nil {
		return err
	}
	return rundir.Prune(s.run, max(1, s.o.Keep))
}

// poll returns the error of a write that has ended, and whether none is under way.
func (s *saver) poll() (idle bool, err error) {
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

// wait waits for the end of the write and returns its error.
func (s *saver) wait() error {
	if s == nil || s.writing == nil {
		return nil
	}
	return s.written(<-s.writing)
}

// written notes the end of a write. It does not report a state that is not finite: the error about
// the next loss says more.
func (s *saver) written(err error) error {
	s.writing = nil
	if err == nil {
		s.before, s.last = s.last, s.pending
	}
	if errors.Is(err, ErrDiverged) {
		return nil
	}
	return err
}

// good names the last good checkpoint after the given number of updates, for messages. A checkpoint
// made after the last update holds the weights with which training diverged.
func (s *saver) good(updates int) string {
	if s == nil {
		return ""
	}
	good, bad := s.last, ""
	// A prefix: the checkpoint at the end of training has a longer name.
	latest := filepath.Base(rundir.CheckpointPath(s.run, updates, false))
	if good != "" && strings.HasPrefix(filepath.Base(good), latest) {
		good, bad = s.before, good+" holds the weights that diverged, and "
		if _, err := os.Stat(good); err != nil { // pruned
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
