package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"halognn/src/comm"
	"halognn/src/fault"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/pipeline"
	"halognn/src/sample"
	"halognn/src/trace"
)

// run is the state of a training run.
type run struct {
	*session
	log     *trace.Log     // rank 0
	losses  *xxhash.Digest // of every step's loss bits
	blocks  uint64         // sum of this rank's minibatch digests
	seconds []float64      // of every epoch
	best    best
	sum     Summary
	saver   *saver // rank 0
	stopped bool   // the ranks have voted to stop

	// Of the epoch under way.
	epoch   int
	loss    float64 // sum over steps of the global loss, weighted by seeds
	seeds   int
	rows    tally
	waiting time.Duration
	begun   time.Time // earlier than it was by the time that the epoch took before a restart

	// Of the step under way, which may have several minibatches.
	item        int
	stepRows    tally
	stepWaiting time.Duration

	diverged error     // the loss is not a number any more
	fault    *nn.Fault // where this rank's share of it stopped being one
}

// best is the model of the best validation so far.
type best struct {
	epoch   int // from 1; 0 before the first validation
	valid   quality
	weights []float32
	since   int // validations since
}

// Run trains and returns the summary, the same on every rank but for EpochSeconds, which is the rank's own. Collective. On
// an error other ranks may still be waiting, unless it was agreed on by all (see Agreed): the caller then ends the job.
func Run(ctx context.Context, env Env, o Options) (*Summary, error) {
	s, err := open(env, o)
	if err != nil {
		return nil, err
	}
	r := &run{session: s, losses: xxhash.New()}
	if err := r.run(ctx); err != nil {
		if r.log != nil { // what led to the failure is worth most when there is one
			r.log.Flush()
		}
		r.spans.Flush()
		if agreed := (*Agreed)(nil); errors.As(err, &agreed) { // and all end in order; otherwise the watch lasts until an abort has worked
			err = errors.Join(err, r.watch.close())
		}
		return nil, err
	}
	return &r.sum, s.close()
}

func (r *run) run(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	for epoch := r.epoch + 1; epoch <= r.o.Epochs && !r.patienceOut(); epoch++ {
		if err := r.beginTrial(ctx, epoch); err != nil {
			return fmt.Errorf("epoch %d: %w", epoch, err)
		}
		if err := r.trainEpoch(ctx, epoch); err != nil {
			return fmt.Errorf("epoch %d: %w", epoch, err)
		}
		if err := r.endTrial(); err != nil {
			return fmt.Errorf("epoch %d: %w", epoch, err)
		}
		if err := r.validate(ctx, epoch); err != nil {
			return fmt.Errorf("evaluation after epoch %d: %w", epoch, r.predictionsDiverged(err))
		}
	}
	if err := r.save(r.epoch+1, 0, true); err != nil { // the final test, which may take long, is not worth a second training
		return err
	}
	return r.finish(ctx)
}

// start opens the log and says what a user should know before the first step.
func (r *run) start(ctx context.Context) error {
	r.best.weights = mem.Make[float32](r.model.Params.Len())
	r.closers = append(r.closers, func() error { mem.Free(r.best.weights); return nil })
	if r.Resume != nil {
		if err := r.restore(r.Resume); err != nil { // all ranks have read the same
			return AgreedOn(r.Comm, err)
		}
	}
	if r.Begin != nil {
		if err := r.Begin(); err != nil {
			return err
		}
	}
	var err error
	if r.Comm.Rank() == 0 {
		r.log, err = r.openLog()
	}
	if err := Agree(r.Comm, err); err != nil {
		return err
	}
	if err := r.startTrace(); err != nil {
		return err
	}
	if err := r.startWatchdog(); err != nil {
		return err
	}
	r.openSaver()
	if r.Progress == nil {
		return nil
	}
	if w := r.streams.Warning(); w != "" {
		r.Progress.Note(ctx, w)
	}
	if !r.gradients.Reproducible() {
		r.Progress.Note(ctx, "gradients are summed by the MPI library: the last bits of the loss may differ between MPIs and numbers of ranks")
	}
	if r.Resume != nil {
		r.tellResumed(r.Resume)
	}
	return nil
}

// startTrace opens this rank's trace, if one is wanted. Collective.
func (r *run) startTrace() error {
	if !r.Trace {
		return nil
	}
	base, err := comm.AgreeMax(r.Comm, time.Now().UnixNano())
	if err != nil {
		return err
	}
	r.spans, err = trace.CreateRecorder(filepath.Join(r.Dir, TraceDir), r.Comm.Rank(), base)
	if err = Agree(r.Comm, err); err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	r.closers = append(r.closers, r.spans.Close)
	return nil
}

// trainEpoch passes once over the training seeds.
func (r *run) trainEpoch(ctx context.Context, epoch int) error {
	if err := mem.CheckSizes(); err != nil {
		return err
	}
	first := r.beginEpoch(epoch)
	if r.Progress != nil {
		r.Progress.Epoch(epoch, r.steps()-first)
	}
	r.spans.Pass("train", epoch, r.minibatches(), r.steps()*r.minibatches())
	r.skipped = first * r.minibatches()
	items := r.steps() * r.minibatches()
	r.onSteps(true)
	err := r.pipe.RunOn(ctx, items-r.skipped, (r.o.Epochs-epoch)*items, // a look-ahead cache sees into the next epochs
		func(i int, m *parallel.Minibatch) { r.admit(r.skipped+i, m) },
		func(i int, m *parallel.Minibatch) error {
			return consume(r.data, m, func() error { return r.train(r.skipped+i, m) })
		})
	r.onSteps(false)
	r.skipped = 0
	switch {
	case err != nil:
		return err
	case r.diverged != nil:
		return r.diverge()
	case r.stopped:
		return r.stop()
	}
	took := time.Since(r.begun)
	r.seconds = append(r.seconds, took.Seconds())
	return r.endEpoch(took)
}

// admit gives item i its seeds: the minibatches of a step follow each other, and those of the next epochs those of this one.
func (r *run) admit(i int, m *parallel.Minibatch) {
	epoch, items := r.epoch, r.steps()*r.minibatches()
	epoch, i = epoch+i/items, i%items
	step, stream := i/r.minibatches(), r.Comm.Rank()*r.minibatches()+i%r.minibatches()
	m.Key = sample.Key{Seed: r.o.Seed, Epoch: epoch, Step: step, Stream: stream}
	m.GlobalSeeds, m.Train = r.streams.GlobalSeeds(step), true
	m.Seeds = r.streams.Piece(epoch, step, stream, mem.Grow(m.Seeds, r.streams.MaxPiece()))
}

// train is one minibatch of a step; the last one of the step updates the weights.
func (r *run) train(i int, m *parallel.Minibatch) error {
	step, last := i/r.minibatches(), i%r.minibatches() == r.minibatches()-1
	if i%r.minibatches() == 0 {
		r.stepRows, r.stepWaiting = tally{}, 0
	}
	r.waiting += r.pipe.Waited()
	r.stepWaiting += r.pipe.Waited()
	r.item = i
	r.watch.at(r.epoch, step, place(trace.Forward))
	if err := fault.At(fault.Forward, r.Comm.Rank(), r.epoch, step); err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	r.clock.Add(trace.Wait, r.pipe.Waited())
	r.spans.Span(trace.Wait.String(), i, time.Now().Add(-r.pipe.Waited()), r.pipe.Waited())
	if err := r.count(m); err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	if fault.NaN(fault.Loss, r.Comm.Rank(), r.epoch, step) && len(m.Batch.Own.Data) > 0 {
		r.Device.Upload(m.Batch.Own.Data[:1], []float32{float32(math.NaN())})
	}
	begin := time.Now()
	logits, err := r.model.Forward(&m.Batch)
	if err != nil {
		return err
	}
	if err := r.vote(); err != nil {
		return err
	}
	share, dlogits := r.model.Loss(&m.Batch, logits)
	r.inspect(m, share)
	r.mark(trace.Forward, begin)
	begin = time.Now()
	if !last {
		r.model.Backward(dlogits, nil)
		r.gradients.Hold()
		r.mark(trace.Backward, begin)
		return r.Device.Sync()
	}
	r.model.Backward(dlogits, r.gradients.Start)
	r.mark(trace.Backward, begin)
	return r.update(step, m)
}

// mark notes the time since begin under a phase of the minibatch that is trained.
func (r *run) mark(p trace.Phase, begin time.Time) {
	took := time.Since(begin)
	r.clock.Add(p, took)
	r.spans.Span(p.String(), r.item, begin, took)
	r.watch.alive()
}

// count adds the rows of a minibatch and checks that they add up.
func (r *run) count(m *parallel.Minibatch) error {
	c := m.Fetch.Counters
	if c.Frontier != c.Local+c.Cached+c.Peer+c.Remote-c.Early || c.Frontier != int64(len(m.Sampled.Frontier)) {
		return fmt.Errorf("rows do not add up: frontier %d, local %d, cached %d, peer %d, remote %d; this is a bug in halognn",
			len(m.Sampled.Frontier), c.Local, c.Cached, c.Peer, c.Remote)
	}
	t := tallyOf(m)
	r.rows.add(t)
	r.stepRows.add(t)
	// With a cache that changes, deciding and assembling are part of collectives; they are counted where they belong.
	r.clock.Add(trace.Plan, m.Deciding)
	r.clock.Add(trace.Gather, m.Gathering)
	r.clock.Add(trace.Exchange, -m.Deciding-m.Gathering)
	r.blocks += m.Digest
	return nil
}

// update sums the gradients over the ranks and makes the optimiser's step.
func (r *run) update(step int, m *parallel.Minibatch) error {
	begin := time.Now()
	r.watch.at(r.epoch, step, place(trace.Sync))
	if err := fault.At(fault.Allreduce, r.Comm.Rank(), r.epoch, step); err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	if err := r.gradients.Wait(); err != nil {
		return err
	}
	r.mark(trace.Sync, begin)
	stats := r.model.Params.Stats()
	if math.IsNaN(stats.Loss) || math.IsInf(stats.Loss, 0) {
		// Every rank sees the same sum, so all stop at this step, in order, and can say so together.
		r.diverged = fmt.Errorf("step %d: the loss is %v: %w", step, stats.Loss, ErrDiverged)
		return pipeline.ErrStop
	}
	begin = time.Now()
	lr := r.o.Schedule.LR((r.epoch-1)*r.steps()+step, r.o.Epochs*r.steps())
	r.optimizer.Update(lr)
	if err := r.Device.Sync(); err != nil {
		return err
	}
	r.mark(trace.Update, begin)
	r.record(step, lr, stats, m)
	r.auto.stepEnds()
	r.watch.at(r.epoch, step, place(trace.Wait))
	return r.obey(step)
}

// record notes the step's global loss, which is the same on every rank.
func (r *run) record(step int, lr float64, stats nn.Stats, m *parallel.Minibatch) {
	bits := math.Float32bits(float32(stats.Loss))
	var raw [4]byte
	binary.LittleEndian.PutUint32(raw[:], bits)
	r.losses.Write(raw[:])
	r.loss += stats.Loss * float64(m.GlobalSeeds)
	r.seeds += m.GlobalSeeds
	if r.log == nil {
		return
	}
	r.log.Write(stepRecord{
		Kind: "step", Epoch: r.epoch, Step: step, Loss: stats.Loss, LossBits: fmt.Sprintf("%08x", bits), LR: lr,
		Seeds: m.GlobalSeeds, Accuracy: r.share(stats.Counts), WaitSeconds: r.stepWaiting.Seconds(),
		Rows: r.rowsOf(r.stepRows),
	})
	if r.Progress != nil {
		r.Progress.Step(stats.Loss)
	}
}

// share is the accuracy of a step's predictions; for several labels a vertex, micro-F1.
func (r *run) share(c nn.Counts) float64 {
	if r.metric == MicroF1 {
		return c.MicroF1()
	}
	return c.Accuracy()
}

func (r *run) onSteps(begin bool) {
	if r.OnSteps != nil {
		r.OnSteps(begin)
	}
}

// patienceOut reports whether too many validations have passed since the best one.
func (r *run) patienceOut() bool { return r.o.Patience > 0 && r.best.since >= r.o.Patience }

// validate evaluates when it is due, and keeps the best weights.
func (r *run) validate(ctx context.Context, epoch int) error {
	due := epoch == r.o.Epochs || r.o.EvalEvery > 0 && epoch%r.o.EvalEvery == 0
	if !due {
		return nil
	}
	begin := time.Now()
	r.watch.at(epoch, r.steps(), inEvaluation)
	if err := fault.At(fault.Evaluate, r.Comm.Rank(), epoch, -1); err != nil {
		return err
	}
	r.spans.Pass("evaluate", epoch, 1, 0)
	e, err := r.evaluate(ctx, epoch)
	if err != nil {
		return err
	}
	if r.best.epoch == 0 || e.valid.metric > r.best.valid.metric || !r.validates() {
		r.best.epoch, r.best.valid, r.best.since = epoch, e.valid, 0
		r.Device.Download(r.best.weights, r.model.Params.Values)
	} else {
		r.best.since++
	}
	if r.log != nil {
		r.log.Write(e.record(epoch, time.Since(begin)))
		r.log.Flush()
	}
	if r.Progress != nil {
		r.Progress.Evaluated(epoch, fmt.Sprintf("loss %.4f  valid %s %.2f %%  %.2f s", r.loss/float64(max(1, r.seeds)), r.metric, 100*e.valid.metric, r.seconds[epoch-1]))
	}
	return nil
}

// validates reports whether there is anything to validate on; without it the last model counts as the best.
func (r *run) validates() bool {
	for _, s := range r.Shards.Splits {
		if s.Valid > 0 {
			return true
		}
	}
	return false
}

// digest returns the XXH64 of the trained weights' bits, tensor after tensor.
func (r *run) digest() string {
	h := xxhash.New()
	for _, t := range r.model.Params.Tensors(r.model.Params.Values) {
		for _, x := range t.Data {
			var raw [4]byte
			binary.LittleEndian.PutUint32(raw[:], math.Float32bits(x))
			h.Write(raw[:])
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// finish tests the best model on all vertices and writes model and summary.
func (r *run) finish(ctx context.Context) error {
	r.watch.at(r.o.Epochs, r.steps()+1, inTest)
	if err := fault.At(fault.Finish, r.Comm.Rank(), -1, -1); err != nil {
		return err
	}
	weights := r.digest() // of the last step, before the best ones take their place
	r.Device.Upload(r.model.Params.Values, r.best.weights)
	scores, err := r.evaluateFull(ctx)
	if err != nil {
		return fmt.Errorf("final test: %w", err)
	}
	r.sum.WeightsDigest = weights
	if err := r.summarise(scores); err != nil {
		return err
	}
	if r.log == nil {
		return Agree(r.Comm, nil)
	}
	if err := r.saver.wait(); err != nil {
		return err
	}
	err = nn.WriteSafetensors(filepath.Join(r.Dir, ModelFile), r.model.Params.Tensors(r.model.Params.Values), r.modelMetadata(r.best.epoch))
	return Agree(r.Comm, errors.Join(err, r.log.Close(), r.sum.write(r.Dir)))
}

// modelMetadata says in the model file how to build the model that reads it.
func (r *run) modelMetadata(epoch int) map[string]string {
	c := r.o.Model
	return map[string]string{
		"kind": c.Kind, "layers": fmt.Sprint(c.Layers), "in": fmt.Sprint(c.In), "hidden": fmt.Sprint(c.Hidden), "out": fmt.Sprint(c.Out),
		"norm": c.Norm, "task": c.Task, "fanouts": fmt.Sprint(r.o.Fanouts), "epoch": fmt.Sprint(epoch), "version": r.Version,
	}
}

// median returns the middle value, the mean of the middle two if there are two.
func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// gathered sums values over ranks, and also returns their largest. Collective.
func gathered(c comm.Comm, values ...float64) (sums, most []float64, err error) {
	all, err := comm.Allgather(c, values...)
	if err != nil {
		return nil, nil, err
	}
	sums, most = make([]float64, len(values)), slices.Clone(all[:len(values)])
	for i, v := range all {
		k := i % len(values)
		sums[k] += v
		most[k] = max(most[k], v)
	}
	return sums, most, nil
}
