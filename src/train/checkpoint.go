package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"halognn/src/comm"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/pipeline"
	"halognn/src/trace"
)

// CheckpointOptions say when rank 0 saves the state of a run, besides at a stop and at the end of training, and how many
// checkpoints it keeps.
type CheckpointOptions struct {
	EverySteps   int     // 0: not by steps
	EveryMinutes float64 // 0: not by time
	Keep         int
}

// ErrStopped is wrapped by the error of a run that was asked to stop, and did, after saving its state.
var ErrStopped = errors.New("stopped by a signal")

// checkpointState is state.json: where a run stands between two steps. Sums over ranks are whole-run figures, so that a run may go on
// with another number of ranks.
type checkpointState struct {
	Format  int               `json:"format"`
	Version string            `json:"version"` // of the program
	Parts   string            `json:"parts"`   // identity of the shards
	Config  map[string]string `json:"config"`
	Device  string            `json:"device"`
	Ranks   int               `json:"ranks"`
	Streams int               `json:"streams"`

	Epoch          int    `json:"epoch"` // of the next step, from 1
	Step           int    `json:"step"`  // next, from 0; as many as an epoch has if only its evaluation is left
	StepsPerEpoch  int    `json:"steps_per_epoch"`
	OptimizerSteps int    `json:"optimizer_steps"`
	LossDigest     []byte `json:"loss_digest_state"`
	BlocksDigest   string `json:"blocks_digest"` // sum over ranks

	BestEpoch    int     `json:"best_epoch"`
	BestMetric   float64 `json:"best_metric"`
	BestAccuracy float64 `json:"best_accuracy"`
	Since        int     `json:"validations_since"`

	EpochSeconds []float64 `json:"epoch_seconds"`
	Sums         Summary   `json:"sums"` // over the epochs that are complete

	// Of the epoch under way.
	Loss    float64                  `json:"loss"` // weighted by seeds
	Seeds   int                      `json:"seeds"`
	Seconds float64                  `json:"seconds"`
	Waiting float64                  `json:"wait_seconds"`  // mean over ranks, as
	Phases  [trace.NumPhases]float64 `json:"phase_seconds"` // these
	Rows    tally                    `json:"rows"`          // sum over ranks

	Files map[string]fileSum `json:"files"`
}

// share is what a checkpoint needs of every rank. All of it has a fixed size.
type share struct {
	Blocks  uint64
	Rows    tally
	Waiting float64
	Phases  [trace.NumPhases]float64
}

// saver writes checkpoints on rank 0: training copies its state, and a goroutine writes the copy.
//
//	step i ── vote ── gradient sum ── update ── copy ──┬── step i+1 ──────────────────────────>
//	                                                   └── files, sync, rename, prune ── done
//
// A save that falls due meanwhile waits for the end of the write, and happens at the first step after it.
type saver struct {
	o     CheckpointOptions
	dir   string // RUN/checkpoints
	saved int    // updates at the last save, or at the start
	at    time.Time

	weights, best []float32 // [Params.Len()] copies, made with the first save
	bestOf        int       // epoch of the weights in best
	slots         [][]float32

	writing chan error // nil: nothing is being written
	last    string     // the newest complete checkpoint; empty: none
	pending string     // the one that is being written
	slow    bool       // a save has had to wait
}

// openSaver makes rank 0's saver; on other ranks it is nil.
func (r *run) openSaver() {
	if r.Comm.Rank() > 0 {
		return
	}
	r.saver = &saver{o: r.o.Checkpoint, dir: filepath.Join(r.Dir, CheckpointsDir), saved: r.optimizer.Steps(), at: time.Now()}
	if c := r.Resume; c != nil {
		r.saver.last = c.path
	}
	r.closers = append(r.closers, func() error {
		err := r.saver.wait()
		mem.Free(r.saver.weights)
		mem.Free(r.saver.best)
		for _, s := range r.saver.slots {
			mem.Free(s)
		}
		return err
	})
}

// vote says what this rank wants done after this step. Votes travel with the gradients, so that all ranks act at the same step. It returns
// the error of a write that has failed.
func (r *run) vote() error {
	stop := false
	select {
	case <-r.Stop:
		stop = true
	default:
	}
	save := false
	if r.saver != nil {
		var err error
		if save, err = r.saver.due(r.optimizer.Steps()+1, r.note); err != nil {
			return err
		}
	}
	r.model.Params.SetVotes(save, stop)
	return nil
}

// note tells the user something, on rank 0.
func (r *run) note(format string, args ...any) {
	if r.Progress != nil {
		r.Progress.Note(context.Background(), fmt.Sprintf(format, args...))
	}
}

// due reports whether the state after so many updates is to be saved.
func (s *saver) due(updates int, note func(format string, args ...any)) (bool, error) {
	idle, err := s.poll()
	if err != nil {
		return false, err
	}
	n, minutes := s.o.EverySteps, s.o.EveryMinutes
	due := n > 0 && updates/n > s.saved/n || minutes > 0 && time.Since(s.at).Minutes() >= minutes
	if due && !idle && !s.slow {
		s.slow = true
		note("a checkpoint fell due while the one before it was still being written; it follows at the next step after that, here and from now on")
	}
	return due && idle, nil
}

// obey does what the ranks have voted for, after the update of a step. Collective.
func (r *run) obey(step int) error {
	save, stop := r.model.Params.Votes()
	if !save && !stop {
		return nil
	}
	if err := r.save(r.epoch, step+1, false); err != nil {
		return err
	}
	if stop {
		r.stopped = true
		return pipeline.ErrStop
	}
	return nil
}

// save copies the state between two steps and has it written. Collective; other ranks go on at once.
func (r *run) save(epoch, step int, end bool) error {
	sum, err := r.gatherShares()
	if err != nil || r.saver == nil {
		return err
	}
	s := r.saver
	if err := s.wait(); err != nil { // the copy is the writer's until it is done
		return err
	}
	updates := r.optimizer.Steps()
	s.saved, s.at = updates, time.Now()
	path := filepath.Join(s.dir, checkpointName(updates, end))
	if _, err := os.Stat(path); err == nil { // a run that was resumed here stops before its next step
		return nil
	}
	state, err := r.state(epoch, step, sum)
	if err != nil {
		return err
	}
	s.copy(r)
	s.pending, s.writing = path, make(chan error, 1)
	files := r.contents(state)
	log, done := r.log, s.writing
	go func() { done <- s.write(path, files, state, log) }()
	return nil
}

// gatherShares returns the sum over ranks. Collective.
func (r *run) gatherShares() (sum share, err error) {
	mine, err := binary.Append(nil, binary.LittleEndian, share{r.blocks, r.rows, r.waiting.Seconds(), r.clock.Seconds()})
	if err != nil {
		return sum, err
	}
	all, err := comm.Allgather(r.Comm, mine...)
	if err != nil {
		return sum, err
	}
	for ; len(all) > 0; all = all[len(mine):] {
		var one share
		if _, err := binary.Decode(all, binary.LittleEndian, &one); err != nil {
			return sum, err
		}
		sum.Blocks += one.Blocks
		sum.Rows.add(one.Rows)
		sum.Waiting += one.Waiting
		for p, t := range one.Phases {
			sum.Phases[p] += t
		}
	}
	return sum, nil
}

// state describes the run between two steps.
func (r *run) state(epoch, step int, sum share) (*checkpointState, error) {
	digest, err := r.losses.MarshalBinary()
	if err != nil {
		return nil, err
	}
	ranks := float64(r.Comm.Size())
	for p := range sum.Phases {
		sum.Phases[p] /= ranks
	}
	s := &checkpointState{
		Format: checkpointFormat, Version: r.Version, Parts: r.Shards.Identity(), Config: r.Config, Device: r.Device.Name(),
		Ranks: r.Comm.Size(), Streams: r.streams.Streams(),
		Epoch: epoch, Step: step, StepsPerEpoch: r.steps(), OptimizerSteps: r.optimizer.Steps(),
		LossDigest: digest, BlocksDigest: sumText(sum.Blocks),
		BestEpoch: r.best.epoch, BestMetric: r.best.valid.metric, BestAccuracy: r.best.valid.accuracy, Since: r.best.since,
		EpochSeconds: append([]float64(nil), r.seconds...), Sums: r.sum.clone(),
	}
	if epoch == r.epoch {
		s.Loss, s.Seeds, s.Seconds = r.loss, r.seeds, time.Since(r.begun).Seconds()
		s.Waiting, s.Phases, s.Rows = sum.Waiting/ranks, sum.Phases, sum.Rows
	}
	return s, nil
}

// copy takes the arrays of the run: memory to memory, a few bytes for each of the thousands of operations that a step makes with a
// weight.
func (s *saver) copy(r *run) {
	p := r.model.Params
	if s.weights == nil {
		s.weights, s.best = mem.Make[float32](p.Len()), mem.Make[float32](p.Len())
		for range r.optimizer.Slots() {
			s.slots = append(s.slots, mem.Make[float32](p.Len()))
		}
	}
	r.Device.Download(s.weights, p.Values)
	for i, slot := range r.optimizer.Slots() {
		r.Device.Download(s.slots[i], slot.Data)
	}
	if s.bestOf != r.best.epoch {
		s.bestOf = r.best.epoch
		copy(s.best, r.best.weights)
	}
}

// bytes returns the memory of the copies; none has been made on other ranks than 0.
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

// contents are the files of the copied state.
func (r *run) contents(state *checkpointState) []content {
	s, p := r.saver, r.model.Params
	metadata := r.modelMetadata(state.Epoch)
	tensors := func(name string, t []nn.Tensor) content {
		return content{name, func(w io.Writer) error { return nn.FormatSafetensors(w, t, metadata) }}
	}
	var slots []nn.Tensor
	for i, slot := range r.optimizer.Slots() {
		slots = append(slots, p.Views(s.slots[i], slot.Name+".")...)
	}
	files := []content{tensors(ModelFile, p.Views(s.weights, "")), tensors(optimizerFile, slots)}
	if state.BestEpoch > 0 {
		files = append(files, tensors(bestFile, p.Views(s.best, "")))
	}
	return files
}

// write is the work of the goroutine. Weights that are not finite are not worth a checkpoint: training is about to end by them.
func (s *saver) write(path string, files []content, state *checkpointState, log *trace.Log) error {
	for _, array := range append([][]float32{s.weights}, s.slots...) {
		if !nn.Finite(array) {
			return fmt.Errorf("checkpoint %s: not written, because weights or optimiser state are not finite: %w", path, ErrDiverged)
		}
	}
	if err := log.Sync(); err != nil { // a restart continues the log behind the steps that are in it
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	if err := writeCheckpoint(s.dir, filepath.Base(path), files, state); err != nil {
		return err
	}
	return prune(s.dir, max(1, s.o.Keep))
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

// wait is poll after the end of the write.
func (s *saver) wait() error {
	if s == nil || s.writing == nil {
		return nil
	}
	return s.written(<-s.writing)
}

// written notes the end of a write. That the state is not finite is no error here: the next loss says more about it.
func (s *saver) written(err error) error {
	s.writing = nil
	if err == nil {
		s.last = s.pending
	}
	if errors.Is(err, ErrDiverged) {
		return nil
	}
	return err
}

// stop ends a run whose ranks have voted to stop, when its state is on disk. Collective; if that fails, rank 0 returns alone.
func (r *run) stop() error {
	if err := r.saver.wait(); err != nil {
		return err
	}
	lost := r.saver != nil && filepath.Base(r.saver.last) < checkpointName(r.optimizer.Steps(), false)
	anywhere, err := comm.AgreeMax(r.Comm, boolInt(lost))
	if err != nil {
		return err
	}
	if anywhere > 0 {
		f, _ := r.model.Params.WeightsFault()
		return AgreedOn(r.Comm, fmt.Errorf("%w, but there was nothing to save: %w: the first that was not finite is %s%s", ErrStopped, ErrDiverged,
			f.What, r.saver.good()))
	}
	return AgreedOn(r.Comm, fmt.Errorf("%w after %d steps; the state is saved: go on with `halognn train --resume %s`",
		ErrStopped, r.optimizer.Steps(), r.Dir))
}

// good says which checkpoint is the last good one, for messages.
func (s *saver) good() string {
	if s == nil {
		return ""
	}
	if s.last == "" {
		return "; there is no checkpoint"
	}
	return "; the last good checkpoint is " + s.last
}

// clone returns a copy that later epochs do not change.
func (s *Summary) clone() Summary {
	c := *s
	c.PhaseSeconds = map[string]float64{}
	for p, t := range s.PhaseSeconds {
		c.PhaseSeconds[p] = t
	}
	return c
}
