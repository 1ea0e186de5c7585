package train

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/fault"
	"halognn/src/job"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/pipeline"
	"halognn/src/rundir"
	"halognn/src/sample"
	"halognn/src/trace"
	"halognn/src/watch"
)

// session is what one rank has open during a run.
type session struct {
	Env
	o      Options
	metric string

	perRank     int // parts of each rank
	first, last int // own parts [first, last)
	nodes       int
	tables      [][]byte // [P] feature rows of the parts that can be read here
	topology    *sample.Topology

	model     *nn.Model
	optimizer *nn.Optimizer
	gradients *parallel.Gradients
	job       *job.Job
	streams   *sample.Streams
	mine      sample.Share // those that this rank trains

	ownRows    *DeviceRows  // nil for a device that reads host memory
	deviceRows []DeviceRows // of all ranks

	features *fetcher
	cached   exchange.Cache // a fixed one; nil for none
	dynamic  *dynamicCache  // one that changes; nil for none
	auto     *auto          // nil unless the run chooses its cache
	from     int            // epoch from which the present cache is used; 0: from the beginning
	expected float64        // remote rows that a step of all ranks is predicted to fetch; 0 without a cache
	strategy parallel.Strategy
	pipe     *parallel.Pipe
	skipped  int // minibatches of the pass under way that were trained before a restart
	bound    lossBound
	clock    trace.Clock
	log      *rundir.Log     // of a training, rank 0
	spans    *trace.Recorder // nil without --trace
	watch    *watch.Watchdog // nil for none

	doing string // what goes on, for errors: "epoch 3: "; written while no pipeline runs

	runtime    int64 // bytes resident before any data was opened: program, MPI, BLAS
	closers    []func() error
	rowClosers []func() error // of what openRows has opened
}

// open prepares everything that does not depend on the epoch. Collective.
func open(env Env, o Options) (s *session, err error) {
	meta := env.Shards.Meta
	o.Model.In, o.Model.Out, o.Model.Task = meta.Features, meta.Classes, meta.Task
	if env.SetUp == nil {
		env.SetUp = trace.NewSetUp(time.Now())
	}
	s = &session{Env: env, o: o, metric: metricName(meta.Task, meta.Classes)}
	if s.runtime, err = residentBeforeData(); err != nil {
		return nil, err
	}
	// What fails on one rank fails on all, here, so that no rank waits for another that has given up.
	if err = Agree(env.Comm, s.openLocal()); err != nil {
		return nil, s.endedBy(err)
	}
	if err = s.openShared(); err != nil {
		return nil, s.endedBy(err)
	}
	return s, nil
}

// openLocal does what needs no other rank.
func (s *session) openLocal() error {
	meta, c := s.Shards.Meta, s.Comm
	var err error
	if s.first, s.last, err = s.Shards.RankRange(c.Rank(), c.Size()); err != nil {
		return err
	}
	s.perRank = s.last - s.first
	if meta.Task == "none" {
		return fmt.Errorf("%s: the graph has no labels, so there is nothing to train for; import it with labels", s.Shards.Dir)
	}
	if meta.Features == 0 {
		return fmt.Errorf("%s: the graph has no features; a model needs at least one per vertex", s.Shards.Dir)
	}
	if err := s.o.Model.Check(); err != nil {
		return err
	}
	if err := fault.At(fault.Alloc, c.Rank(), -1, -1); err != nil {
		return err
	}
	s.topology = s.Shards.Topology()
	s.o.Ranks, s.o.RanksPerNode = c.Size(), s.RanksPerNode
	if s.job, err = job.New(s.Shards, s.o.Spec); err != nil {
		return fmt.Errorf("%s: %w", s.Shards.Dir, err)
	}
	s.closers = append(s.closers, func() error { s.job.Close(); return nil })
	s.o.Spec, s.streams, s.mine = s.job.Spec, s.job.Streams, s.job.Share(c.Rank())
	s.SetUp.Done(trace.SetUpSeeds)
	if s.model, err = nn.NewModel(s.Device, s.o.Model, s.o.Seed); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.model.Close(); return nil })
	if s.optimizer, err = nn.NewOptimizer(s.Device, s.model.Params, s.o.Optimizer); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.optimizer.Close(); return nil })
	s.SetUp.Done(trace.SetUpModel)
	return s.o.Schedule.Check()
}

// openShared makes communicators and what stands on them. Errors here end the job.
func (s *session) openShared() error {
	if err := s.openTables(); err != nil {
		return err
	}
	s.SetUp.Done(trace.SetUpTables)
	var err error
	if s.gradients, err = parallel.NewGradients(s.Comm, s.model.Params, s.o.Model.Layers,
		parallel.GradientOptions{SumOptions: comm.SumOptions{Mode: s.o.Sum, Add: s.Host.AddInto}, Device: s.Device, Transport: s.Gradients}); err != nil {
		if errors.Is(err, parallel.ErrTransport) { // all ranks say the same
			err = AgreedOn(s.Comm, err)
		}
		return err
	}
	s.closers = append(s.closers, s.gradients.Close)
	s.SetUp.Done(trace.SetUpModel)
	if err := Agree(s.Comm, s.openOffboard()); err != nil {
		return err
	}
	if s.deviceRows, err = gatherDeviceRows(s.Comm, s.ownRows); err != nil {
		return err
	}
	s.SetUp.Done(trace.SetUpDevice)
	if s.o.Cache.Policy == PolicyAuto {
		if err := s.openAuto(); err != nil {
			return err
		}
		s.SetUp.Done(trace.SetUpChoose)
	}
	s.closers = append(s.closers, s.closeRows)
	return s.openRows()
}

// openRows opens what brings rows here: the cache, the exchange, and the pipeline that they work in. Collective.
func (s *session) openRows() (err error) {
	others := s.closers
	s.closers = nil
	defer func() { s.rowClosers, s.closers = s.closers, others }()
	meta := s.Shards.Meta
	if s.cached, err = s.openCache(); err != nil {
		return err
	}
	var kept []byte
	o := s.strategyOptions()
	o.Sample, o.Eval, o.MaxSeeds = s.o.Sample, s.o.Eval, s.streams.MaxPiece()
	o.Cols, o.Resident, o.Gradients, o.Depth = meta.Features, true, s.gradients, s.o.Depth
	o.SeedsElsewhere = s.o.GlobalSeeds
	o.Labels, o.Targets, o.Classes = s.Shards.Labels(), s.Shards.Targets(), meta.Classes
	if c := s.dynamic; c != nil {
		kept, o.Policy, o.Ahead = c.rows, c.policy, c.window
	}
	if s.features, err = s.newFetcher(s.tables, meta.Features, meta.Type(), s.cached, kept); err != nil {
		return err
	}
	o.Exchange = s.features.Exchange
	s.closers = append(s.closers, s.features.close)
	if s.strategy, err = parallel.New(s.o.Mode, o); err != nil {
		return err
	}
	s.closers = append(s.closers, s.strategy.Close)
	if s.pipe, err = s.newPipe(s.strategy, o.Ahead); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.pipe.Close(); return nil })
	s.SetUp.Done(trace.SetUpPipeline)
	return nil
}

// strategyOptions are what the strategies of training and of inference have in common.
func (s *session) strategyOptions() parallel.Options {
	o := parallel.Options{
		Comm: s.Comm, Topology: s.topology, Host: s.Host, Device: s.Device, Model: s.model, Workers: s.Workers,
		Kernel: s.o.Kernel,
	}
	if s.o.Partitioned {
		for r := range s.Comm.Size() + 1 {
			o.Rows = append(o.Rows, s.Shards.Offsets[r*s.perRank])
		}
	}
	return o
}

// newPipe prepares minibatches for a strategy.
func (s *session) newPipe(strategy parallel.Strategy, ahead int) (*parallel.Pipe, error) {
	return parallel.NewPipe(strategy, pipeline.Options{
		Depth: s.o.Depth, Ahead: ahead, Workers: s.Workers, OnWorker: s.OnWorker, Observe: s.observe,
		OnFail: func(err error) { _ = s.abort(fmt.Errorf("%s%w", s.doing, err)) },
	})
}

// during calls f and says in its error what went on. A pipeline that fails meanwhile says so too:
// the job is over before f returns.
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

// fetcher is an exchange with the communicator it owns.
type fetcher struct {
	*exchange.Exchange
	comm comm.Comm
}

// newFetcher makes the exchange of rows that lie in tables and, as far as it has them, in a cache, which may be nil. Collective.
func (s *session) newFetcher(tables [][]byte, cols int, dtype compute.DType, cached exchange.Cache, kept []byte) (*fetcher, error) {
	c, err := s.Comm.Dup()
	if err != nil {
		return nil, err
	}
	x, err := exchange.New(c, exchange.Options{
		Offsets: s.Shards.Meta.Offsets, Tables: tables, Cols: cols, Type: dtype, Host: s.Host, Cache: cached, Buffer: kept,
	})
	return &fetcher{x, c}, err
}

func (f *fetcher) close() error { return f.comm.Free() }

// openTables maps the feature rows of this rank's parts and of the parts of the ranks on its node: same-node rows are read
// from memory and never travel.
func (s *session) openTables() error {
	node, err := comm.NodeOf(s.Comm, s.RanksPerNode)
	if err != nil {
		return err
	}
	here, err := comm.Allgather(node, s.Comm.Rank())
	if err != nil {
		return err
	}
	if err := s.checkNode(here); err != nil {
		return err
	}
	leaders, err := comm.Allgather(s.Comm, here[0]) // of the node of each rank
	if err != nil {
		return err
	}
	s.job.SetNodes(leaders)
	s.nodes = s.job.Nodes()
	if err := node.Free(); err != nil {
		return err
	}
	return Agree(s.Comm, s.mapParts(here))
}

// checkNode refuses pretended nodes that span real ones, whose ranks would map each other's parts over the network. Collective.
func (s *session) checkNode(group []int) error {
	if s.RanksPerNode == 0 {
		return nil
	}
	node, err := s.Comm.Node()
	if err != nil {
		return err
	}
	real, err := comm.Allgather(node, s.Comm.Rank())
	if err != nil {
		return err
	}
	if err := node.Free(); err != nil {
		return err
	}
	for _, r := range group {
		if !slices.Contains(real, r) {
			err = fmt.Errorf("run.ranks_per_node is %d, but ranks %d and %d are on different nodes; set it to a divisor of the ranks that are launched on a node, or to 0", s.RanksPerNode, group[0], group[len(group)-1])
			break
		}
	}
	return Agree(s.Comm, err)
}

func (s *session) mapParts(ranks []int) error {
	s.tables = make([][]byte, s.Shards.Meta.Parts)
	for _, r := range ranks {
		for p := r * s.perRank; p < (r+1)*s.perRank; p++ {
			part, err := s.Shards.OpenPart(p)
			if err != nil {
				return err
			}
			s.closers = append(s.closers, part.Close)
			s.tables[p] = part.Features
		}
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// close gives everything back, last opened first. Collective once communicators have been made.
func (s *session) close() error {
	var err error
	for i := len(s.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, s.closers[i]())
	}
	s.closers = nil
	return err
}

// endedBy ends the session, for which there is an error, and returns that. If all ranks return it,
// they close in order. Otherwise others may wait for this one in some collective: the job ends,
// nothing is given back, and the watch lasts until the end has come.
func (s *session) endedBy(err error) error {
	if agreed := (*Agreed)(nil); errors.As(err, &agreed) {
		return errors.Join(err, s.close())
	}
	return s.abort(err)
}

// abort ends the job for an error of this rank alone, before anything here waits for another rank,
// and returns what it says. What led to the failure is worth most when there is one, so logs are
// written out; but not first.
func (s *session) abort(err error) error {
	if s.Explain != nil {
		err = s.Explain(err)
	}
	s.Comm.Abort(err)
	if s.log != nil {
		s.log.Flush()
	}
	s.spans.Flush()
	return err
}

// steps returns the optimiser updates of an epoch, and minibatches the minibatches that this rank trains for each.
func (s *session) steps() int       { return s.streams.Steps() }
func (s *session) minibatches() int { return s.mine.Count }
