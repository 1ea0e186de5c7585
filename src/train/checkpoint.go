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
	"halognn/src/record"
	"halognn/src/residence"
	"halognn/src/rundir"
	"halognn/src/trace"
	"halognn/src/watch"
)

// ErrStopped is wrapped by the error of a run that a signal stopped and that has saved its state.
var ErrStopped = errors.New("stopped by a signal")

// checkpointState is state.json: the state of a run between two steps. It holds sums over ranks, so
// that a run may go on with another number of ranks.
type checkpointState struct {
	Format int `json:"format"`
	checkpointOrigin
	checkpointPlace
	checkpointBest

	Cache *residence.Choice `json:"cache,omitempty"` // made by cache.policy auto

	Near *checkpointNearness `json:"locality,omitempty"`

	EpochSeconds []float64      `json:"epoch_seconds"`
	Sums         checkpointSums `json:"sums"`

	// FirstLoss is the loss of the run's first step, against which later losses are judged; older
	// versions lack it.
	FirstLoss *float64 `json:"first_loss,omitempty"`

	checkpointUnderWay

	Files rundir.FileSums `json:"files"`
}

// checkpointOrigin is the run that made a checkpoint.
type checkpointOrigin struct {
	Version string            `json:"version"` // of the program
	Parts   string            `json:"parts"`   // identity of the shards
	Config  map[string]string `json:"config"`
	Device  string            `json:"device"`
	Ranks   int               `json:"ranks"`
	Streams int               `json:"streams"`
	Common  int               `json:"common_streams,omitempty"` // sample.Spec.Common
}

// checkpointPlace is the next step to train, and the digests of the steps before it.
type checkpointPlace struct {
	Epoch          int    `json:"epoch"` // of the next step, from 1
	Step           int    `json:"step"`  // next, from 0; StepsPerEpoch: evaluation is next
	StepsPerEpoch  int    `json:"steps_per_epoch"`
	OptimizerSteps int    `json:"optimizer_steps"`
	LossDigest     []byte `json:"loss_digest_state"`
	BlocksDigest   string `json:"blocks_digest"` // sum over ranks, like
	EdgesDigest    string `json:"edges_digest,omitempty"`
}

// checkpointBest is the best validation so far.
type checkpointBest struct {
	BestEpoch    int           `json:"best_epoch"`
	BestMetric   record.Metric `json:"best_metric"`
	BestAccuracy record.Metric `json:"best_accuracy"`
	Since        int           `json:"validations_since"`
}

// checkpointUnderWay is the epoch under way.
type checkpointUnderWay struct {
	Loss    float64            `json:"loss"` // weighted by seeds
	Seeds   int                `json:"seeds"`
	Seconds float64            `json:"seconds"`
	First   float64            `json:"first_step_seconds"` // 0: the second step has not begun
	Waiting float64            `json:"wait_seconds"`       // mean over ranks, like
	Startup float64            `json:"startup_seconds"`
	Phases  map[string]float64 `json:"phases"` // likewise, by name
	Each    []rankShare        `json:"each_rank"`

	Counters trace.Counters `json:"counters"` // sum over ranks

	OldRows   oldCounters `json:"rows,omitempty"`          // Counters
	OldPhases []float64   `json:"phase_seconds,omitempty"` // see phases
}

// rankShare is one rank's share of the epoch under way.
type rankShare struct {
	Remote  int64   `json:"remote_rows"`
	Waiting float64 `json:"wait_seconds"`
	Startup float64 `json:"startup_seconds"`
}

// earlier returns a rank's share of the epoch under way before the checkpoint. If the number of
// ranks has changed, the rows are divided evenly.
func (s *checkpointState) earlier(rank, ranks int) rankShare {
	if len(s.Each) == ranks {
		return s.Each[rank]
	}
	before := func(r int) int64 { return s.Counters.Remote * int64(r) / int64(ranks) }
	return rankShare{before(rank+1) - before(rank), s.Waiting, s.Startup}
}

// share is one rank's contribution to a checkpoint or to the record of an epoch. Its size is fixed.
type share struct {
	Blocks  uint64
	Edges   uint64
	Rows    trace.Counters // on rank 0 also those carried over a restart
	Remote  int64          // rows of this rank
	Read    int64          // rows that it read for others in the epoch, or since a restart in it
	Rounds  int64          // started by this rank in the epoch, or since a restart in it
	Seconds float64
	Waiting float64
	Startup float64
	Busy    float64 // busy fraction of the rank's CPUs in the epoch, or since a restart in it
	Phases  [trace.NumPhases]float64
}

// shares holds the share of every rank, and their sum.
type shares struct {
	share
	each []share
}

// The votes, by index among the extra values of the gradient sum. A sum above 0 means that at least
// one rank votes for it.
const (
	voteSave = iota
	voteStop
)

// vote sets this rank's votes for the end of this step. Votes travel with the gradients, so that
// all ranks act at the same step. It returns the error of a write that has failed.
func (r keeper) vote() error {
	stop := false
	select {
	case <-r.s.Stop:
		stop = true
	default:
	}
	save := false
	if r.of.saver != nil {
		var err error
		if save, err = r.of.saver.due(r.of.optimizer.Steps()+1, r.note); err != nil {
			return err
		}
	}
	r.s.model.Params.SetExtra(voteSave, float32(boolInt(save)))
	r.s.model.Params.SetExtra(voteStop, float32(boolInt(stop)))
	return nil
}

// note prints a message to the user, on rank 0.
func (r keeper) note(format string, args ...any) {
	if r.s.Progress != nil {
		r.s.Progress.Note(context.Background(), fmt.Sprintf(format, args...))
	}
}

// obey acts on the ranks' votes after the update of a step. Collective.
func (r keeper) obey(step int) error {
	save, stop := r.s.model.Params.Extra(voteSave) > 0, r.s.model.Params.Extra(voteStop) > 0
	if !save && !stop {
		return nil
	}
	begin := time.Now()
	r.s.watch.At(r.of.epoch, step, watch.Place(trace.Save))
	if err := r.save(r.of.epoch, step+1, false); err != nil {
		return err
	}
	r.of.mark(trace.Save, begin)
	r.s.watch.At(r.of.epoch, step, watch.Place(trace.Wait))
	if stop {
		r.of.stopped = true
		return pipeline.ErrStop
	}
	return nil
}

// save copies the state between two steps and starts to write it. Collective; ranks other than 0 go
// on at once.
func (r keeper) save(epoch, step int, end bool) error {
	// Past the new end of a shrunk mapped file, reads may give zeros instead of a signal.
	if err := mem.CheckSizes(); err != nil {
		return err
	}
	all, err := r.gatherShares(time.Since(r.of.begun))
	if err != nil || r.of.saver == nil {
		return err
	}
	s := r.of.saver
	if err := s.wait(); err != nil { // the writer uses the copy until it is done
		return err
	}
	updates := r.of.optimizer.Steps()
	s.saved, s.at = updates, time.Now()
	path := rundir.CheckpointPath(r.s.Dir, updates, end)
	if _, err := os.Stat(path); err == nil { // a run resumed here was stopped before its next step
		return nil
	}
	state, err := r.state(epoch, step, all)
	if err != nil {
		return err
	}
	s.copy(r.of)
	s.pending, s.writing = path, make(chan error, 1)
	files := r.contents(state)
	log, done := r.s.log, s.writing
	go func() {
		err := s.write(path, files, state, log)
		s.took = time.Since(s.at)
		done <- err
	}()
	return nil
}

// gatherShares returns the ranks' shares of the epoch under way; took is its time so far.
// Collective.
func (r keeper) gatherShares(took time.Duration) (s shares, err error) {
	rows := r.of.rows
	rows.Add(r.of.carried)
	own := share{
		Blocks: r.of.blocks, Edges: r.of.edges, Rows: rows,
		Remote: r.of.rows.Remote + r.of.earlier, Read: r.of.rows.ServedReads,
		Rounds:  r.of.rows.Rounds,
		Seconds: took.Seconds(), Waiting: r.of.waiting.Seconds(), Startup: r.of.startup.Seconds(),
		Phases: r.of.clock.Seconds(),
		Busy:   r.of.processor.Busy(),
	}
	mine, err := binary.Append(nil, binary.LittleEndian, own)
	if err != nil {
		return s, err
	}
	all, err := comm.Allgather(r.s.Comm, mine...)
	if err != nil {
		return s, err
	}
	for ; len(all) > 0; all = all[len(mine):] {
		var one share
		if _, err := binary.Decode(all, binary.LittleEndian, &one); err != nil {
			return s, err
		}
		s.each = append(s.each, one)
		s.Blocks += one.Blocks
		s.Edges += one.Edges
		s.Rows.Add(one.Rows)
		s.Remote += one.Remote
		s.Waiting += one.Waiting
		s.Startup += one.Startup
		for p, t := range one.Phases {
			s.Phases[p] += t
		}
	}
	return s, nil
}

// state returns the state of the run between two steps.
func (r keeper) state(epoch, step int, all shares) (*checkpointState, error) {
	digest, err := r.of.losses.MarshalBinary()
	if err != nil {
		return nil, err
	}
	ranks := float64(r.s.Comm.Size())
	s := &checkpointState{
		Format: rundir.CheckpointFormat,
		checkpointOrigin: checkpointOrigin{
			Version: r.s.Version, Parts: r.s.Shards.Identity(), Config: r.s.Config,
			Device: r.s.Device.Name(),
			Ranks:  r.s.Comm.Size(), Streams: r.of.streams.Streams(),
			Common: r.s.job.Sample.Common(),
		},
		checkpointPlace: checkpointPlace{
			Epoch: epoch, Step: step, StepsPerEpoch: r.of.steps(),
			OptimizerSteps: r.of.optimizer.Steps(),
			LossDigest:     digest, BlocksDigest: fmt.Sprintf("%016x", all.Blocks),
			EdgesDigest: r.edgesDigest(all.Edges),
		},
		checkpointBest: checkpointBest{
			BestEpoch: r.of.best.epoch, BestMetric: r.of.best.valid.metric,
			BestAccuracy: r.of.best.valid.accuracy,
			Since:        r.of.best.since,
		},
		EpochSeconds: append([]float64(nil), r.of.seconds...), Sums: sumsOf(&r.of.sums),
	}
	s.Cache, s.Near, s.FirstLoss = r.of.auto.Choice(), r.nearState(), r.of.bound.first
	if epoch == r.of.epoch {
		s.Loss, s.Seeds, s.Seconds, s.First = r.of.loss, r.of.seeds, all.each[0].Seconds,
			r.of.firstStep
		s.Waiting, s.Startup = all.Waiting/ranks, all.Startup/ranks
		s.Counters = all.Rows
		s.Phases = map[string]float64{}
		for p, t := range all.Phases {
			s.Phases[trace.Phase(p).String()] = t / ranks
		}
		for _, one := range all.each {
			s.Each = append(s.Each, rankShare{one.Remote, one.Waiting, one.Startup})
		}
	}
	return s, nil
}

// edgesDigest formats the sum over ranks; it is empty for a run whose first steps have no digest of
// edges.
func (r keeper) edgesDigest(sum uint64) string {
	if r.of.noEdges {
		return ""
	}
	return fmt.Sprintf("%016x", sum)
}

// contents returns the files of a checkpoint of the copied state.
func (r keeper) contents(state *checkpointState) []rundir.File {
	s, p := r.of.saver, r.s.model.Params
	metadata := r.of.modelMetadata(state.Epoch)
	tensors := func(name string, t []nn.Tensor) rundir.File {
		write := func(w io.Writer) error { return nn.FormatSafetensors(w, t, metadata) }
		return rundir.File{Name: name, Write: write}
	}
	var slots []nn.Tensor
	for i, slot := range r.of.optimizer.Slots() {
		slots = append(slots, p.Views(s.slots[i], slot.Name+".")...)
	}
	files := []rundir.File{
		tensors(rundir.ModelFile, p.Views(s.weights, "")), tensors(rundir.OptimizerFile, slots),
	}
	if state.BestEpoch > 0 {
		files = append(files, tensors(rundir.BestFile, p.Views(s.best, "")))
	}
	return files
}

// stop ends a run whose ranks have voted to stop, once its state is on disk. Collective; if the
// write fails, rank 0 returns alone.
func (r keeper) stop() error {
	if err := r.of.saver.wait(); err != nil {
		return err
	}
	newest := rundir.CheckpointPath(r.s.Dir, r.of.optimizer.Steps(), false)
	lost := r.of.saver != nil && filepath.Base(r.of.saver.last) < filepath.Base(newest)
	anywhere, err := comm.AgreeAny(r.s.Comm, lost)
	if err != nil {
		return err
	}
	if anywhere {
		what := "the state of the optimiser"
		if f, ok := r.s.model.Params.WeightsFault(); ok {
			what = f.What
		}
		return comm.AgreedOn(r.s.Comm,
			fmt.Errorf("%w, but there was nothing to save: %w: the first that was not finite is %s%s",
				ErrStopped, ErrDiverged,
				what, r.of.saver.good(r.of.optimizer.Steps())))
	}
	return comm.AgreedOn(r.s.Comm,
		fmt.Errorf("%w after %d steps; the state is saved: go on with `halognn train --resume %s`",
			ErrStopped, r.of.optimizer.Steps(), r.s.Dir))
}
