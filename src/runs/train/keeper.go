package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/watch"
)

// ErrStopped is wrapped by the error of a run that a signal stopped and that has saved its state.
var ErrStopped = errors.New("stopped by a signal")

// ErrUnsaved is wrapped by the error of a checkpoint that the ranks could not write together.
var ErrUnsaved = errors.New("the state is not saved")

// share is one rank's part of a checkpoint or of the record of an epoch. Its size is fixed, because
// ranks gather it in binary form.
type share struct {
	Blocks uint64
	Edges  uint64
	Rows   trace.Counters // counts of rows; on rank 0 they include those before a restart
	Remote int64          // remote rows of this rank in the epoch
	// Rows that this rank has read for others in the epoch. After a restart within the epoch, it
	// counts from the restart.
	Read int64
	// Collectives that this rank has started in the epoch. After a restart within the epoch, it
	// counts from the restart.
	Collectives int64
	Seconds     float64
	Waiting     float64
	Startup     float64
	Busy        float64 // busy fraction of the rank's CPUs in the epoch, or since a restart in it
	CPUs        float64 // CPUs of the rank
	// Energy of the rank's node: in the epoch (from the restart, if there was one within it), and
	// in the run.
	Joules joules
	Phases [trace.NumPhases]float64
}

// shares holds the share of every rank, and their sum.
type shares struct {
	share
	each []share
}

// The votes. Each constant is the index of one extra value in the gradient sum, to which a rank
// adds 1 to vote. A sum above 0 means that at least one rank has voted for it.
const (
	voteSave = iota
	voteStop
)

// ballot is what at least one rank has voted for.
type ballot struct{ save, stop bool }

func (b ballot) or(o ballot) ballot { return ballot{b.save || o.save, b.stop || o.stop} }

// votes returns the votes of all ranks in the step whose stats were read last.
func (r *run) votes() ballot {
	p := r.s.Model.Params
	return ballot{save: p.Extra(voteSave) > 0, stop: p.Extra(voteStop) > 0}
}

// openSaver makes rank 0's saver; on other ranks it is nil.
func (r *run) openSaver() {
	if r.s.Comm.Rank() > 0 {
		return
	}
	last := ""
	if c := r.env.Resume; c != nil {
		last = c.Path
	}
	r.saver = checkpoint.NewSaver(r.saves, r.env.Dir, r.lock,
		r.optimizer.Steps(), last)
	r.s.Closers = append(r.s.Closers, r.saver.Close)
}

// vote sets this rank's votes at the end of this step. The votes are summed with the gradients, so
// all ranks act at the same step. It returns the error of a checkpoint that could not be written.
func (r *run) vote() error {
	stop := false
	select {
	case <-r.env.Stop:
		stop = true
	default:
	}
	save := false
	if r.saver != nil {
		var err error
		if save, err = r.saver.Due(r.optimizer.Steps()+1, r.note); err != nil {
			return err
		}
	}
	for vote, yes := range [...]bool{voteSave: save, voteStop: stop} {
		value := float32(0)
		if yes {
			value, r.step.voted = 1, true
		}
		r.s.Model.Params.SetExtra(vote, value)
	}
	return nil
}

func (r *run) note(format string, args ...any) {
	if r.env.Progress != nil {
		r.env.Progress.Note(context.Background(), fmt.Sprintf(format, args...))
	}
}

// obey acts on the votes of the ranks after the update of a step. Collective.
func (r *run) obey(step int, votes ballot) error {
	if votes == (ballot{}) {
		return nil
	}
	began := begins(trace.Save)
	r.s.Watch.At(r.epoch, step, watch.Place(trace.Save))
	err := r.save(r.epoch, step+1, false)
	if comm.IsAgreed(err) { // all ranks end in order; any other error ends the job at once
		r.unsaved = err
		return pipeline.ErrStop
	} else if err != nil {
		return err
	}
	r.mark(trace.Save, r.step.item, began)
	r.s.Watch.At(r.epoch, step, watch.Place(trace.Wait))
	if votes.stop {
		r.stopped = true
		return pipeline.ErrStop
	}
	return nil
}

// save copies the state between two steps and starts to write it. Ranks other than 0 do not wait
// for this. But if there are learned rows, every rank first writes its own. Collective.
func (r *run) save(epoch, step int, end bool) error {
	// if a mapped file has shrunk, reading past its end may give zeros instead of a signal
	if err := mem.CheckSizes(); err != nil {
		return err
	}
	all, err := r.gatherShares(time.Since(r.begun))
	if err != nil {
		return err
	}
	s, path, needed := r.saver, "", false
	if s != nil {
		if err := s.Wait(); err != nil { // the writer still uses the copy of the last save
			return err
		}
		if path, needed = s.Next(r.optimizer.Steps(), end); !needed {
			path = ""
		}
	}
	learned, diverged, err := r.saveLearned(path)
	if err != nil || !needed {
		return err
	}
	state, err := r.state(epoch, step, all)
	if err != nil {
		return err
	}
	s.Save(path, checkpoint.Contents{
		State: state, Device: r.s.Device, Params: r.s.Model.Params, Optimizer: r.optimizer,
		Best: r.best.weights, Metadata: r.modelMetadata(epoch), Log: r.s.Log,
		Learned: learned, Diverged: diverged,
	})
	return nil
}

// saveLearned writes the learned rows, if there are any, into the checkpoint at the path that rank
// 0 passes. If rank 0 passes "", there is no checkpoint. Every rank writes its own file, and
// training waits for all files. Collective.
func (r *run) saveLearned(path string) (sums rundir.FileSums, diverged bool, err error) {
	if r.s.Learned.Cols == 0 {
		return nil, false, nil
	}
	if path != "" {
		err = r.lock.Held()
	}
	if err = comm.Agree(r.s.Comm, err); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnsaved, err)
	}
	if diverged, err = comm.AgreeAny(r.s.Comm, !r.s.Learned.Finite()); err != nil {
		return nil, false, err
	}
	sums, err = checkpoint.SaveLearned(r.s.Comm, path, r.s.Learned, r.s.First, r.s.Last,
		r.best.epoch > 0, r.s.Watch.Alive)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnsaved, err)
	}
	return sums, diverged, err
}

// gatherShares returns the ranks' shares of the epoch under way. The argument `elapsed` is the time
// of the epoch so far. Collective.
func (r *run) gatherShares(elapsed time.Duration) (s shares, err error) {
	rows := r.rows
	rows.Add(r.carried)
	own := share{
		Blocks: r.blocks, Edges: r.edges, Rows: rows,
		Remote: r.rows.Remote + r.earlier, Read: r.rows.ServedReads,
		Collectives: r.rows.Collectives,
		Seconds:     elapsed.Seconds(), Waiting: r.waiting.Seconds(), Startup: r.startup.Seconds(),
		Phases: r.clock.Seconds(),
		Busy:   r.processor.Busy(), CPUs: r.processor.CPUs, Joules: r.energy.own(),
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
func (r *run) state(epoch, step int, all shares) (*checkpoint.State, error) {
	digest, err := r.losses.MarshalBinary()
	if err != nil {
		return nil, err
	}
	ranks := float64(r.s.Comm.Size())
	s := &checkpoint.State{
		Format: rundir.CheckpointFormat,
		Origin: checkpoint.Origin{
			Version: r.env.Version, Parts: r.s.Shards.Identity(), Config: r.env.Config,
			Device: r.s.Device.Name(),
			Ranks:  r.s.Comm.Size(), Streams: r.streams.Streams(),
			Common: r.s.Job.Sample.Common(),
		},
		Place: checkpoint.Place{
			Epoch: epoch, Step: step, StepsPerEpoch: r.steps(),
			OptimizerSteps: r.optimizer.Steps(),
			LossDigest:     digest, BlocksDigest: r.blocksDigest(all.Blocks),
			EdgesDigest: r.edgesDigest(all.Edges),
		},
		Best: checkpoint.Best{
			BestEpoch: r.best.epoch, BestMetric: r.best.valid.Metric,
			BestAccuracy: r.best.valid.Accuracy,
			Since:        r.best.since,
		},
		EpochSeconds: append([]float64(nil), r.seconds...), Sums: r.sums.Copy(),
	}
	s.Cache, s.Near, s.FirstLoss = r.auto.Choice(), r.nearState(), r.bound.first
	if epoch == r.epoch {
		s.Loss, s.Seeds, s.Seconds, s.First = r.loss, r.seeds, all.each[0].Seconds,
			r.firstStep
		s.Waiting, s.Startup = all.Waiting/ranks, all.Startup/ranks
		s.Counters = all.Rows
		s.Phases = map[string]float64{}
		for p, t := range all.Phases {
			s.Phases[trace.Phase(p).String()] = t / ranks
		}
		for _, one := range all.each {
			s.Each = append(s.Each, checkpoint.Share{Remote: one.Remote,
				Waiting: one.Waiting, Startup: one.Startup})
		}
	}
	return s, nil
}

// edgesDigest returns the digest of all sampled edges as text. The argument `sum` is the sum of the
// ranks' digests. The text is empty if the first steps of the run have no digest of edges.
func (r *run) edgesDigest(sum uint64) string {
	if r.noEdges {
		return ""
	}
	return fmt.Sprintf("%016x", sum)
}

// blocksDigest returns the digest of all blocks as text. The argument `sum` is the sum of the
// ranks' digests. The text is empty if a device has drawn some minibatches of the run, because a
// device makes no digest of blocks.
func (r *run) blocksDigest(sum uint64) string {
	if r.noBlocks {
		return ""
	}
	return fmt.Sprintf("%016x", sum)
}

// stop ends a run whose ranks have voted to stop, once its state is on disk. If the write fails,
// only rank 0 returns. Collective.
func (r *run) stop() error {
	if err := r.saver.Wait(); err != nil {
		return err
	}
	newest := rundir.CheckpointPath(r.env.Dir, r.optimizer.Steps(), false)
	lost := r.saver != nil && rundir.CompareAge(r.saver.Last, newest) < 0
	anywhere, err := comm.AgreeAny(r.s.Comm, lost)
	if err != nil {
		return err
	}
	if anywhere {
		what := "the state of the optimiser"
		if f, ok := r.s.Model.Params.WeightsFault(); ok {
			what = f.What
		}
		return comm.AgreedOn(r.s.Comm,
			fmt.Errorf("%w, and the state was not saved, because %w: the first number that was "+
				"not finite: %s%s", ErrStopped, nn.ErrDiverged,
				what, r.saver.Good(r.optimizer.Steps())))
	}
	return comm.AgreedOn(r.s.Comm,
		fmt.Errorf("%w after %d steps; the state is saved: go on with `halognn train --resume %s`",
			ErrStopped, r.optimizer.Steps(), r.env.Dir))
}
