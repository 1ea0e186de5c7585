// Package train runs a model over epochs. It is the training loop and its state. Other packages do
// the rest: job defines minibatches and seeds, residence places feature rows, parallel shares a
// step among ranks, rundir writes files, and watch notices a run that hangs.
//
//	session   job, model ──> rows at hand ──> strategy, pipe        state of a forward pass
//	run       a session, with optimiser, gradient sum, digests      further state of training
//
//	Open   session, optimiser, gradient sum; cache of the config, or the one that auto tries first
//	       checkpoint, if any ──> weights, moments, digests, sums            nothing is written yet
//
//	Run    ├─ epoch: seeds of every step ──> pipe ──> forward, loss, backward, gradient sum,
//	       │         update ──> a vote on saving and stopping, which came with the sum
//	       ├─ evaluate: validation seeds through the same pipe, or layer by layer
//	       └─ finish: test of the best weights on all vertices, layer by layer; results
//
//	Infer  a session and given weights: minibatches of all vertices, or layer by layer
//	       layer l of all own vertices, chunk by chunk; remote rows of layer l-1 by the same exchange
//	       [own, F] ──> [own, H] ──> ... ──> [own, C]                  two layers in memory at a time
//
//	WriteBlocks   job, initial weights ──> the minibatches of a run, for other programs; one process
//
//	rank 0 ──> rundir: metrics.jsonl, checkpoints, model.safetensors, summary.json
//	all ranks ──> watch: RUN/heartbeat
//
// Read the files in this order: session, train (Open, Run, the epoch), step, evaluate, infer and
// predict, checkpoint, saver and resume, diverge, epoch and summary, finish.
//
// Every rank runs the same code. Config, shards and numbers of steps must agree and are compared
// before the first step.
package train

import (
	"context"
	"time"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/config"
	"halognn/src/job"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/trace"
)

// Options say what is trained and how. All ranks must have the same.
type Options struct {
	job.Spec // Ranks and RanksPerNode equal those of Env
	config.Training
	Checkpoint config.Saves

	WithoutSums string // with TrySums: why owners cannot add rows; "" if they can
}

// Env is a rank's environment: communicator, shards, device and callbacks.
type Env struct {
	Comm         comm.Comm
	RanksPerNode int // overrides the launched number; 0: as launched
	Shards       *shard.Shards
	Device       compute.Device
	Host         compute.Host
	Compute      config.Compute // of which a session reads how a GPU is used
	// of this rank, a fraction where more ranks than CPUs share them; 0: unknown
	CPUs     float64
	Workers  int                    // pool goroutines
	OnWorker func(worker int) error // pins a pool goroutine; may be nil
	Dir      string                 // the run directory; only rank 0 writes
	// where inference keeps rows of hidden layers in files; "": in memory
	ScratchDir string
	// called before the first step of an epoch and after its last one; may be nil
	OnSteps   func(begin bool)
	Trace     string            // directory in Dir for spans, a file per rank; empty: none
	Stall     time.Duration     // without progress on any rank until OnStall; 0: never
	Polls     bool              // the main thread polls: its CPU time is not busy time
	OnStall   func(error)       // reports the error and ends the job; may be nil
	Explain   func(error) error // adds the cause to an error that ends the job; may be nil
	Progress  Progress          // rank 0 only; may be nil
	Transport string            // for the summary
	Version   string
	SetUp     *trace.SetUp      // set-up times of this rank so far; nil begins new ones
	Config    map[string]string // for checkpoints: the resolved config by key
	Resume    *Checkpoint       // where to resume; nil: start from the beginning
	Stop      <-chan struct{}   // closed to make the run save its state and end; may be nil
}

// Progress receives the progress of a run.
type Progress interface {
	Begin(line string)             // what is about to run on what, in a few lines
	Epoch(epoch, first, steps int) // an epoch (from 1) begins at step first of steps
	Step(loss float64)             // one more step is done
	// a validation is done; fields are the names and the values that the line has
	Evaluated(epoch int, line string, fields ...any)
	Note(ctx context.Context, line string) // something a user should know
	End(line string)                       // the run is over in order, and why
}

// evalSalt keeps the random draws of evaluation apart from those of training.
const evalSalt = 0x9E3779B97F4A7C15

// evalKey keys the draws of an evaluation minibatch. Its stream is the part, so results do not
// depend on the ranks.
func (o *Options) evalKey(epoch, part, chunk int) sample.Key {
	return sample.Key{Seed: o.Seed ^ evalSalt, Epoch: epoch, Step: chunk, Stream: part}
}
