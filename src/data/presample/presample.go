// Package presample samples minibatches before anything is trained, and counts: how often each
// vertex and edge is drawn, which are the weights of a partition, and what a partition makes of
// minibatches that all ranks share (split parallelism).
//
//	graph, training seeds                 part [N]
//	        │                                │
//	        ├─ Count ──> Counts ──┬─> Drawn ─┴> METIS      vertices, edges: times drawn
//	        │                     └─> Save, Load           NumPy arrays and a meta.json
//	        └─ Measure(part) ────────> partition.Sampled   cross edges, balance
//
// A minibatch here is one of all ranks together: its seeds are drawn from the whole graph. Epochs
// are sampled by the sampler of training, but they are not epochs of a run, so the counts are not
// fitted to the draws of that run. The package knows no ranks, only parts.
//
// Source: GSplit (Polisetty et al., MLSys 2025), section 4.
package presample

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Options say which minibatches are sampled.
type Options struct {
	Sample  sample.Spec
	Batch   int    // number of seeds of a minibatch, over all ranks
	Seed    uint64 // random seed of seed orders and draws, as train.seed
	Epochs  int
	Workers int // number of goroutines, each with a sampler; 0: one for each CPU
}

// DefaultEpochs is the number that GSplit found sufficient: 30 epochs instead of 10 change the
// imbalance by 2 % and cross edges by 2 to 7 % (section 6.3).
const DefaultEpochs = 10

// The numbers of the epochs that are sampled, to count and to measure parts. Runs number epochs
// from 1, and access.Count from 2^30, so these epochs share no draws with theirs.
const (
	firstCounted  = 1<<30 + 1<<20
	firstMeasured = 1<<30 + 1<<29
	mostEpochs    = 1 << 20
)

// Check returns all errors in the options.
func (o *Options) Check() error {
	var errs []error
	if err := o.Sample.Check(); err != nil {
		errs = append(errs, err)
	} else if _, err := o.Sample.FanoutsFor("sampling ahead"); err != nil {
		errs = append(errs, err)
	}
	if o.Batch < 1 || o.Batch > sample.MaxBatch {
		errs = append(errs,
			fmt.Errorf("batch is %d; it must be 1 to %d", o.Batch, sample.MaxBatch))
	}
	if o.Epochs < 1 || o.Epochs > mostEpochs {
		errs = append(errs, fmt.Errorf("%d epochs; sample 1 to %d", o.Epochs, mostEpochs))
	}
	if o.Workers < 0 {
		errs = append(errs,
			fmt.Errorf("workers is %d; it must be at least 1, or 0 for one a CPU", o.Workers))
	}
	return errors.Join(errs...)
}

// sampling holds what the goroutines share: the graph, and the seeds of every step.
type sampling struct {
	Options
	topology sample.Topology
	streams  *sample.Streams
}

// start prepares sampling g from the training seeds. extra is the number of bytes that the caller
// will allocate in addition. If memory is short, the error is ErrMemory.
func (o Options) start(g *graph.CSC, train []graph.VertexID, extra int64) (*sampling, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	if err := o.fits(g, len(train), extra); err != nil {
		return nil, err
	}
	streams, err := sample.NewStreams([][]graph.VertexID{train}, sample.StreamOptions{
		Batch: o.Batch, Scope: sample.ScopeGlobal, Seeds: sample.SeedsGlobal, Seed: o.Seed,
	})
	if err != nil {
		return nil, err
	}
	if n := int64(o.Epochs) * int64(streams.Steps()) * int64(o.Sample.Hops()+1); n > math.MaxInt32 {
		streams.Free()
		return nil, fmt.Errorf("%d epochs of %d minibatches could draw a vertex %d times; counts "+
			"have 32 bits: sample fewer epochs", o.Epochs, streams.Steps(), n)
	}
	o.Sample = o.Sample.InJob(streams.Steps(), 1, 1, 1)
	s := &sampling{Options: o, streams: streams,
		topology: sample.Topology{Graph: *g, Original: mem.Make[int32](g.NumVertices())}}
	for v := range s.topology.Original {
		s.topology.Original[v] = int32(v)
	}
	return s, nil
}

func (s *sampling) free() {
	s.streams.Free()
	mem.Free(s.topology.Original)
}

func (s *sampling) minibatches() int { return s.Epochs * s.streams.Steps() }

// run samples the epochs from first on: see sample.Sweep.
func (s *sampling) run(first int, open func() (take func(sample.Key, *sample.Minibatch) error,
	close func())) error {
	w := sample.Sweep{Reader: sample.Reader{Streams: s.streams, Count: 1, Seed: s.Seed},
		Spec: s.Sample, Epoch: first, Epochs: s.Epochs, Workers: s.Workers}
	return w.Run(&s.topology, open)
}

// ErrMemory is wrapped by the error about a graph for which there is not enough memory.
var ErrMemory = errors.New("there is not enough memory to sample it ahead")

// fits returns ErrMemory unless the memory that is needed besides the mapped graph is available:
// the caller's arrays, an id for each vertex, and for each goroutine a vertex map (4 bytes a
// vertex) and the largest possible minibatch.
func (o *Options) fits(g *graph.CSC, seeds int, extra int64) error {
	available, err := mem.Available()
	if err != nil {
		return err
	}
	n := int64(g.NumVertices())
	need := extra + 4*n + 8*int64(seeds) + int64(o.Workers)*(4*n+o.minibatchBytes(g, seeds))
	if need > available {
		return fmt.Errorf("%d vertices and %d edges: %w: about %.1f GB for %d goroutines, and "+
			"%.1f GB is available; use fewer CPUs (GOMAXPROCS=1), a smaller batch, or a larger "+
			"machine", n, g.NumEdges(), ErrMemory, float64(need)/1e9, o.Workers,
			float64(available)/1e9)
	}
	return nil
}

// minibatchBytes bounds the bytes of a minibatch of kind Neighbour. Kind Poisson draws the same
// number of neighbours on average.
func (o *Options) minibatchBytes(g *graph.CSC, seeds int) int64 {
	frontier, bytes := float64(min(o.Batch, seeds)), 0.0
	for _, fanout := range o.Sample.Fanouts {
		edges := float64(g.NumEdges())
		if fanout != sample.All {
			edges = min(edges, frontier*float64(fanout))
		}
		bytes += 8*frontier + 4*edges
		frontier = min(frontier+edges, float64(g.NumVertices()))
	}
	return int64(bytes + 8*frontier)
}
