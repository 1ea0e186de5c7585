package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"halognn/src/comm"
	"halognn/src/exchange"
	"halognn/src/fault"
	"halognn/src/job"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/pipeline"
	"halognn/src/policy"
	"halognn/src/residence"
	"halognn/src/rundir"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/task"
	"halognn/src/trace"
	"halognn/src/watch"
)

// session is one rank's state for running minibatches through a model, in training or inference.
type session struct {
	Env
	o       Options
	forward bool // nothing is trained: the parts need no training seeds and no labels
	task    *task.Task
	metric  *task.Metric

	first, last int // own parts [first, last)
	job         *job.Job
	topology    *sample.Topology
	model       *nn.Model

	store    *residence.Store
	cache    *residence.Cache
	features *exchange.Fetcher
	strategy *parallel.Strategy
	pipe     *parallel.Pipe

	skipped int             // minibatches of the pass under way that were trained before a restart
	log     *rundir.Log     // of a training, rank 0
	spans   *trace.Recorder // nil without --trace
	watch   *watch.Watchdog // nil for none

	doing string // prefix of errors, such as "epoch 3: "; written while no pipeline runs

	closers    []func() error
	rowClosers []func() error // in the order in which openRows opened
}

func newSession(env Env, o Options) *session {
	if env.SetUp == nil {
		env.SetUp = trace.NewSetUp(time.Now())
	}
	return &session{Env: env, o: o}
}

// openForward opens a session for forward passes, without a cache because every row is read once.
// Every rank infers its own vertices, however the model was trained. Collective.
func openForward(env Env, o Options) (*session, error) {
	o.Cache.Policy, o.Mode = policy.None, job.Mode{}
	o.Locality, o.Sums = job.Locality{}, o.Sums && !o.TrySums
	s := newSession(env, o)
	s.forward = true
	// An error of one rank is returned by all here, so that no rank waits for another that has
	// failed.
	err := comm.Agree(s.Comm, s.openModel())
	if err == nil {
		err = s.openStore()
	}
	if err == nil {
		err = s.openDevice()
	}
	if err == nil {
		err = s.openRows(s.o.Cache, residence.Position{Epoch: 1}, nil)
	}
	if err != nil {
		return nil, s.endedBy(err)
	}
	return s, nil
}

// openModel makes the job and the model, which needs no other rank.
func (s *session) openModel() error {
	c := s.Comm
	if _, _, err := s.Shards.RankRange(c.Rank(), c.Size()); err != nil {
		return err
	}
	if err := fault.At(fault.Alloc, c.Rank(), -1, -1); err != nil {
		return err
	}
	s.o.Ranks = c.Size()
	if !s.o.ByNode() { // else groupByNode has set it
		s.o.RanksPerNode = s.RanksPerNode
	}
	var err error
	if s.forward {
		s.job, err = newForwardJob(s.Shards, s.o.Spec)
	} else {
		s.job, err = newJob(s.Shards, s.o.Spec)
	}
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.job.Close(); return nil })
	s.task = task.Find(s.job.Model.Task)
	if s.metric, err = s.task.Choose(s.o.Metric, s.job.Model.Out); err != nil {
		return err
	}
	s.o.Spec, s.topology = s.job.Spec, s.Shards.Topology()
	s.first, s.last = s.job.Parts(c.Rank())
	own := s.Shards.Meta.Offsets[s.last] - s.Shards.Meta.Offsets[s.first]
	if err := checkScratchDir(s.ScratchDir, hiddenBytes(&s.o.Model, own)); err != nil {
		return err
	}
	s.SetUp.Done(trace.SetUpSeeds)
	if s.model, err = nn.NewModel(s.Device, s.o.Model, s.o.Seed); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.model.Close(); return nil })
	s.SetUp.Done(trace.SetUpModel)
	return nil
}

// newJob makes the job of a model on these parts, or returns an error if they lack labels or
// features.
func newJob(s *shard.Shards, spec job.Spec) (*job.Job, error) {
	if s.Task == task.None {
		return nil, fmt.Errorf("%s: the graph has no labels, so there is nothing to train for; "+
			"import it with labels", s.Dir)
	}
	if err := hasFeatures(s); err != nil {
		return nil, err
	}
	spec.Fit(s)
	if err := errors.Join(spec.Model.Check(), parallel.Check(&spec)); err != nil {
		return nil, err
	}
	j, err := job.New(s, spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Dir, err)
	}
	return j, nil
}

// newForwardJob makes the job of a trained model on parts that may have no labels. A model without
// classes gets those of the parts.
func newForwardJob(s *shard.Shards, spec job.Spec) (*job.Job, error) {
	if err := hasFeatures(s); err != nil {
		return nil, err
	}
	if spec.Model.Out == 0 {
		spec.Model.Out, spec.Model.Task = s.Classes, s.Task
	}
	j, err := job.NewForward(s, spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Dir, err)
	}
	return j, j.Model.Check()
}

func hasFeatures(s *shard.Shards) error {
	if s.Features == 0 {
		return fmt.Errorf("%s: the graph has no features, which models read; partition it again "+
			"with --features degree, or ones, which makes some of the graph", s.Dir)
	}
	return nil
}

// openStore maps the feature rows that are read from memory. Collective. From here on, errors that
// not all ranks return end the job.
func (s *session) openStore() (err error) {
	s.store, err = residence.Open(residence.Options{
		Comm: s.Comm, RanksPerNode: s.RanksPerNode, Job: s.job, Host: s.Host, Workers: s.Workers,
		SetUp: s.SetUp, Alive: func() { s.watch.Alive() }, Note: s.tell,
		Device: s.Device, GPU: s.Compute.GPU,
	})
	s.closers = append(s.closers, s.store.Close)
	s.SetUp.Done(trace.SetUpTables)
	return err
}

// openDevice copies or maps feature rows for a device that has its own memory. Collective.
func (s *session) openDevice() error {
	err := s.store.OpenDevice()
	s.SetUp.Done(trace.SetUpDevice)
	return err
}

// openRows opens the cache of the settings, which starts at position at, the exchange, and the
// pipeline that uses both. nil gradients: a session that does not train. Collective.
func (s *session) openRows(settings policy.Settings, at residence.Position,
	gradients *parallel.Gradients) (err error) {
	opened := func(f func() error) { s.rowClosers = append(s.rowClosers, f) }
	s.cache, err = s.store.OpenCache(settings, at)
	opened(s.cache.Close)
	if err != nil {
		return err
	}
	if s.features, err = s.store.Fetcher(s.cache); err != nil {
		return err
	}
	opened(s.features.Close)
	o := s.strategyOptions()
	o.Sample, o.Eval, o.MaxSeeds = s.o.Sample, s.o.Eval, s.job.MaxSeeds()
	first, end := s.store.Columns()
	o.Exchange, o.FirstCol, o.Cols, o.Resident = s.features.Exchange, first, end-first, true
	o.Gradients, o.Depth = gradients, s.o.Depth
	o.SeedsElsewhere = s.o.GlobalSeeds
	if !s.forward {
		o.GroupSize = s.job.Share(s.Comm.Rank()).Size
		o.Labels = s.Shards.Labels()
	}
	o.Near = s.cache.Near
	o.Policy, o.Ahead = s.cache.Dynamic()
	if s.strategy, err = parallel.New(s.o.Mode.Name, o); err != nil {
		return err
	}
	opened(s.strategy.Close)
	if s.pipe, err = s.newPipe(s.strategy, o.Ahead); err != nil {
		return err
	}
	opened(func() error { s.pipe.Close(); return nil })
	s.SetUp.Done(trace.SetUpPipeline)
	return nil
}

// closeRows closes pipeline, exchange and cache. Collective.
func (s *session) closeRows() error {
	var err error
	for _, f := range slices.Backward(s.rowClosers) {
		err = errors.Join(err, f())
	}
	s.rowClosers = nil
	return err
}

// strategyOptions returns the options that the strategies of training and inference share.
func (s *session) strategyOptions() parallel.Options {
	return parallel.Options{
		Comm: s.Comm, Host: s.Host, Device: s.Device, Model: s.model,
		Drawing: parallel.Drawing{Topology: s.topology, Workers: s.Workers, Kernel: s.o.Kernel,
			Partitioned: s.o.Partitioned, Rows: s.job.Offsets()},
	}
}

// newPipe returns a pipe that prepares minibatches for a strategy.
func (s *session) newPipe(strategy *parallel.Strategy, ahead int) (*parallel.Pipe, error) {
	return parallel.NewPipe(strategy, pipeline.Options{
		Depth: s.o.Depth, Ahead: ahead, Workers: s.Workers, OnWorker: s.OnWorker, Observe: s.observe,
		OnFail: func(err error) { _ = s.abort(fmt.Errorf("%s%w", s.doing, err)) },
	})
}

// during calls f and prefixes its error with what. An error of a pipeline that f runs aborts the
// job before f returns; doing gives it the same prefix.
func (s *session) during(what string, f func() error) error {
	outer := s.doing
	s.doing += what + ": "
	defer func() { s.doing = outer }()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (s *session) observe(span pipeline.Span) {
	s.watch.Prepared(span.Stage, s.skipped+span.Item)
	s.spans.Span(span.Stage, s.skipped+span.Item, span.Begin, span.Took)
}

// tell prints a line to the user, on rank 0.
func (s *session) tell(line string) {
	if s.Progress != nil {
		s.Progress.Note(context.Background(), line)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// close releases everything, last opened first. Collective once communicators have been made.
func (s *session) close() error {
	err := s.closeRows()
	for _, f := range slices.Backward(s.closers) {
		err = errors.Join(err, f())
	}
	s.closers = nil
	return err
}

// endedBy ends the session because of err and returns the error to report. If all ranks agreed on
// it, they close in order. Otherwise other ranks may be waiting for this one in a collective: the
// job is aborted, nothing is released, and the watch runs until the process ends.
func (s *session) endedBy(err error) error {
	if comm.IsAgreed(err) {
		return errors.Join(err, s.close())
	}
	return s.abort(err)
}

// abort ends the job for an error of this rank alone, before anything here waits for another rank,
// and returns the explained error. It then flushes the logs, which a failure makes most valuable.
func (s *session) abort(err error) error {
	if s.Explain != nil {
		told := err
		fault := mem.Contain(func() error { told = s.Explain(err); return nil })
		if fault != nil { // the original error matters more
			told = fmt.Errorf("%w; what led to it cannot be found out: %v", err, fault)
		}
		err = told
	}
	s.Comm.Abort(err)
	if s.log != nil {
		s.log.Flush()
	}
	s.spans.Flush()
	return err
}
