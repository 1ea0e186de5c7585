// Package session holds what one rank needs to run minibatches through a model, in training or
// inference: the job, the model, feature rows in memory, and the pipe that prepares minibatches.
//
//	New ──> OpenModel  job, model                  needs no other rank
//	        OpenStore  feature rows in memory; OpenDevice: those that a device copies or maps
//	        OpenRows   cache, exchange, strategy, pipe; CloseRows closes these, for another cache
//	        Close      all of it, in reverse order of opening; after an error EndedBy
//
// Training (package train) adds optimiser, gradients and digests; inference (package infer) runs
// passes over given vertices or over all.
package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/devices/nvtx"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/pipeline"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/runs/watch"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
	"halognn/src/topology/sample"
)

// Session is one rank's state for running minibatches through a model, in training or inference.
type Session struct {
	Env
	// name of the metric that was asked for; "" or "auto" for the default of the task
	asked   string
	Forward bool // nothing is trained, so the parts need no training seeds and no labels
	Task    *task.Task
	Metric  *task.Metric

	First, Last int // the rank has the parts First to Last-1
	Job         *job.Job
	Topology    *sample.Topology
	Model       *nn.Model
	Learned     *nn.Learned // learned rows of this rank's vertices; empty if the model learns none

	Store    *residence.Store
	Cache    *residence.Cache
	Features *exchange.Fetcher
	Strategy *parallel.Strategy
	Pipe     *parallel.Pipe

	// AllEdgesAreLinks says that every edge of the graph is a link of the task. It is false until a
	// ranking has looked at all edges and has found only links.
	AllEdgesAreLinks bool

	// number of minibatches of the current pass that were trained before a restart
	Skipped int
	Log     *rundir.Log     // the log of a training, on rank 0
	Spans   *trace.Recorder // spans of stages; nil without --trace
	Watch   *watch.Watchdog // watches this rank; nil if nothing does

	// BeforeAbort is called if this rank alone has an error, just before the job is aborted. The
	// goroutine that has the error calls it. Several goroutines may have errors, and call it. It
	// must not wait for anything, not even a lock, because peers wait for the abort. The function
	// that it returns is called after the abort. Both functions may be nil.
	BeforeAbort func() (afterAbort func())

	doing string // prefix of errors, such as "epoch 3: "; written while no pipeline runs

	Closers    mem.Closers
	rowClosers mem.Closers // close what OpenRows opened, in reverse order
}

// Env is a rank's environment: communicator, shards, device and callbacks.
type Env struct {
	Comm         comm.Comm
	RanksPerNode int // number of ranks that are treated as a node; 0: nodes as launched
	Shards       *shard.Shards
	Device       compute.Device
	Host         compute.Host
	GPU          residence.GPU
	Gradients    parallel.Transport     // how GPUs send gradients
	Shuffles     parallel.Shuffling     // how GPUs send rows between layers
	Workers      int                    // number of goroutines that prepare minibatches
	OnWorker     func(worker int) error // pins such a goroutine to CPUs; may be nil
	// directory in which inference keeps hidden rows in files; "" keeps them in memory
	ScratchDir string
	Explain    func(error) error // adds the cause to an error that ends the job; may be nil
	Notes      Noter             // rank 0 only; may be nil
	SetUp      *trace.SetUp      // set-up times of this rank so far; nil if they begin here
}

// Noter shows notes to a user.
type Noter interface {
	Note(ctx context.Context, line string) // shows something that a user should know
}

// New returns a session in which nothing is open. The argument `metric` is the name of the metric
// that judges predictions; "" or "auto" stands for the default of the task.
func New(env Env, metric string) *Session {
	if env.SetUp == nil {
		env.SetUp = trace.NewSetUp(time.Now())
	}
	return &Session{Env: env, asked: metric}
}

// OpenModel makes the job of spec and its model. It needs no other rank.
func (s *Session) OpenModel(spec job.Spec) error {
	c := s.Comm
	if _, _, err := s.Shards.RankRange(c.Rank(), c.Size()); err != nil {
		return err
	}
	if err := fault.At(fault.Alloc, c.Rank(), -1, -1); err != nil {
		return err
	}
	spec.Ranks = c.Size()
	if !spec.ByNode() { // otherwise GroupByNode has set it
		spec.RanksPerNode = s.RanksPerNode
	}
	if compute.CapabilitiesOf(s.Device).Accelerator != nil {
		spec.Model.Fold = nn.FoldNever
	}
	var err error
	if s.Forward {
		s.Job, err = newForwardJob(s.Shards, spec)
	} else {
		s.Job, err = NewJob(s.Shards, spec)
	}
	if err != nil {
		return err
	}
	s.Closers = append(s.Closers, func() error { s.Job.Close(); return nil })
	s.Task = task.Find(s.Job.Model.Task)
	if s.Metric, err = s.Task.Choose(s.asked, s.Job.Model.Outputs()); err != nil {
		return err
	}
	if s.Job.Model.LearnsRows() && compute.CapabilitiesOf(s.Device).Accelerator != nil {
		return errors.New("rows are learned only on CPUs: set compute.device=cpu, or " +
			"model.learned=0 and partition again with --features degree")
	}
	s.Topology = s.Shards.Topology()
	s.First, s.Last = s.Job.Parts(c.Rank())
	s.SetUp.Done(trace.SetUpSeeds)
	if s.Model, err = nn.NewModel(s.Device, s.Job.Model, s.Job.Seed); err != nil {
		return err
	}
	s.Closers = append(s.Closers, func() error { s.Model.Close(); return nil })
	s.Learned = s.learnedRows()
	s.Closers = append(s.Closers, func() error { s.Learned.Free(); return nil })
	s.SetUp.Done(trace.SetUpModel)
	return nil
}

// NewJob makes the job of a model on these parts, or returns an error if they lack labels or
// features.
func NewJob(s *shard.Shards, spec job.Spec) (*job.Job, error) {
	if err := spec.Trainable(s); err != nil {
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

// newForwardJob makes the job of a trained model on parts that may have no labels. If the model's
// number of classes is not set, it is taken from the parts.
func newForwardJob(s *shard.Shards, spec job.Spec) (*job.Job, error) {
	if spec.Model.Out == 0 {
		spec.Model.Out, spec.Model.Task = s.Classes, s.Task
	}
	j, err := job.NewForward(s, spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Dir, err)
	}
	return j, j.Model.Check()
}

// OpenStore maps the feature rows that are read in memory. From here on, an error that only some
// ranks have ends the job. Collective.
func (s *Session) OpenStore() (err error) {
	s.Store, err = residence.Open(residence.Options{
		Comm: s.Comm, RanksPerNode: s.RanksPerNode, Job: s.Job, Host: s.Host, Workers: s.Workers,
		Learned: s.Learned, SetUp: s.SetUp, Alive: func() { s.Watch.Alive() }, Note: s.Tell,
		Device: s.Device, GPU: s.GPU,
	})
	s.Closers = append(s.Closers, s.Store.Close)
	s.SetUp.Done(trace.SetUpTables)
	return err
}

// OpenDevice copies or maps feature rows for a device that has its own memory. Collective.
func (s *Session) OpenDevice() error {
	err := s.Store.OpenDevice()
	s.SetUp.Done(trace.SetUpDevice)
	return err
}

// OpenRows opens the cache that the settings describe, then the exchange and the pipeline that use
// it. Training goes on from position at. The argument `gradients` is nil for a session that does
// not train. Collective.
func (s *Session) OpenRows(settings policy.Settings, at residence.Position,
	gradients *parallel.Gradients) (err error) {
	opened := func(f func() error) { s.rowClosers = append(s.rowClosers, f) }
	s.Cache, err = s.Store.OpenCache(settings, at)
	opened(s.Cache.Close)
	if err != nil {
		return err
	}
	if s.Features, err = s.Store.Fetcher(s.Cache, s.Forward); err != nil {
		return err
	}
	opened(s.Features.Close)
	o := s.StrategyOptions()
	edges, err := s.EdgeRows(&o)
	if err != nil {
		return err
	}
	opened(edges)
	learned, err := s.openLearned(&o)
	if err != nil {
		return err
	}
	opened(learned)
	o.Sample, o.Eval, o.MaxSeeds = s.Job.Sample, s.Job.Eval, s.Job.MaxSeeds()
	first, end := s.Store.Columns()
	o.Exchange, o.FirstCol, o.Cols, o.Resident = s.Features.Exchange, first, end-first, true
	o.Gradients, o.Shuffles, o.Depth = gradients, s.Shuffles, s.Job.Depth
	o.SeedsElsewhere = s.Job.SeedsElsewhere()
	o.On, o.HostDraws, o.Parts = s.Job.DrawOn, s.Store.HostDraws, s.Shards.Offsets
	o.Edges, o.Here = s.Shards.Edges, len(s.Job.Neighbours(s.Comm.Rank()))
	if !s.Forward {
		o.GroupSize = s.Job.Share(s.Comm.Rank()).Size
		o.Labels = s.Shards.Labels()
	}
	o.Near = s.Cache.Near
	o.Policy, o.Ahead = s.Cache.Dynamic()
	if s.Strategy, err = parallel.New(s.Job.Mode.Name, o); err != nil {
		return err
	}
	opened(s.Strategy.Close)
	if s.Pipe, err = s.NewPipe(s.Strategy, o.Ahead); err != nil {
		return err
	}
	opened(func() error { s.Pipe.Close(); return nil })
	s.SetUp.Done(trace.SetUpPipeline)
	return nil
}

// EdgeRows opens an exchange of edge features, if the model reads them, and sets it in o, the
// options of a strategy. The function `close` closes it. Both are collective.
func (s *Session) EdgeRows(o *parallel.Options) (close func() error, err error) {
	if s.Job.Model.EdgeIn == 0 {
		return func() error { return nil }, nil
	}
	f, err := s.Store.OpenEdgeRows()
	if err != nil {
		return nil, err
	}
	o.EdgeExchange, o.EdgeCols = f.Exchange, s.Job.Model.EdgeIn
	return f.Close, nil
}

// CloseRows closes pipeline, exchange and cache. Collective.
func (s *Session) CloseRows() error { return s.rowClosers.Close() }

// StrategyOptions returns the options that training and inference share.
func (s *Session) StrategyOptions() parallel.Options {
	return parallel.Options{
		Comm: s.Comm, Host: s.Host, Device: s.Device, Model: s.Model,
		Drawing: parallel.Drawing{Topology: s.Topology, Workers: s.Workers,
			Partitioned: s.Job.Partitioned, Rows: s.Job.Offsets()},
	}
}

// NewPipe returns a pipe that prepares minibatches for a strategy.
func (s *Session) NewPipe(strategy *parallel.Strategy, ahead int) (*parallel.Pipe, error) {
	return parallel.NewPipe(strategy, pipeline.Options{
		Depth: s.Job.Depth, Ahead: ahead, Workers: s.Workers, OnWorker: s.OnWorker,
		Begin: beginRange, Observe: s.observe,
		OnFail: func(err error) { _ = s.abort(fmt.Errorf("%s%w", s.doing, err)) },
	})
}

// During calls f and puts the prefix before its error. If a pipeline that f runs has an error, the
// job is aborted before f returns. The error with which it is aborted also gets the prefix.
func (s *Session) During(prefix string, f func() error) error {
	outer := s.doing
	s.doing += prefix + ": "
	defer func() { s.doing = outer }()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", prefix, err)
	}
	return nil
}

func beginRange(stage string) uint64 { return uint64(nvtx.Start(stage)) }

func (s *Session) observe(span pipeline.Span) {
	nvtx.Range(span.Mark).End()
	if span.Stage != pipeline.Wait {
		s.Watch.Prepared(span.Stage, s.Skipped+span.Item)
	}
	s.Spans.Span(span.Stage, s.Skipped+span.Item, span.Begin, span.Took)
}

// Tell prints a line to the user, on rank 0.
func (s *Session) Tell(line string) {
	if s.Notes != nil {
		s.Notes.Note(context.Background(), line)
	}
}

// Close releases everything, in the reverse order of opening. Collective once communicators have
// been made.
func (s *Session) Close() error { return errors.Join(s.CloseRows(), s.Closers.Close()) }

// EndedBy ends the session because of err and returns the error to report. If all ranks agreed on
// err, the session is closed as usual. Otherwise other ranks may be waiting for this one in a
// collective. Then the job is aborted, nothing is released, and the watch runs until the process
// ends.
func (s *Session) EndedBy(err error) error {
	if comm.IsAgreed(err) {
		return errors.Join(err, s.Close())
	}
	return s.abort(err)
}

// abort ends the job because of an error of this rank alone, before anything here waits for another
// rank. It returns the error with its explanation. At the end it flushes the logs, because they
// matter most after a failure.
func (s *Session) abort(err error) error {
	if s.Explain != nil {
		told := err
		fault := mem.Contain(func() error { told = s.Explain(err); return nil })
		if fault != nil { // a fault in explaining must not hide the original error
			told = fmt.Errorf("%w; its cause could not be found: %v", err, fault)
		}
		err = told
	}
	var after func()
	if s.BeforeAbort != nil { // a fault in BeforeAbort must not hide the original error
		_ = mem.Contain(func() error { after = s.BeforeAbort(); return nil })
	}
	s.Comm.Abort(err)
	if after != nil {
		_ = mem.Contain(func() error { after(); return nil })
	}
	if s.Log != nil {
		s.Log.Flush()
	}
	s.Spans.Flush()
	return err
}
