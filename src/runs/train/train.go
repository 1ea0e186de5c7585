package train

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
	"halognn/src/runs/infer"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/runs/watch"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
	"halognn/src/topology/sample"
)

// run is the state of a training run.
type run struct {
	s         *session.Session
	env       Env
	training  config.Training
	saves     config.Saves
	streams   *sample.Streams
	mine      *sample.Reader // the minibatches that this rank trains
	optimizer *nn.Optimizer
	gradients *parallel.Gradients
	auto      *residence.Auto // set if the run chooses its cache; else nil

	sumsChoice *residence.SumsChoice // set if the run chooses whether owners send sums; else nil
	// set if the run chooses whether ranks of a node fetch as one; else nil
	nodesChoice *residence.NodesChoice

	digests
	nearness
	valid      task.Tally // counts of the labels of all validation vertices
	best       best
	seconds    []float64         // seconds of each epoch
	sums       checkpoint.Sums   // sums over the complete epochs
	summary    *record.Summary   // nil before the end of the run
	lock       *rundir.Lock      // on rank 0 the lock of Env.Dir; nil if there is none
	saver      *checkpoint.Saver // only on rank 0
	stopped    bool              // the ranks have voted to stop
	unsaved    error             // error of a save after a step, agreed on by all ranks
	candidates infer.Candidates
	runtime    int64 // resident bytes before data is opened: program, MPI, BLAS
	clock      trace.Clock
	started    time.Time // time of the first step

	processor trace.Processor
	// busy fraction of the CPUs in every epoch that this process has trained, mean over ranks
	busy       []float64
	efficiency efficiency
	energy     metered

	underWay
	step   stepUnderWay
	pinned int // number of times that pinned memory has grown in strategies that have been closed
	queuedSteps
	divergence
}

// digests cover the trained minibatches and their losses.
type digests struct {
	losses   *xxhash.Digest // digest of the loss bits of every step
	blocks   uint64         // sum of the digests of this rank's minibatches
	edges    uint64         // sum of the digests of the edges of this rank's minibatches
	noBlocks bool           // a device has drawn minibatches, without digests of their blocks
	noEdges  bool           // the run resumed from a checkpoint without a digest of edges
}

// underWay is the state of the epoch under way.
type underWay struct {
	epoch   int
	loss    float64 // sum over steps of the global loss, weighted by seeds
	seeds   int
	rows    trace.Counters // counts of this rank in the epoch, from its start or the last restart
	waiting time.Duration
	startup time.Duration  // wait for the first minibatch of the epoch, and of a restart in it
	carried trace.Counters // on rank 0 the counts of all ranks before the restart
	earlier int64          // remote rows of this rank before the restart
	begun   time.Time      // start of the epoch; after a restart, shifted back by the earlier time

	firstStep float64 // seconds until the second step began, or the first step's result was read
}

// stepUnderWay is the state of the step under way. A step may have several minibatches.
type stepUnderWay struct {
	item, number int
	began        moment // when the current phase began
	rows         trace.Counters
	waiting      time.Duration
	seeds        int     // number of seeds of all ranks
	lr           float64 // learning rate of the step's update
	queues       bool    // the step's result is read after the next step is queued
	voted        bool    // this rank has voted in the step
}

// divergence describes a run that ends because its loss is not finite or exceeds the bound.
type divergence struct {
	diverged error
	outgrown bool      // the loss is finite but exceeds the bound
	fault    *nn.Fault // where this rank's numbers stopped being finite
	bound    lossBound
}

// best is the model of the best validation so far. If validations have no metric, it is the model
// of the last one.
type best struct {
	epoch   int // number of the model's epoch, from 1; 0 before the first validation
	valid   infer.Quality
	weights []float32
	since   int // number of validations since the best one
}

// Training is a run that is ready for its first step.
type Training struct{ run *run }

// Open prepares a run, from a checkpoint if Env has one. It finds all errors in options, parts and
// devices that can be found before training, and writes nothing. If not all ranks have agreed on an
// error (see Agreed), other ranks may still be waiting, so the caller must end the job. Collective.
func Open(env Env, o Options) (*Training, error) {
	if env.Progress != nil {
		env.Notes = env.Progress
	}
	r := &run{s: session.New(env.Env, o.Metric), env: env, training: o.Training,
		saves: o.Checkpoint, digests: digests{losses: xxhash.New()}}
	r.s.BeforeAbort = r.takeFinished
	if err := r.open(o); err != nil {
		return nil, r.s.EndedBy(err)
	}
	return &Training{r}, nil
}

// open prepares everything that does not depend on the epoch. The order matters: rows get the
// device memory that the model and the gradients leave free. Collective.
func (r *run) open(o Options) error {
	var err error
	if r.runtime, err = residentBeforeData(); err != nil {
		return err
	}
	if err = r.s.GroupByNode(&o.Spec); err != nil {
		return err
	}
	// if one rank fails here, all ranks return its error, so that none waits for it
	if err = comm.Agree(r.s.Comm, r.openLocal(o.Spec)); err != nil {
		return err
	}
	if err = r.setObjective(); err != nil {
		return err
	}
	r.candidates, err = infer.Over(r.s).ReadCandidates()
	if err = comm.Agree(r.s.Comm, err); err != nil {
		return err
	}
	if err = r.lookAtValidation(); err != nil {
		return err
	}
	if err = r.s.OpenStore(); err != nil {
		return err
	}
	if r.gradients, err = parallel.NewGradients(r.s.Comm, r.s.Model.Params, r.s.Job.Model.Layers,
		parallel.GradientOptions{
			SumOptions: r.sumOptions(), Device: r.s.Device, Transport: r.s.Gradients,
		}); err != nil {
		return err
	}
	r.s.Closers = append(r.s.Closers, r.gradients.Close)
	r.s.SetUp.Done(trace.SetUpModel)
	if err = r.s.OpenDevice(); err != nil {
		return err
	}
	if r.s.Job.TrySums {
		if r.sumsChoice, err = r.s.Store.ChooseSums(r.beginning(), o.WithoutSums); err != nil {
			return err
		}
		r.s.SetUp.Done(trace.SetUpChoose)
	}
	if r.s.Job.TryNodes {
		if r.nodesChoice, err = r.s.Store.ChooseNodes(r.beginning(), o.WithoutNodes); err != nil {
			return err
		}
		r.s.SetUp.Done(trace.SetUpChoose)
	}
	settings := r.s.Job.Cache
	if settings.Policy == policy.Auto {
		var kept *residence.Choice
		if r.env.Resume != nil {
			kept = r.env.Resume.State.Cache
		}
		if r.auto, err = r.s.Store.Choose(r.beginning(), kept); err != nil {
			return err
		}
		settings = r.auto.Settings()
		r.s.SetUp.Done(trace.SetUpChoose)
	}
	if err = r.s.OpenRows(settings, r.beginning(), r.gradients); err != nil {
		return err
	}
	return r.ready()
}

// sumOptions returns the options that say how gradients are added over ranks.
func (r *run) sumOptions() comm.SumOptions {
	o := comm.SumOptions{Mode: r.s.Job.Sum, Add: r.s.Host.AddInto}
	if r.s.Job.HalfGradient {
		o.Halves = r.s.Host
	}
	return o
}

// openLocal prepares everything that needs no other rank.
func (r *run) openLocal(spec job.Spec) (err error) {
	if err = r.s.OpenModel(spec); err != nil {
		return err
	}
	if err = infer.Over(r.s).CheckScratch(); err != nil {
		return err
	}
	r.streams, r.mine = r.s.Job.Streams, r.s.Job.Reader(r.s.Comm.Rank())
	r.processor = trace.Processor{CPUs: r.env.CPUs, Ranks: r.s.Comm.Size(), Polls: r.env.Polls,
		Spun: r.s.Device.Capabilities().Spun}
	if r.env.Polls { // then every rank is a process of its own
		r.processor.Ranks = 1
	}
	if r.optimizer, err = nn.NewOptimizer(r.s.Device, r.s.Model.Params,
		r.s.Job.Optimizer); err != nil {
		return err
	}
	r.s.Closers = append(r.s.Closers, func() error { r.optimizer.Close(); return nil })
	r.s.SetUp.Done(trace.SetUpModel)
	return r.s.Job.Schedule.Check()
}

// beginning returns where training begins.
func (r *run) beginning() residence.Position {
	if r.env.Resume != nil {
		return residence.Position{Epoch: r.env.Resume.State.Epoch,
			Item: r.env.Resume.State.Step * r.minibatches()}
	}
	return residence.Position{Epoch: 1}
}

// ready sets the state before the first step or, with a checkpoint, before the next one.
func (r *run) ready() error {
	r.best.weights = mem.Make[float32](r.s.Model.Params.Len())
	r.s.Closers = append(r.s.Closers, func() error { mem.Free(r.best.weights); return nil })
	if err := r.openNearness(); err != nil {
		return err
	}
	if r.env.Resume == nil {
		return nil
	}
	// all ranks have the same bytes, so all have this error
	if err := r.restore(r.env.Resume); err != nil {
		return comm.AgreedOn(r.s.Comm, err)
	}
	return comm.Agree(r.s.Comm, r.env.Resume.RestoreLearned(r.s.Learned, r.s.First, r.s.Last))
}

// End releases a Training that will not run because of err, and returns the error to report.
// Collective if all ranks agreed on err.
func (t *Training) End(err error) error { return t.run.s.EndedBy(err) }

// Describe says what Run would run, in a few lines.
func (t *Training) Describe() string { return t.run.banner() }

// Close frees a training that does not run. Collective.
func (t *Training) Close() error { return t.run.s.Close() }

// Run trains and returns the summary. It is the same on every rank except EpochSeconds, which is
// the rank's own. Run writes into Env.Dir, which rank 0 must have made. The argument `lock` is rank
// 0's lock of that directory: checkpoints are written only while it is held. It is nil if no other
// job can use the directory. A Training runs once. Errors are as for Open. Collective.
func (t *Training) Run(ctx context.Context, lock *rundir.Lock) (*record.Summary, error) {
	r := t.run
	r.lock = lock
	if err := r.run(ctx); err != nil {
		return nil, r.s.EndedBy(err)
	}
	return r.summary, r.s.Close()
}

func (r *run) run(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	r.s.SetUp.End(trace.SetUpRun)
	for epoch := r.epoch + 1; epoch <= r.s.Job.Epochs && !r.patienceOut(); epoch++ {
		if err := r.s.During(fmt.Sprintf("epoch %d", epoch), func() error {
			if err := r.chooseCache(epoch); err != nil {
				return err
			}
			if err := r.trainEpoch(ctx, epoch); err != nil {
				return err
			}
			return r.auto.End()
		}); err != nil {
			return err
		}
		if err := r.s.During(fmt.Sprintf("evaluation after epoch %d", epoch), func() error {
			return r.predictionsDiverged(r.validate(ctx, epoch))
		}); err != nil {
			return err
		}
	}
	// Save before the final test, which may take long: if it fails, the training must not be lost.
	if err := r.save(r.epoch+1, 0, true); err != nil {
		return err
	}
	if err := r.finish(ctx); err != nil {
		return err
	}
	if r.env.Progress != nil {
		r.env.Progress.End(r.ending(time.Since(r.started)))
	}
	return nil
}

// start opens the log and shows notes to the user before the first step.
func (r *run) start(ctx context.Context) error {
	err := comm.OnFirst(r.s.Comm, func() (err error) {
		r.s.Log, err = r.openLog()
		return err
	})
	if err != nil {
		return err
	}
	r.s.Closers = append(r.s.Closers, r.closeLog)
	if err := r.startTrace(); err != nil {
		return err
	}
	if err := r.startWatchdog(); err != nil {
		return err
	}
	if err := r.openMeter(); err != nil {
		return err
	}
	r.openSaver()
	r.started = time.Now()
	if r.env.Progress == nil {
		return nil
	}
	r.env.Progress.Begin(r.banner())
	if why := r.s.Metric.Why(&r.valid); why != "" {
		r.env.Progress.Note(ctx, fmt.Sprintf("the validation split gives no %s (%s): the model of "+
			"the last epoch is kept as the best", r.s.Metric.Name, why))
	}
	if w := r.streams.Warning(); w != "" {
		r.env.Progress.Note(ctx, w)
	}
	if line := r.gradients.Note(); line != "" {
		r.env.Progress.Note(ctx, line)
	}
	if !r.gradients.Reproducible() {
		r.env.Progress.Note(ctx, "gradients are summed in an order that the MPI library or NCCL "+
			"chooses: the last bits of the loss may differ between libraries and numbers of ranks")
	}
	if line := r.s.Store.DeviceNote(); line != "" {
		r.s.Tell(line)
	}
	if on := r.s.Strategy.DrawsOn(); on.Where != "" && r.s.Job.DrawOn == parallel.DrawAuto {
		r.s.Tell(fmt.Sprintf("minibatches are drawn on the %s: %s", on.Where, on.Why))
	}
	if r.env.Resume != nil {
		r.tellResumed(r.env.Resume)
	}
	return nil
}

// startTrace opens this rank's trace, if one is wanted. Collective.
func (r *run) startTrace() error {
	if r.env.Trace == "" {
		return nil
	}
	base, err := comm.AgreeMax(r.s.Comm, time.Now().UnixNano())
	if err != nil {
		return err
	}
	r.s.Spans, err = trace.CreateRecorder(filepath.Join(r.env.Dir, r.env.Trace), r.s.Comm.Rank(),
		base)
	if err = comm.Agree(r.s.Comm, err); err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	r.s.Closers = append(r.s.Closers, r.s.Spans.Close)
	return nil
}

// chooseCache opens another cache for an epoch, if the run tries or has chosen another one.
// Collective.
func (r *run) chooseCache(epoch int) error {
	part := r.env.Resume != nil && r.env.Resume.State.Epoch == epoch && r.env.Resume.State.Step > 0
	if settings, another := r.auto.Begin(part); another {
		r.s.Watch.At(epoch, 0, watch.CacheSwitch)
		r.pinned += r.s.Strategy.PinnedGrowths()
		if err := r.s.CloseRows(); err != nil {
			return err
		}
		if err := r.s.OpenRows(settings, residence.Position{Epoch: epoch},
			r.gradients); err != nil {
			return err
		}
	}
	r.auto.Time()
	return nil
}

// trainEpoch passes once over the training seeds.
func (r *run) trainEpoch(ctx context.Context, epoch int) error {
	if err := mem.CheckSizes(); err != nil {
		return err
	}
	first := r.beginEpoch(epoch)
	r.noBlocks = r.noBlocks || r.s.Strategy.DrawsOn().Where == parallel.DrawDevice
	if r.env.Progress != nil {
		r.env.Progress.Epoch(epoch, first, r.steps())
	}
	r.s.Spans.Pass("train", epoch, r.minibatches(), r.steps()*r.minibatches())
	r.s.Skipped = first * r.minibatches()
	items := r.steps() * r.minibatches()
	// number of minibatches of later epochs, which a look-ahead cache can see
	foreseen := r.auto.Foreseen(r.s.Job.Epochs-epoch) * items
	r.onSteps(true)
	err := r.s.Pipe.RunOn(ctx, items-r.s.Skipped, foreseen,
		func(i int, m *parallel.Minibatch) { r.admit(r.s.Skipped+i, m) },
		func(i int, m *parallel.Minibatch) error { return r.train(r.s.Skipped+i, m) })
	r.onSteps(false)
	r.s.Skipped = 0
	switch {
	case err != nil:
		return err
	case r.diverged != nil:
		return r.diverge()
	case r.unsaved != nil:
		return r.unsaved
	case r.stopped:
		return r.stop()
	}
	took := time.Since(r.begun)
	r.seconds = append(r.seconds, took.Seconds())
	if err := r.checkWeights(); err != nil {
		return err
	}
	return r.endEpoch(took)
}

// steps returns the number of updates of an epoch, and minibatches the number of minibatches that
// this rank trains in it.
func (r *run) steps() int       { return r.s.Job.Steps() }
func (r *run) minibatches() int { return r.s.Job.Minibatches() }

func (r *run) onSteps(begin bool) {
	if r.env.OnSteps != nil {
		r.env.OnSteps(begin)
	}
}

func (r *run) patienceOut() bool {
	return r.training.Patience > 0 && r.best.since >= r.training.Patience
}

// validate evaluates if an evaluation is due after the epoch, and keeps the best weights.
func (r *run) validate(ctx context.Context, epoch int) error {
	due := epoch == r.s.Job.Epochs || r.training.EvalEvery > 0 && epoch%r.training.EvalEvery == 0
	if !due {
		return nil
	}
	begin := time.Now()
	r.s.Watch.At(epoch, r.steps(), watch.Evaluation)
	if err := fault.At(fault.Evaluate, r.s.Comm.Rank(), epoch, -1); err != nil {
		return err
	}
	r.s.Spans.Pass("evaluate", epoch, 1, 0)
	r.s.Learned.Hide()
	defer r.s.Learned.Show()
	e, err := r.evaluate(ctx, epoch)
	if err != nil {
		return err
	}
	if m := e.valid.Metric; r.best.epoch == 0 || !m.Known ||
		r.s.Metric.Better(m.Value, r.best.valid.Metric.Value) {
		r.best.epoch, r.best.valid, r.best.since = epoch, e.valid, 0
		r.s.Device.Download(r.best.weights, r.s.Model.Params.Values)
		r.s.Learned.KeepBest()
	} else {
		r.best.since++
	}
	if r.s.Log != nil {
		r.s.Log.Write(e.line(r.s.Task, epoch, time.Since(begin)))
		r.s.Log.Flush()
	}
	if r.env.Progress != nil {
		loss := r.loss / float64(max(1, r.seeds))
		r.env.Progress.Evaluated(epoch,
			fmt.Sprintf("loss %.4f  valid %s %s  %.2f s", loss, r.s.Metric.Name,
				record.MetricText(r.s.Metric.Name, e.valid.Metric), r.seconds[epoch-1]),
			"loss", loss, "metric_name", r.s.Metric.Name, "valid_metric", e.valid.Metric,
			"seconds", r.seconds[epoch-1])
	}
	return nil
}

func (r *run) tests() bool {
	return slices.ContainsFunc(r.s.Shards.Splits,
		func(s shard.SplitSizes) bool { return s.Test > 0 })
}
