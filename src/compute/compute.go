// Package compute is the contract of a device: memory, and the dozen kernels that GNN layers are made of. Backends are
// compute/ref (plain Go, written to be read), compute/cpu (OpenBLAS and C SIMD kernels on pinned threads) and
// compute/cuda (a GPU, which has memory of its own: see Accelerator). compute/computetest is one suite that holds every backend to the reference.
//
//	preparing (many goroutines)             training (one goroutine)
//	rows where they lie                     h [S,F] ── SegmentMean ──> agg [D,F] ─ MatMul ─┐
//	  Host.SegmentMeanRows ──> agg [D,F] ──>                                               + ─> bias, norm, ReLU, dropout
//	  Host.GatherRows      ──> own [D,F] ──>                       own [D,F] ─── MatMul ───┘
//
// Matrices are row-major float32 without padding. The numbers a backend computes do not depend on its number of threads:
// sums over rows are made in chunks of ChunkRows rows added in chunk order, sums over edges in edge order, and the tiles of
// a matrix product do not depend on the thread count (docs/design/07-reproducible-numbers.md). No layer knows which device it runs on.
package compute

// ChunkRows is the number of rows that are summed before partial sums are added, in chunk order, wherever a kernel
// reduces over rows (weight gradients, bias gradients, norms, losses).
const ChunkRows = 512

// Matrix is Rows x Cols float32, row-major, without padding: element (i,j) is Data[i*Cols+j]. On a device with memory of
// its own, Data is an address range of that memory: the host may slice it but must not read or write its elements.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

// RowsAt returns rows [lo,hi) of m as a view.
func (m Matrix) RowsAt(lo, hi int) Matrix {
	return Matrix{Rows: hi - lo, Cols: m.Cols, Data: m.Data[lo*m.Cols : hi*m.Cols]}
}

// Row returns row i of m as a view.
func (m Matrix) Row(i int) []float32 { return m.Data[i*m.Cols : (i+1)*m.Cols] }

// Segments is a sampled bipartite graph in CSC over destinations, as graph.Block holds it:
// segment d is Indices[Indptr[d]:Indptr[d+1]], each a row of the matrix that is read.
type Segments struct {
	Indptr  []int64 // [D+1]
	Indices []int32 // [E]
}

// Len returns the number of segments, D.
func (s Segments) Len() int { return len(s.Indptr) - 1 }

// DType is the element type of stored feature rows.
type DType uint8

// The element types a shard may hold. Rows travel in the shard's type and are converted at use.
const (
	Float32 DType = iota
	Float16
)

// Size returns the bytes of one element.
func (t DType) Size() int {
	if t == Float16 {
		return 2
	}
	return 4
}

// String returns the NumPy name of the type.
func (t DType) String() string {
	if t == Float16 {
		return "float16"
	}
	return "float32"
}

// RowRef says where one feature row lies: which table, and which row of it.
type RowRef uint64

// RefRowBits leaves 2^16 tables of up to 2^48 rows each.
const RefRowBits = 48

// MakeRowRef packs a table number and a row of that table.
func MakeRowRef(table, row int) RowRef { return RowRef(table)<<RefRowBits | RowRef(row) }

// Table returns the number of the table that holds the row.
func (r RowRef) Table() int { return int(r >> RefRowBits) }

// Row returns the row within the table.
func (r RowRef) Row() int { return int(r & (1<<RefRowBits - 1)) }

// Rows is a list of feature rows, each wherever it lies: the rank's own shard, a peer's shard, a cache, a receive buffer.
// Nothing is copied or permuted to make one (docs/design/05-rows-stay-where-they-lie.md). Row i is row Of[i].Row() of Tables[Of[i].Table()].
type Rows struct {
	Cols   int
	Type   DType
	Tables [][]byte // each a whole number of rows of Cols elements
	Of     []RowRef
}

// Host is what preparing a minibatch needs. Its methods are single-threaded and safe for concurrent use.
type Host interface {
	// GatherRows sets dst[i] = row i of rows, converted to float32, for the first dst.Rows rows.
	GatherRows(dst Matrix, rows Rows)

	// SegmentMeanRows sets dst[d] to the mean of the rows rows[i], i in segment d, summed in edge order in float32 and divided
	// by the segment's length; an empty segment gives a zero row.
	SegmentMeanRows(dst Matrix, s Segments, rows Rows)

	// SliceRows copies rows ids[i] of table (rowBytes bytes each) to dst, in order: what a rank sends when asked for ids.
	SliceRows(dst, table []byte, rowBytes int, ids []int32)

	// AddInto sets sum[i] += x[i]: the rank-order sum of the reproducible allreduce.
	AddInto(sum, x []float32)
}

// DropoutKey names the stream of dropout bits of one layer of one minibatch. The bit of (vertex, column) depends on nothing
// else, so masks agree whatever rank, device or row order computes them. Make it with NewDropoutKey.
type DropoutKey struct{ K0, K1 uint32 }

// AdamOptions are the settings of one Adam or AdamW update. Step counts from 1.
type AdamOptions struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Decoupled                          bool // AdamW: p *= 1 - LR*WeightDecay first; otherwise decay is added to the gradient
	Step                               int
}

// SGDOptions are the settings of one SGD update. At step 1 the momentum buffer becomes the gradient.
type SGDOptions struct {
	LR, Momentum, WeightDecay float64
	Step                      int
}

// Device is where the model lives and trains. One goroutine uses a Device at a time; kernels complete in the order they were
// called and, unless a method says otherwise, may still be running when it returns (see Sync). Shapes that do not
// fit are a programming error and panic. Outputs do not overlap inputs unless a method says so.
type Device interface {
	// Name describes backend, SIMD level, BLAS and threads, for logs and summaries.
	Name() string

	// Alloc returns n zeroed elements of device memory; Free returns them.
	Alloc(n int) ([]float32, error)
	Free([]float32)

	// Upload copies host to device, Download device to host; both are complete when they return.
	Upload(dst, src []float32)
	Download(dst, src []float32)

	// Sync waits for all kernels called so far.
	Sync() error
	Close() error

	// MatMul sets y = x wᵀ, or y += x wᵀ if add:  y [R,O], x [R,F], w [O,F].
	MatMul(y, x, w Matrix, add bool)
	// MatMulInput sets dx = dy w, or dx += dy w if add:  dx [R,F], dy [R,O], w [O,F].
	MatMulInput(dx, dy, w Matrix, add bool)
	// MatMulWeights sets dw = dyᵀ x, rows summed in chunks:  dw [O,F], dy [R,O], x [R,F].
	MatMulWeights(dw, dy, x Matrix)

	// AddBias adds b [O] to every row of y [R,O].
	AddBias(y Matrix, b []float32)
	// ColumnSum sets db [O] to the sum of the rows of dy [R,O], in chunks.
	ColumnSum(db []float32, dy Matrix)

	// SegmentMean sets out[d] to the mean of h[i], i in segment d; zero for an empty segment.
	SegmentMean(out Matrix, s Segments, h Matrix)
	// SegmentSum sets out[d] to the sum over e in segment d of weights[e]*h[i], i = s.Indices[e], or adds it to out[d] if add. weights [E] is
	// host memory; nil for all 1. Over the transposed segments, with the weights in their order, it is its own gradient. The sum is complete
	// before it is added.
	SegmentSum(out Matrix, s Segments, weights []float32, h Matrix, add bool)
	// SegmentMeanBackward is the gradient of SegmentMean: dh[s] = sum over t in transposed segment s of dout[t] / degree(t), or += if add. The
	// division is a multiplication by the float32 reciprocal, and the sum is complete before it is added to dh.
	// t is the transpose of the forward segments, degree(t) = forward.Indptr[t+1]-forward.Indptr[t]. dh may have more
	// rows than are referred to; the rest become (or stay) zero.
	SegmentMeanBackward(dh Matrix, forward, transposed Segments, dout Matrix, add bool)

	// ReLU sets y = max(y, 0) in place (a NaN stays one, so that a diverged run shows) and then, if p > 0, drops every element
	// with probability p and scales the kept ones by 1/(1-p). vertices[i] is the original id of row i's vertex.
	ReLU(y Matrix, p float32, key DropoutKey, vertices []int32)
	// ReLUBackward sets dy = dy/(1-p) where y > 0, else 0, in place; y is the output of ReLU.
	ReLUBackward(dy, y Matrix, p float32)

	// LayerNorm sets y = (x-mean)/sqrt(var+eps)*gamma+beta by rows, with the biased variance; mean and rstd [R] are kept
	// for backward. y may be x only if backward is not wanted.
	LayerNorm(y, x Matrix, gamma, beta, mean, rstd []float32, eps float32)
	// LayerNormBackward sets dx, dgamma and dbeta; the latter two are summed over rows in chunks. dx may be dy.
	LayerNormBackward(dx Matrix, dgamma, dbeta []float32, dy, x Matrix, gamma, mean, rstd []float32)

	// SoftmaxCrossEntropy returns sum over rows of the loss times scale, and the number of rows whose largest logit (first
	// one on a tie) is the label; it sets dlogits to the gradient of that loss unless dlogits.Data is nil. Waits. labels[i] in [0,C).
	SoftmaxCrossEntropy(dlogits, logits Matrix, labels []int32, scale float32) (loss float64, correct int)
	// SigmoidBCE is the multi-label loss: the sum over all elements of the binary cross-entropy times scale. targets [R*C] are 0
	// or 1. Waits. counts are true positives, false positives and false negatives of logit > 0, for micro-F1.
	SigmoidBCE(dlogits, logits Matrix, targets []uint8, scale float32) (loss float64, counts [3]int)

	// Adam updates p and the moments m, v with gradient g, all of one length.
	Adam(p, g, m, v []float32, o AdamOptions)
	// SGD updates p and the momentum buffer with gradient g.
	SGD(p, g, buf []float32, o SGDOptions)
}
