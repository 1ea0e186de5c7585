// Package parallel has the modes in which ranks share one step. A Mode composes a Strategy from
// four parts: Draw, Rows, Between and Gradients. A Strategy prepares a minibatch as a list of
// stages, runs the model's layers on it, and sums the gradients; training itself (package train) is
// the same for all.
//
//	New(mode) ─> Strategy ─ Stages ─> Pipe ── Minibatch ──> Step ────> gradients, loss  training
//	                                                   └──> Forward ─> outputs          evaluation
//	NewLayer(l) ─> Strategy ─ Stages ─> Pipe ─────────────> Forward ─> rows of layer l  inference
//	NewAggregates ─> Strategy ─ Stages ─> Pipe ───────────> Forward ─> aggregates       inference
//
// Data parallelism, with the whole topology on every rank:
//
//	           local          collective  local    collective  local
//	seeds ──> sample | plan ──> ids ────> slice ──> rows ──> assemble ──> Minibatch.Batch ──> nn
//	          blocks  where      │         what       │       Own, Aggregate
//	                  rows lie   └─ all ──┴─ others ──┘       from the rows where they lie
//	                                ranks    ask for
//
//	backward, last layer first ── bucket ready ──> Gradients.Start ── slices all-to-all
//	                                           ── add in rank order ── all-gather ──> Wait
//
// If each rank holds only the in-edges of its own vertices, sampling takes two collectives for each
// hop that crosses ranks (remoteDrawer); everything after sampling is the same.
//
// The contents of a dynamic cache depend on the earlier minibatches. So decisions are made in
// order, and so are the reads and writes of its buffer: all rows of one minibatch are read, then
// those to be kept are written, then the next minibatch reads. This still overlaps with training
// and with the collectives of other minibatches.
//
//	local           ordered   local      collective       ordered
//	sample | plan ──> decide ──> request ──> ids ──> ... rows ──> assemble
//	                  the        what to fetch                       and keep what stays
//	                  policy     from whom
//
// Where ranks share minibatches, each rank draws, reads and computes for its own vertices, and rows
// travel between layers: among all ranks in composeSplit, among those of a node in composeHybrid.
// If each rank holds some columns of all feature rows, input hops and sums travel
// (composePushPull).
//
// A minibatch belongs to a stream, which determines its seeds and its random draws; which rank
// prepares it has no effect.
package parallel

import (
	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Minibatch is one item of the pipeline: from its seeds to the inputs of the model. Its arrays lie
// outside the Go heap and are reused by the next minibatch in the same slot.
type Minibatch struct {
	Key         sample.Key
	Seeds       []graph.VertexID // seeds of all ranks that share it; SetSeeds copies them
	GlobalSeeds int              // number of seeds of the step over all streams
	Train       bool             // backward follows, so dropout is applied
	tried       bool             // prepared by a Trial, in which no faults are injected

	Scored []graph.VertexID // seeds whose outputs Forward returns, in row order

	Sampled sample.Minibatch
	Fetch   exchange.Plan
	Batch   nn.Batch
	Digest  uint64 // digest of blocks and frontier: sample.Minibatch.Digest
	Edges   uint64 // digest of the sampled edges: sample.Minibatch.EdgesDigest

	// Decision is the decision of a dynamic cache; empty for a minibatch that is not trained.
	Decision cache.Decision

	asked trace.Sampling // traffic between ranks that draw, or send input hops, for each other
	moved trace.Shuffles // traffic of rows in a step, and of rows passed on

	// The state of Draw, Rows and landing.
	ofDraw
	ofRows
	ofLanding
}

// Bytes returns the memory of the arrays.
func (m *Minibatch) Bytes() int64 {
	return m.Sampled.Bytes() + m.Fetch.Bytes() + m.Decision.Bytes() + int64(cap(m.Seeds))*4 +
		m.ofDraw.bytes() + m.ofRows.bytes() + m.ofLanding.bytes()
}

// Free frees the arrays.
func (m *Minibatch) Free() {
	m.Sampled.Free()
	m.Fetch.Free()
	m.Decision.Free()
	mem.Free(m.Seeds)
	m.ofDraw.free()
	m.ofRows.free()
	m.ofLanding.free()
	*m = Minibatch{}
}

func matrixOf(array *[]float32, of compute.Elements, rows, cols int) compute.Matrix {
	*array = mem.Grow(*array, of.Floats(rows*cols))
	return of.MatrixIn(*array, rows, cols)
}

// point injects the fault that a test has set for a training minibatch.
func (m *Minibatch) point(name string, rank int) error {
	if !m.Train || m.tried {
		return nil
	}
	return fault.At(name, rank, m.Key.Epoch, m.Key.Step)
}

// SetSeeds copies seeds into the minibatch.
func (m *Minibatch) SetSeeds(seeds []graph.VertexID) {
	m.Seeds = mem.Grow(m.Seeds, len(seeds))
	copy(m.Seeds, seeds)
}
