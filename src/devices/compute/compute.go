// Package compute defines the interface of a device: memory, and the kernels of GNN layers.
// Backends are compute/ref (plain Go, written to be read), compute/cpu (BLAS and C SIMD kernels on
// pinned threads) and compute/cuda (a GPU, which has memory of its own: see Accelerator).
// compute/computetest is a suite of tests that compares every backend with the reference.
//
//	preparing (many goroutines)         training (one goroutine)
//	rows where they lie                 h [S,F] ─ SegmentMean ─> agg [D,F] ─ MatMul ─┐ bias, norm,
//	  Host.SegmentRows ─> agg [D,F] ─>                                               + ReLU,
//	  Host.GatherRows  ─> own [D,F] ─>                           own [D,F] ─ MatMul ─┘ dropout
//
// The file of a kernel's family (linear.go, segment.go, ...) specifies the kernel for all devices:
// its method, its shapes, and the bytes and operations of a call. The kernel's Check function
// checks the shapes and returns the bytes and operations, which devices report to a Probe.
//
// Matrices are stored by rows without padding, and are of float32 or bfloat16 (elements.go). A
// matrix product may round its factors first (Precision). The numbers that a backend computes do
// not depend on its number of threads. Sums over rows are computed in chunks of ChunkRows rows,
// which are added in order. Sums over edges are computed in edge order. The tiles of a matrix
// product do not depend on the number of threads (docs/design/07-reproducible-numbers.md). A layer
// does not know which device it runs on. It knows only the Capabilities of the device.
package compute

import "time"

// ChunkRows is the number of rows in a partial sum. If a kernel sums over rows (gradients of
// weights and biases, norms, losses), it adds the partial sums of the chunks in order. On a GPU,
// cuBLAS sums weight gradients in its own order, and losses are summed by warps. These orders are
// fixed too.
const ChunkRows = 512

// ChunkWave is the number of partial sums of a weight gradient that a CPU device holds before it
// adds them. If it computes two gradients in one call, it holds half this number for each.
const ChunkWave = 32

// Kernels are the kernels that layers, losses and optimizers call. They complete in the order in
// which they are called. Unless a method says otherwise, the kernel may still be running when the
// method returns (see Device.Sync). Shapes that do not fit are a programming error and panic.
// Outputs must not overlap inputs unless a method allows it.
type Kernels interface {
	LinearKernels
	GroupKernels
	DenseKernels
	SegmentKernels
	AttentionKernels
	ActivationKernels
	NormKernels
	LossKernels
	OptimizerKernels
}

// Device stores a model and runs its kernels. One goroutine uses a Device at a time.
type Device interface {
	Kernels

	// Name describes backend, SIMD level, library of products and threads, for logs and summaries.
	Name() string

	// Alloc returns n elements of device memory, which are 0. Free frees them.
	Alloc(n int) ([]float32, error)
	Free([]float32)

	// Upload copies from the host to the device. Download copies from the device to the host. The
	// copy is complete when they return.
	Upload(dst, src []float32)
	Download(dst, src []float32)

	// Settle completes the gradients of parameters. DenseBackward, Dot and Part may postpone their
	// sums and copies. Until the next Settle, gradients of parameters, the sum of Dot and the
	// halves of Part must not be read, and what the calls have read must not be changed.
	Settle()

	// Sync waits for all kernels called so far.
	Sync() error
	Close() error

	// Capabilities returns the optional capabilities of the device.
	Capabilities() Capabilities
	// After Watch, the device reports every call of a kernel to p. If p is nil, it stops reporting.
	Watch(p *Probe)
}

// Counter is a Device that only counts the memory of arrays. Its arrays have addresses but no
// memory, so kernels write nothing to them.
type Counter interface {
	Device
	Counts()
}

// Capabilities are the abilities of a Device beyond computing on host memory. A capability that the
// device lacks is nil. A device that wraps another device returns the other's capabilities.
type Capabilities struct {
	Precision Precision // precision of the factors of its matrix products
	// Type of the rows that layers read, if their width is even (docs/design/32-stored-in-bf16.md).
	Stores      Elements
	Accelerator Accelerator // not nil if the device has its own memory
	// Not nil if a product of pairs takes less time on the device than two products.
	Pairs PairKernels
	// Whether a kernel that computes gradients can also apply the backward pass of an epilogue to
	// them (Completion.Of). If not, DenseBackward applies it.
	GoesBack bool
	// Not nil if the device can send slices to the devices of other ranks.
	Peer PeerDevice
	// Not nil if kernels are asynchronous and the device can time them.
	NewStopwatch func() Stopwatch
	Peaks        func() []Peak // measures the peak rates of the device's arithmetic units
	// Returns the total time for which the device's threads have waited for kernels in busy loops.
	Spun func() time.Duration
	// Returns the bytes of host memory that the device's kernels keep between calls.
	Scratch func() int64
	Tiles   func(tiles int, do func(tile int)) // see InTiles
	// Number of rows in a tile of a product. If a product has at most SameTiles rows, MatMul and
	// Dense compute it in such tiles, from the first row on. Each tile then has the same bits as a
	// product of this tile alone. 0 means that the device does not guarantee this.
	ProductTile int
}

// SameTiles is the largest number of rows to which Capabilities.ProductTile applies.
const SameTiles = 3584

// InTiles runs work of the host on the threads on which a device runs kernels. It calls the
// function `work` once for each tile, and returns when all calls have returned. The function must
// not call kernels of the device.
func InTiles(d Device, tiles int, work func(tile int)) {
	if run := CapabilitiesOf(d).Tiles; run != nil {
		run(tiles, work)
		return
	}
	for i := range tiles {
		work(i)
	}
}

// Peak is a measured peak rate of a device, for independent multiply-adds on registers.
type Peak struct {
	ISA       string    `json:"isa"`                  // the instructions, such as "AVX-512"
	Precision Precision `json:"precision"`            // precision of the factors
	One       float64   `json:"one_flops_per_second"` // rate on one thread
	All       float64   `json:"all_flops_per_second"` // rate on all threads of the device
}

// BestPeak returns the highest peak on all threads, in flop/s, for factors of the given precision.
// Peaks for float32 count too, because rounded factors can be multiplied as float32. If there are
// no peaks, it returns 0.
func BestPeak(peaks []Peak, precision Precision) (best float64) {
	for _, p := range peaks {
		if p.Precision == precision || p.Precision == PrecisionFloat32 {
			best = max(best, p.All)
		}
	}
	return best
}

// CapabilitiesOf returns the capabilities of d. If d is nil, it returns the zero value.
func CapabilitiesOf(d Device) Capabilities {
	if d == nil {
		return Capabilities{}
	}
	return d.Capabilities()
}
