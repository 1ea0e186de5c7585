// Package parallel holds the strategies: how ranks share one step. A strategy prepares a minibatch as a list of pipeline
// stages and sums gradients; training itself (package train) is the same for all.
//
//	data parallel, replicated topology
//
//	           local            collective      local    collective  local
//	seeds ──> sample | plan ──> counts | ids ──> slice ──> rows ──> assemble ──> Minibatch.Batch ──> nn
//	          blocks  where          │            what        │      Own, Mean
//	                  rows lie       └─ all ranks ─┴─ others ─┘      straight from the rows where they lie
//	                                                  ask for
//
//	backward, last layer first ── bucket ready ──> Gradients.Start ── slices all-to-all ── add in rank order ── all-gather ──> Wait
//
// With a cache that changes, what is at hand depends on the steps before, so decisions are made in step order, on the lane, and so are
// the reads and writes of its table: all rows of step t are read, then those that stay are written, then step t+1 reads. That is still beside
// training, and beside the collectives of other steps.
//
//	sample | locate ──> decide, counts | ids ──> slice ──> rows, assemble, keep
//	                    └ policy.Step                      └ in step order, when the rows are there
//
// A minibatch belongs to a stream, which names its seeds and its random draws; which rank prepares it changes nothing.
package parallel

import (
	"time"

	"halognn/src/cache"
	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/sample"
)

// Minibatch is one item of the pipeline: from its seeds to what the model reads. Its arrays lie outside the Go heap and are
// reused by the next minibatch in the same slot.
type Minibatch struct {
	Key         sample.Key
	Seeds       []graph.VertexID // whoever admits the minibatch sets them, in an array of the minibatch's own
	GlobalSeeds int              // seeds of the step over all streams
	Train       bool             // the model drops activations and keeps what backward needs

	Sampled sample.Minibatch
	Fetch   exchange.Plan
	Batch   nn.Batch
	Digest  uint64 // of blocks and frontier: sample.Minibatch.Digest
	Edges   uint64 // of the sampled edges, whatever numbers them: sample.Minibatch.EdgesDigest

	// Of a cache that changes from step to step; empty for a minibatch that is not trained.
	Decision  cache.Decision
	Feeding   time.Duration // of telling the policy what is read, ahead of the collectives
	Scoring   time.Duration // of the policy's decision; part of the collective "counts", and so is
	Deciding  time.Duration // of finding out what to fetch from whom, once that is made
	Gathering time.Duration // of assembling, which then is part of the collective "rows"

	lent           bool // holds one of Data's buffer sets
	staging        compute.StagingBuffer
	inputs         compute.Inputs // as they were sent
	own, mean, all []float32
	labels         []int32
	targets        []uint8
}

// Bytes returns the memory of the arrays.
func (m *Minibatch) Bytes() int64 {
	numbers := cap(m.Seeds) + cap(m.own) + cap(m.mean) + cap(m.all) + cap(m.labels)
	return m.Sampled.Bytes() + m.Fetch.Bytes() + m.Decision.Bytes() + int64(numbers)*4 + int64(cap(m.targets))
}

// Free returns the arrays.
func (m *Minibatch) Free() {
	m.Sampled.Free()
	m.Fetch.Free()
	m.Decision.Free()
	mem.Free(m.Seeds)
	mem.Free(m.own)
	mem.Free(m.mean)
	mem.Free(m.all)
	mem.Free(m.labels)
	mem.Free(m.targets)
	*m = Minibatch{}
}

// matrixOf returns a rows x cols matrix over an array that grows with need.
func matrixOf(array *[]float32, rows, cols int) compute.Matrix {
	*array = mem.Grow(*array, rows*cols)
	return compute.Matrix{Rows: rows, Cols: cols, Data: *array}
}
