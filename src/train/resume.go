package train

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"halognn/src/comm"
	"halognn/src/nn"
	"halognn/src/record"
	"halognn/src/rundir"
	"halognn/src/sample"
	"halognn/src/trace"
)

// Checkpoint is a checkpoint in memory, the same on every rank.
type Checkpoint struct {
	state    *checkpointState
	path     string
	damaged  []string          // newer checkpoints that are damaged, and why
	finished bool              // the run has a summary
	files    map[string][]byte // by name
}

// OpenCheckpoint returns the newest undamaged checkpoint of a run: rank 0 reads it, and all ranks
// get its bytes. nil: the run ended before its first checkpoint. All ranks return the same error.
// Collective.
func OpenCheckpoint(c comm.Comm, run string) (*Checkpoint, error) {
	var found *rundir.Checkpoint
	var err error
	if c.Rank() == 0 {
		found, err = rundir.NewestCheckpoint(run, SoundState)
	}
	if err := comm.Agree(c, err); err != nil {
		return nil, err
	}
	var wire bytes.Buffer
	if c.Rank() == 0 {
		if err := gob.NewEncoder(&wire).Encode(found); err != nil {
			return nil, err
		}
	}
	all, err := comm.AllgatherBytes(c, wire.Bytes())
	if err != nil {
		return nil, err
	}
	found = new(rundir.Checkpoint)
	if err := gob.NewDecoder(bytes.NewReader(all[0])).Decode(found); err != nil {
		return nil, err
	}
	if found.Path == "" {
		return nil, nil
	}
	state, err := readState(found.State)
	if err != nil { // all ranks have the same text
		return nil, comm.AgreedOn(c,
			fmt.Errorf("%s: %w", filepath.Join(found.Path, rundir.StateFile), err))
	}
	return &Checkpoint{
		state: state, path: found.Path, damaged: found.Damaged, finished: found.Finished,
		files: found.Files,
	}, nil
}

// Config is the resolved config of the run when the checkpoint was made, by key.
func (c *Checkpoint) Config() map[string]string { return c.state.Config }

// Begun returns the epochs that were begun.
func (c *Checkpoint) Begun() int {
	if c.state.Step == 0 {
		return c.state.Epoch - 1
	}
	return c.state.Epoch
}

// Finished reports whether training with the given epochs and patience is over and its results are
// written.
func (c *Checkpoint) Finished(epochs, patience int) bool {
	return c.finished && c.state.over(epochs, patience)
}

// over reports whether training is over: neither a step nor an evaluation is left.
func (s *checkpointState) over(epochs, patience int) bool {
	return s.Epoch > epochs || s.Step == 0 && patience > 0 && s.Since >= patience
}

// fits returns an error if the run cannot go on from the checkpoint.
func (r keeper) fits(c *Checkpoint) error {
	s := c.state
	switch {
	case s.Parts != r.s.Shards.Identity():
		return fmt.Errorf("%s was made with other parts than %s: their identities are %s and %s; "+
			"give the ones it began with by --set data.parts=",
			c.path, r.s.Shards.Dir, s.Parts, r.s.Shards.Identity())
	case s.Streams != r.of.streams.Streams() && r.s.o.Mode.Sharing == sample.InNodes:
		return fmt.Errorf("%s was made by %d nodes with minibatches of their own; start %d nodes, as "+
			"minibatches depend on their number", c.path, s.Streams, s.Streams)
	case s.Streams != r.of.streams.Streams():
		return fmt.Errorf("%s was made by %d ranks with sample.streams: rank; start %d ranks, as "+
			"minibatches depend on their number (only runs with sample.streams: part go on with "+
			"another)",
			c.path, s.Ranks, s.Ranks)
	case s.Common != r.s.job.Sample.Common():
		return fmt.Errorf("%s was made by nodes of which each drew by the same numbers for %d streams, "+
			"these do for %d; give it the ranks a node and run.ranks_per_node that it began with",
			c.path, s.Common, r.s.job.Sample.Common())
	case s.StepsPerEpoch != r.of.steps() && s.Ranks != r.s.Comm.Size():
		return fmt.Errorf("%s was made by %d ranks, with minibatches of other seeds than those of "+
			"%d; start %d ranks (with sample.batch_scope: global any number could go on)", c.path,
			s.Ranks, r.s.Comm.Size(), s.Ranks)
	case s.Near.digest() != r.of.held:
		return fmt.Errorf("%s was made by ranks that had other rows at hand than these, and "+
			"sample.locality draws by them; give it the ranks, run.ranks_per_node and cache.* that it "+
			"began with", c.path)
	case s.StepsPerEpoch != r.of.steps():
		return fmt.Errorf("%s has %d steps an epoch, the run has %d; was its config.yaml edited?",
			c.path, s.StepsPerEpoch, r.of.steps())
	}
	return nil
}

// restore puts the run where the checkpoint was made. Sums over ranks go to rank 0, means to every
// rank.
func (r keeper) restore(c *Checkpoint) error {
	if err := r.fits(c); err != nil {
		return err
	}
	if err := r.restoreArrays(c); err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	c.files = nil // frees the bytes of weights, moments and best weights
	s := c.state
	if err := r.of.losses.UnmarshalBinary(s.LossDigest); err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	// Parsed on every rank, so that all fail alike.
	blocks, err := strconv.ParseUint(s.BlocksDigest, 16, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	edges := uint64(0)
	if r.of.noEdges = s.EdgesDigest == ""; !r.of.noEdges { // older programs did not write it
		if edges, err = strconv.ParseUint(s.EdgesDigest, 16, 64); err != nil {
			return fmt.Errorf("%s: %w", c.path, err)
		}
	}
	if r.s.Comm.Rank() == 0 {
		r.of.blocks, r.of.edges = blocks, edges
	}
	r.of.optimizer.SetSteps(s.OptimizerSteps)
	r.of.best.epoch, r.of.best.since = s.BestEpoch, s.Since
	r.of.best.valid.metric = record.MetricOf(r.s.metric, &r.of.valid, s.BestMetric.Value)
	r.of.best.valid.accuracy = record.MetricOf(r.s.task.Metrics[0], &r.of.valid,
		s.BestAccuracy.Value)
	r.of.seconds, r.of.sums = s.EpochSeconds, s.Sums.sums()
	r.of.bound.first = s.FirstLoss
	r.restoreNearness(s.Near)
	r.of.epoch = s.Epoch - 1
	return nil
}

// restoreArrays reads weights, moments and the best weights.
func (r keeper) restoreArrays(c *Checkpoint) error {
	p := r.s.model.Params
	weights, _, err := nn.ParseSafetensors(c.files[rundir.ModelFile])
	if err != nil {
		return err
	}
	if err := p.SetTensors(p.Values, weights); err != nil {
		return err
	}
	moments, _, err := nn.ParseSafetensors(c.files[rundir.OptimizerFile])
	if err != nil {
		return err
	}
	for _, slot := range r.of.optimizer.Slots() {
		var own []nn.Tensor
		for _, t := range moments {
			if name, of := strings.CutPrefix(t.Name, slot.Name+"."); of {
				own = append(own, nn.Tensor{Name: name, Shape: t.Shape, Data: t.Data})
			}
		}
		if err := p.SetTensors(slot.Data, own); err != nil {
			return fmt.Errorf("%s of the optimiser: %w", slot.Name, err)
		}
	}
	if c.state.BestEpoch == 0 {
		return nil
	}
	best, _, err := nn.ParseSafetensors(c.files[rundir.BestFile])
	if err != nil {
		return err
	}
	return p.SetHost(r.of.best.weights, best)
}

// beginEpoch sets the counters of an epoch to zero or, in the epoch of a restart, to their values
// in the checkpoint. It returns the first step to take.
func (r *run) beginEpoch(epoch int) (first int) {
	r.underWay = underWay{epoch: epoch, begun: time.Now()}
	r.processor.Begin()
	r.clock.Take()
	if r.s.Resume == nil || r.s.Resume.state.Epoch != epoch {
		return 0
	}
	s := r.s.Resume.state
	r.loss, r.seeds, r.firstStep = s.Loss, s.Seeds, s.First
	if r.s.Comm.Rank() == 0 {
		r.carried = r.ledger().named(s.Counters)
	}
	own := s.earlier(r.s.Comm.Rank(), r.s.Comm.Size())
	r.earlier, r.waiting, r.startup = own.Remote, duration(own.Waiting), duration(own.Startup)
	r.begun = r.begun.Add(-duration(s.Seconds))
	phases := s.phases()
	for p := range trace.NumPhases {
		r.clock.Add(p, duration(phases[p.String()]))
	}
	return s.Step
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// openLog opens metrics.jsonl for a new or resumed run.
func (r *run) openLog() (*rundir.Log, error) {
	c := r.s.Resume
	if c == nil {
		return rundir.Begin(r.s.Dir)
	}
	return rundir.Continue(r.s.Dir, c.path,
		rundir.Position{Epoch: c.state.Epoch, Step: c.state.Step})
}

// threads matches the end of a device's name, which does not affect results.
var threads = regexp.MustCompile(`, \d+ threads?.*`)

// tellResumed reports where a run resumes, and which settings differ from the checkpoint's.
func (r keeper) tellResumed(c *Checkpoint) {
	for _, d := range c.damaged {
		r.note("a damaged checkpoint is set aside: %s", d)
	}
	s := c.state
	r.note("going on from %s: epoch %d, step %d", c.path, s.Epoch, s.Step)
	if s.Version != r.s.Version {
		r.note("it was made by halognn %s, this is %s: the last bits of the loss may differ from "+
			"those of an uninterrupted run", s.Version, r.s.Version)
	}
	if threads.ReplaceAllString(s.Device, "") != threads.ReplaceAllString(r.s.Device.Name(), "") {
		r.note("it was made on %s, this is %s: the last bits of the loss may differ from those "+
			"of an uninterrupted run", s.Device, r.s.Device.Name())
	}
	if s.Ranks != r.s.Comm.Size() {
		r.note("it was made by %d ranks, these are %d: minibatches are the same, the last bits "+
			"of the loss may differ", s.Ranks, r.s.Comm.Size())
	}
}
