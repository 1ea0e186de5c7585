package train

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/record"
	"halognn/src/topology/sample"
)

// fits returns an error if the run cannot continue from the checkpoint.
func (r *run) fits(c *checkpoint.Checkpoint) error {
	s := c.State
	switch {
	case s.Parts != r.s.Shards.Identity():
		return fmt.Errorf("%s was made with other parts than %s: their identities are %s and %s; "+
			"give the parts with which the run began by --set data.parts=",
			c.Path, r.s.Shards.Dir, s.Parts, r.s.Shards.Identity())
	case s.Streams != r.streams.Streams() && r.s.Job.Mode.Sharing == sample.InNodes:
		return fmt.Errorf("%s was made by %d nodes with minibatches of their own; start %d "+
			"nodes, because minibatches depend on their number", c.Path, s.Streams, s.Streams)
	case s.Streams != r.streams.Streams():
		return fmt.Errorf("%s was made by %d ranks with sample.streams=rank; start %d ranks, "+
			"because minibatches depend on their number (only runs with sample.streams=part can "+
			"continue with another number of ranks)", c.Path, s.Ranks, s.Ranks)
	case s.Common != r.s.Job.Sample.Common():
		return fmt.Errorf("%s was made with sample.share=node on nodes of %d streams, but "+
			"these nodes have %d; start the same number of ranks on each node, with the same "+
			"run.ranks_per_node, as when the run began",
			c.Path, s.Common, r.s.Job.Sample.Common())
	case s.StepsPerEpoch != r.steps() && s.Ranks != r.s.Comm.Size():
		return fmt.Errorf("%s was made by %d ranks, whose minibatches have other seeds than those "+
			"of %d ranks; start %d ranks (with sample.batch_scope=global any number of ranks "+
			"can continue a run)", c.Path, s.Ranks, r.s.Comm.Size(), s.Ranks)
	case s.Near.Digest() != r.held:
		return fmt.Errorf("%s was made by ranks that held other rows, on their nodes or in their "+
			"caches, and the draws of sample.locality depend on the rows that ranks hold; use "+
			"the same number of ranks, run.ranks_per_node and cache.* as when the run began",
			c.Path)
	case s.StepsPerEpoch != r.steps():
		return fmt.Errorf("%s was made with %d steps an epoch, but the run now has %d; undo the "+
			"changes to config.yaml", c.Path, s.StepsPerEpoch, r.steps())
	}
	return nil
}

// restore sets the state of the run to that of the checkpoint. Rank 0 alone gets the sums over
// ranks, so that they are not counted twice. Every rank gets the means.
func (r *run) restore(c *checkpoint.Checkpoint) error {
	if err := r.fits(c); err != nil {
		return err
	}
	if err := c.Restore(r.s.Model.Params, r.optimizer, r.best.weights); err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	s := c.State
	if err := r.losses.UnmarshalBinary(s.LossDigest); err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	// every rank parses the digests, so that all ranks fail alike
	var blocks, edges uint64
	var err error
	// An empty digest means that a device has drawn some minibatches.
	if r.noBlocks = s.BlocksDigest == ""; !r.noBlocks {
		if blocks, err = strconv.ParseUint(s.BlocksDigest, 16, 64); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	if r.noEdges = s.EdgesDigest == ""; !r.noEdges { // older programs did not write it
		if edges, err = strconv.ParseUint(s.EdgesDigest, 16, 64); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	if r.s.Comm.Rank() == 0 {
		r.blocks, r.edges = blocks, edges
	}
	r.optimizer.SetSteps(s.OptimizerSteps)
	r.best.epoch, r.best.since = s.BestEpoch, s.Since
	r.best.valid.Metric = record.MetricOf(r.s.Metric, &r.valid, s.BestMetric.Value)
	r.best.valid.Accuracy = record.MetricOf(r.s.Task.Metrics[0], &r.valid,
		s.BestAccuracy.Value)
	r.seconds, r.sums = s.EpochSeconds, s.Sums.Copy()
	r.bound.first = s.FirstLoss
	r.restoreNearness(s.Near)
	r.epoch = s.Epoch - 1
	return nil
}

// beginEpoch sets the counters of an epoch to zero or, in the epoch of a restart, to their values
// in the checkpoint. It returns the first step.
func (r *run) beginEpoch(epoch int) (first int) {
	r.underWay = underWay{epoch: epoch, begun: time.Now()}
	r.processor.Begin()
	r.energy.beginEpoch()
	r.clock.Take()
	if r.env.Resume == nil || r.env.Resume.State.Epoch != epoch {
		return 0
	}
	s := r.env.Resume.State
	r.efficiency.part = s.Step > 0
	r.loss, r.seeds, r.firstStep = s.Loss, s.Seeds, s.First
	if r.s.Comm.Rank() == 0 {
		r.carried = r.named(s.Counters)
	}
	own := s.Earlier(r.s.Comm.Rank(), r.s.Comm.Size())
	r.earlier = own.Remote
	r.waiting, r.startup = checkpoint.Duration(own.Waiting), checkpoint.Duration(own.Startup)
	r.begun = r.begun.Add(-checkpoint.Duration(s.Seconds))
	for p := range trace.NumPhases {
		r.clock.Add(p, checkpoint.Duration(s.Phases[p.String()]))
	}
	return s.Step
}

// openLog opens metrics.jsonl for a new or resumed run.
func (r *run) openLog() (*rundir.Log, error) {
	c := r.env.Resume
	if c == nil {
		return rundir.Begin(r.env.Dir)
	}
	return rundir.Continue(r.env.Dir, c.Path,
		rundir.Position{Epoch: c.State.Epoch, Step: c.State.Step})
}

// threads matches the end of a device's name: the number of threads, which does not affect results.
var threads = regexp.MustCompile(`, \d+ threads?.*`)

// tellResumed reports where a run resumes, and which settings differ from the checkpoint's.
func (r *run) tellResumed(c *checkpoint.Checkpoint) {
	for _, d := range c.Damaged {
		r.note("a damaged checkpoint is set aside: %s", d)
	}
	s := c.State
	r.note("going on from %s: epoch %d, step %d", c.Path, s.Epoch, s.Step)
	if s.Version != r.env.Version {
		r.note("the checkpoint was made by halognn %s, this is %s: the last bits of the "+
			"loss may differ from those of an uninterrupted run", s.Version, r.env.Version)
	}
	if threads.ReplaceAllString(s.Device, "") != threads.ReplaceAllString(r.s.Device.Name(), "") {
		r.note("the checkpoint was made on %s, this is %s: the last bits of the loss may "+
			"differ from those of an uninterrupted run", s.Device, r.s.Device.Name())
	}
	if s.BlocksDigest == "" {
		r.note("a GPU has drawn minibatches of this run, so summary.json will have no " +
			"blocks_digest")
	}
	if s.Ranks != r.s.Comm.Size() {
		r.note("the checkpoint was made by %d ranks, these are %d: minibatches are the same, "+
			"but the last bits of the loss may differ", s.Ranks, r.s.Comm.Size())
	}
}
