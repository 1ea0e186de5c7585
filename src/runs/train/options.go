// Package train runs a model over epochs. It is the training loop and its state. Other packages do
// the rest. Package job defines minibatches and seeds, residence places feature rows, parallel
// shares a step among ranks, and session opens all of these. Package infer evaluates, checkpoint
// keeps the state, rundir writes it, and watch ends a run that hangs.
//
//	run    a session, with optimiser, gradient sum, digests
//
//	Open  session, optimiser, gradient sum; cache of the config, or the one that auto tries first
//	      checkpoint, if any ──> weights, moments, digests, sums            nothing is written yet
//
//	Run    ├─ epoch: seeds of every step ──> pipe ──> forward, loss, backward, gradient sum,
//	       │         update ──> votes on saving and stopping, which came with the sum
//	       ├─ evaluate: validation seeds through the same pipe, or layer by layer
//	       └─ finish: test of the best weights on all vertices, layer by layer; results
//
//	rank 0 ──> rundir: metrics.jsonl, checkpoints, model.safetensors, summary.json
//	all ranks ──> watch: RUN/heartbeat
//
// Read the files in this order: train (Open, Run, the epoch), step, evaluate, keeper and resume,
// diverge, epoch, finish.
//
// Every rank runs the same code. Config, shards and numbers of steps must agree and are compared
// before the first step.
package train

import (
	"time"

	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
	"halognn/src/runs/session"
	"halognn/src/step/job"
)

// Options say what is trained and how. They must be the same on all ranks.
type Options struct {
	job.Spec // Ranks and RanksPerNode equal those of Env
	config.Training
	Checkpoint config.Saves

	WithoutSums  string // with TrySums: why owners cannot send sums; "" if they can
	WithoutNodes string // with TryNodes: why ranks of a node cannot fetch as one; "" if they can
}

// Env is a rank's environment in training. If its SetUp is nil, Open makes one.
type Env struct {
	session.Env // Progress replaces the Notes of Env
	// number of CPUs of this rank, a fraction if ranks share CPUs; 0 if unknown
	CPUs float64
	Dir  string // the run directory; only rank 0 writes
	// called with true before the first step of an epoch, and with false after the last; may be nil
	OnSteps func(begin bool)
	Trace   string // directory in Dir for spans, with one file per rank; "" for none
	// time without progress on any rank after which OnStall is called; 0 means never
	Stall     time.Duration
	Polls     bool        // the main thread polls for messages, so its CPU time is not busy time
	OnStall   func(error) // reports the error and ends the job; may be nil
	Progress  Progress    // rank 0 only; may be nil
	Transport string      // name of the transport, for the summary
	Version   string
	Config    map[string]string // the resolved config by key, for checkpoints
	// checkpoint from which to resume; nil to start from the beginning
	Resume *checkpoint.Checkpoint
	Stop   <-chan struct{} // closed to make the run save its state and end; may be nil
}

// Progress receives the progress of a run.
type Progress interface {
	Begin(line string)             // what is about to run, and on what, in a few lines
	Epoch(epoch, first, steps int) // an epoch (from 1) begins at step first of steps
	Step(loss float64)             // one more step is done
	// a validation is done; fields are the names and values in the line
	Evaluated(epoch int, line string, fields ...any)
	session.Noter
	End(line string) // the run has ended in order, and why
}
