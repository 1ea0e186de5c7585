// Package presample samples minibatches before anything is trained. It counts how often each vertex
// and each edge is drawn; these counts are the weights for a partition. It also measures how a
// partition divides minibatches that all ranks share (split parallelism).
//
//	graph, training seeds                 part [N]
//	        │                                │
//	        ├─ Count ──> Counts ──┬─> Drawn ─┴> METIS      vertices, edges: times drawn
//	        │                     └─> Save, Load           NumPy arrays and a meta.json
//	        └─ Measure(part) ────────> partition.Sampled   cross edges, balance
//
// In this package, a minibatch belongs to all ranks together: its seeds come from the whole graph.
// Minibatches are drawn by the same sampler as in training, but with other random numbers than
// those of any run. So a partition is not fitted to the draws of the run that it is for. The
// package knows nothing of ranks, only parts.
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

// Options choose the minibatches that are sampled.
type Options struct {
	Sample  sample.Spec
	Batch   int    // number of seeds of a minibatch of all ranks together
	Seed    uint64 // random seed for the order of seeds and for draws, like train.seed
	Epochs  int
	Workers int // number of goroutines, each with its own sampler; 0 means one for each CPU
}

// DefaultEpochs is the number of epochs that GSplit found sufficient: with 30 epochs instead of 10,
// imbalance changes by 2 %, and the number of cross edges by 2 to 7 % (section 6.3).
const DefaultEpochs = 10

// The numbers of the epochs that are sampled, for counts and for measuring parts. Runs number their
// epochs from 1 on, and access.Count from 2^30 on, so these epochs share no draws with theirs.
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
		errs = append(errs, fmt.Errorf("the number of epochs is %d; it must be 1 to %d",
			o.Epochs, mostEpochs))
	}
	if o.Workers < 0 {
		errs = append(errs,
			fmt.Errorf("workers is %d; it must be at least 1, or 0 for one a CPU", o.Workers))
	}
	return errors.Join(errs...)
}

// sampling holds what all goroutines share: the options, the graph, and the seeds of every step.
type sampling struct {
	Options
	topology sample.Topology
	streams  *sample.Streams
}

// start prepares to sample g from the training seeds. The caller will allocate `extra` bytes for
// its own arrays. If there is not enough memory, the error wraps ErrMemory.
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
		return nil, fmt.Errorf("%d epochs of %d minibatches could draw a vertex %d times, but "+
			"counts have 32 bits; lower --epochs", o.Epochs, streams.Steps(), n)
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

// run samples Epochs epochs, which have the numbers first, first+1 and so on. See sample.Sweep for
// the function `open`.
func (s *sampling) run(first int, open func() (take func(sample.Key, *sample.Minibatch) error,
	close func())) error {
	w := sample.Sweep{Reader: sample.Reader{Streams: s.streams, Count: 1, Seed: s.Seed},
		Spec: s.Sample, Epoch: first, Epochs: s.Epochs, Workers: s.Workers}
	return w.Run(&s.topology, open)
}

// ErrMemory is wrapped by the error that there is not enough memory to sample a graph.
var ErrMemory = errors.New("there is not enough memory to sample the graph ahead")

// fits returns an error that wraps ErrMemory if there is not enough memory besides the mapped
// graph. Sampling needs the caller's arrays and an id for each vertex. For each goroutine it needs
// a vertex map (4 bytes for each vertex) and the largest possible minibatch.
func (o *Options) fits(g *graph.CSC, seeds int, extra int64) error {
	available, err := mem.Available()
	if err != nil {
		return err
	}
	n := int64(g.NumVertices())
	need := extra + 4*n + 8*int64(seeds) + int64(o.Workers)*(4*n+o.minibatchBytes(g, seeds))
	if need > available {
		return fmt.Errorf("sampling %d vertices and %d edges: %w: it takes about %.1f GB with "+
			"%d sampling threads, but only %.1f GB is available; use fewer CPUs (GOMAXPROCS=1), "+
			"a lower --batch, or a larger machine",
			n, g.NumEdges(), ErrMemory, float64(need)/1e9, o.Workers,
			float64(available)/1e9)
	}
	return nil
}

// minibatchBytes returns an upper bound for the bytes of a minibatch of kind Neighbour. Kind
// Poisson draws the same number of neighbours on average.
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
