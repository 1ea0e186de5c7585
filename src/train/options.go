// Package train runs a model over epochs. It is a loop and its state: which minibatches, from which
// seeds, is job's; where rows are at hand, residence's; how the ranks share a step, parallel's; what
// lies on disk, rundir's; and who notices that nothing moves, watch's.
//
//	session   job, model ──> rows at hand ──> strategy, pipe        what a pass forward needs
//	run       a session, with optimiser, gradient sum, digests      what training needs besides
//
//	Open   session, optimiser, gradient sum; cache of the config, or the one that auto tries first
//	       checkpoint, if any ──> weights, moments, digests, sums            nothing is written yet
//
//	Run    ├─ epoch: seeds of every step ──> pipe ──> forward, loss, backward, gradient sum,
//	       │         update ──> a vote on saving and stopping, which came with the sum
//	       ├─ evaluate: validation seeds through the same pipe, or layer by layer
//	       └─ finish: test of the best weights on all vertices, layer by layer; what it came to
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
// A file is a part of the story: session, train (Open, Run, the epoch), step, evaluate, infer and
// predict, checkpoint, saver and resume, diverge, epoch and summary, finish.
//
// Every rank runs the same code; what must agree (config, shards, numbers of steps) is compared
// before the first step.
package train

import (
	"context"
	"time"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/job"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/residence"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/trace"
)

// Options say what is trained and how. All ranks must have the same.
type Options struct {
	job.Spec        // Ranks and RanksPerNode are those that Env has
	Mode     string // one of parallel.Modes; "" is parallel.ModeData

	EvalEvery  int    // epochs; 0: after the last one only
	EvalFull   bool   // evaluate with all neighbours
	Metric     string // Accuracy, ROCAUC, MicroF1; "" or "auto": the one of the task
	Loss       LossOptions
	Patience   int
	Sum        comm.SumMode
	Checkpoint CheckpointOptions
}

// LossOptions say what the loss asks for.
type LossOptions struct {
	nn.Objective
	Balanced bool // weights are training seeds / (classes * seeds of the class)
}

// Env is what a rank trains with.
type Env struct {
	Comm         comm.Comm
	RanksPerNode int // pretended; 0: as launched
	Shards       *shard.Shards
	Device       compute.Device
	Host         compute.Host
	GPURows      residence.GPURows
	Gradients    parallel.Transport     // of gradients in device memory; "" is the best that works
	GPUReads     string                 // residence.ReadsAuto, ReadsCopy or ReadsMapped; "" is ReadsAuto
	CPUs         float64                // of this rank, a fraction where more ranks than CPUs share them; 0: unknown
	Workers      int                    // pool goroutines
	OnWorker     func(worker int) error // pins a pool goroutine; may be nil
	Dir          string                 // the run directory; only rank 0 writes
	OnSteps      func(begin bool)       // called before the first step of an epoch and after its last one; may be nil
	Trace        string                 // name in Dir of the directory that spans are recorded into, a file per rank; empty: none are
	Stall        time.Duration          // without progress on any rank, after which OnStall is called; 0 for ever
	Polls        bool                   // the main thread waits for messages by testing for them, so that its time is no work
	OnStall      func(error)            // says the error and ends the job, whatever the other ranks do; may be nil
	Explain      func(error) error      // adds what is known of an error that ends the job; may be nil
	Progress     Progress               // rank 0 only; may be nil
	Transport    string                 // for the summary
	Version      string
	SetUp        *trace.SetUp      // of this rank, under way; nil begins one
	Config       map[string]string // for checkpoints: the resolved config by key
	Resume       *Checkpoint       // to go on from; nil: from the beginning
	Stop         <-chan struct{}   // closed when this rank wishes the run to save its state and end; may be nil
}

// Progress is told how far a run is.
type Progress interface {
	Begin(line string)                     // what is about to run on what, in a few lines
	Epoch(epoch, first, steps int)         // begins, from 1, at step first of steps
	Step(loss float64)                     // one more step is done
	Evaluated(epoch int, line string)      // a validation is done
	Note(ctx context.Context, line string) // something a user should know
	End(line string)                       // the run is over in order, and why
}

// evalSalt keeps the random draws of evaluation apart from those of training.
const evalSalt = 0x9E3779B97F4A7C15

// evalKey names the draws of an evaluation minibatch. Its stream is the part, so results do not depend on the ranks.
func (o *Options) evalKey(epoch, part, chunk int) sample.Key {
	return sample.Key{Seed: o.Seed ^ evalSalt, Epoch: epoch, Step: chunk, Stream: part}
}
