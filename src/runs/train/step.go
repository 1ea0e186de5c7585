package train

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/nvtx"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/pipeline"
	"halognn/src/runs/record"
	"halognn/src/runs/watch"
	"halognn/src/step/parallel"
)

// admit sets the seeds of item i. Items are ordered by epoch, step and stream.
func (r *run) admit(i int, m *parallel.Minibatch) {
	m.Key = r.mine.Key(r.epoch, i)
	m.Key.Favour = r.factor.Value
	m.GlobalSeeds, m.Train = r.streams.GlobalSeeds(m.Key.Step), true
	m.Seeds = r.s.Job.Seeds(m.Key, mem.Grow(m.Seeds, r.streams.MaxPiece()))
}

// train trains one minibatch of a step. After the step's last minibatch it updates the weights.
func (r *run) train(i int, m *parallel.Minibatch) error {
	step, stream := m.Key.Step, m.Key.Stream-r.mine.First
	last := stream == r.mine.Count-1
	if stream == 0 {
		r.step = stepUnderWay{queues: r.queues(), seeds: m.GlobalSeeds}
		if step == 1 && r.unsettled.Load() == nil { // if the first step was queued, queue does this
			r.firstStepEnds()
		}
	}
	r.waiting += r.s.Pipe.Waited()
	if i == r.s.Skipped {
		r.startup += r.s.Pipe.Waited()
	}
	r.step.waiting += r.s.Pipe.Waited()
	r.step.item, r.step.number = i, step
	r.s.Watch.At(r.epoch, step, watch.Place(trace.Forward))
	if err := fault.At(fault.Forward, r.s.Comm.Rank(), r.epoch, step); err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	r.clock.Add(trace.Wait, r.s.Pipe.Waited())
	if err := r.vote(); err != nil {
		return err
	}
	if r.step.queues {
		return r.queue(m, last)
	}
	trained, err := r.s.Strategy.Step(m, last, stepPhases{r})
	if err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	r.keepFault(trained)
	if err := r.count(m); err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	if !last {
		return nil
	}
	return r.update(trained.Stats)
}

// keepFault keeps the first fault of this rank, the place where its numbers stopped being finite.
func (r *run) keepFault(t parallel.Trained) {
	if r.fault == nil {
		r.fault = t.Fault
	}
}

// stepPhases records the phases of the strategy in a step.
type stepPhases struct{ run *run }

// Begin implements parallel.Phases.
func (s stepPhases) Begin(p trace.Phase) {
	r := s.run
	r.step.began = begins(p)
	r.s.Watch.At(r.epoch, r.step.number, watch.Place(p))
}

// End implements parallel.Phases.
func (s stepPhases) End(p trace.Phase) { s.run.mark(p, s.run.step.item, s.run.step.began) }

// moment is the time when a phase began, and the phase's range in a profiler.
type moment struct {
	at   time.Time
	nvtx nvtx.Range
}

func begins(p trace.Phase) moment {
	shown := nvtx.Start(p.String())
	return moment{time.Now(), shown}
}

// mark ends a phase of a training minibatch, and adds its time.
func (r *run) mark(p trace.Phase, item int, began moment) {
	took := time.Since(began.at)
	began.nvtx.End()
	r.clock.Add(p, took)
	r.s.Spans.Span(p.String(), item, began.at, took)
	r.s.Watch.Alive()
}

// count checks and adds the row counts of a minibatch, and adds the time of preparing it.
func (r *run) count(m *parallel.Minibatch) error {
	c, err := r.s.Strategy.Counters(m)
	if err != nil {
		return err
	}
	took := r.s.Pipe.Took()
	for p, t := range took {
		r.clock.Add(trace.Phase(p), t)
	}
	c.Scoring = took[trace.Score]
	c = r.named(c)
	r.rows.Add(c)
	r.step.rows.Add(c)
	r.blocks += m.Digest
	r.edges += m.Edges
	return nil
}

// named returns the counters. Rows that were fetched early count in them under the name that the
// policy gives such rows: as early rows, or as rows of eviction rounds.
func (r *run) named(c trace.Counters) trace.Counters {
	if r.s.Cache.Policy().Rounds {
		return c.Replacing()
	}
	return c
}

// update runs the optimiser with the gradients summed over all ranks, and records their loss.
func (r *run) update(stats task.Stats) error {
	step := r.step.number
	lr, rowLR := r.s.Job.Rates((r.epoch-1)*r.steps() + step)
	r.step.lr = lr
	if err := r.accept(&r.step, stats); err != nil {
		return err
	}
	began := begins(trace.Update)
	r.optimizer.Update(lr)
	r.s.Learned.Update(r.s.Device, r.s.Host, r.s.Job.Optimizer, rowLR, r.optimizer.Steps())
	if err := r.s.Device.Sync(); err != nil {
		return err
	}
	r.mark(trace.Update, r.step.item, began)
	r.record(&r.step, stats)
	r.auto.StepEnds()
	r.s.Watch.At(r.epoch, step, watch.Place(trace.Wait))
	return r.obey(step, r.votes())
}

// accept returns an error if the step's loss is not finite or too large. Every rank has the same
// loss, so all stop at this step and can agree on the error.
func (r *run) accept(of *stepUnderWay, stats task.Stats) error {
	if math.IsNaN(stats.Loss) || math.IsInf(stats.Loss, 0) {
		r.diverged = fmt.Errorf("step %d: the loss is %v: %w", of.number, stats.Loss,
			nn.ErrDiverged)
		return pipeline.ErrStop
	}
	r.bound.begin(stats.Loss)
	if err := r.bound.check("the loss", stats.Loss); err != nil {
		r.diverged, r.outgrown = fmt.Errorf("step %d: %w", of.number, err), true
		r.record(of, stats)
		return pipeline.ErrStop
	}
	return nil
}

// record records the step's global loss, which is the same on every rank.
func (r *run) record(of *stepUnderWay, stats task.Stats) {
	var raw [4]byte
	binary.LittleEndian.PutUint32(raw[:], math.Float32bits(float32(stats.Loss)))
	r.losses.Write(raw[:])
	r.loss += stats.Loss * float64(of.seeds)
	r.seeds += of.seeds
	if r.s.Log == nil {
		return
	}
	r.s.Log.Write(r.line(of, stats))
	if r.env.Progress != nil {
		r.env.Progress.Step(stats.Loss)
	}
}

// line returns the line of a step for metrics.jsonl.
func (r *run) line(of *stepUnderWay, stats task.Stats) record.Step {
	share := r.share(stats.Sums)
	line := record.Step{
		Kind: record.KindStep, Time: record.Now(), Epoch: r.epoch, Step: of.number,
		Loss: stats.Loss, LossBits: fmt.Sprintf("%08x", math.Float32bits(float32(stats.Loss))),
		LR: of.lr, Seeds: of.seeds, Accuracy: accuracy(r.s.Task, share),
		WaitSeconds: of.waiting.Seconds(), Collectives: of.rows.Collectives,
		Rows: r.rowsOf(of.rows),
	}
	if r.s.Task.Ranks {
		line.MRR = &share
	}
	return line
}

// share returns the task's first metric for the predictions of a step.
func (r *run) share(s task.Sums) record.Metric {
	value, known := r.s.Task.Metrics[0].Value(&task.Tally{Sums: s})
	return record.Metric{Value: value, Known: known}
}

// accuracy returns the share of right predictions, which is reported beside other metrics. It is
// nil for tasks whose predictions are neither right nor wrong, such as numbers and ranks.
func accuracy(of *task.Task, m record.Metric) *record.Metric {
	if of.Numbers || of.Ranks {
		return nil
	}
	return &m
}
