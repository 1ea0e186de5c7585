// Package compute defines the interface of a device: memory, and the kernels of GNN layers.
// Backends are compute/ref (plain Go, written to be read), compute/cpu (BLAS and C SIMD kernels on
// pinned threads) and compute/cuda (a GPU, which has memory of its own: see Accelerator).
// compute/computetest is one suite that compares every backend with the reference.
//
//	preparing (many goroutines)         training (one goroutine)
//	rows where they lie                 h [S,F] ─ SegmentMean ─> agg [D,F] ─ MatMul ─┐ bias, norm,
//	  Host.SegmentRows ─> agg [D,F] ─>                                               + ReLU,
//	  Host.GatherRows  ─> own [D,F] ─>                           own [D,F] ─ MatMul ─┘ dropout
//
// A kernel is specified once, in the file of its family (linear.go, segment.go, ...): its method,
// its shapes, and the bytes and operations of a call. Its Check function tests the shapes and
// returns that cost, which devices report to a Probe.
//
// Matrices are row-major without padding, of float32 or bfloat16 (elements.go); matrix products may
// round them first (Precision). The numbers that a backend computes do not depend
// on its number of threads: sums over rows are made in chunks of ChunkRows rows added in chunk
// order, sums over edges in edge order, and the tiles of a matrix product do not depend on the
// thread count (docs/design/07-reproducible-numbers.md). No layer knows which device it runs on.
package compute

import "time"

// ChunkRows is the number of rows in a partial sum. Partial sums are added in chunk order wherever
// a kernel reduces over rows (weight gradients, bias gradients, norms, losses). On a GPU weight
// gradients are summed as cuBLAS does, and losses by warps: in a fixed order too.
const ChunkRows = 512

// ChunkWave is the number of partial sums of a weight gradient that a device on the CPU holds
// before it adds them. Of two gradients made together it holds half this number each.
const ChunkWave = 32

// Kernels are the kernels that layers, losses and optimizers call. They complete in the order in
// which they were called and, unless a method says otherwise, may still be running when it returns
// (see Device.Sync). Shapes that do not fit are a programming error and panic. Outputs do not
// overlap inputs unless a method says so.
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

	// Name describes backend, SIMD level, BLAS and threads, for logs and summaries.
	Name() string

	// Alloc returns n zeroed elements of device memory; Free frees them.
	Alloc(n int) ([]float32, error)
	Free([]float32)

	// Upload copies host to device, Download device to host; both are complete when they return.
	Upload(dst, src []float32)
	Download(dst, src []float32)

	// Settle completes the gradients of parameters. DenseBackward and Dot may postpone the sums
	// over rows that give W, Bias, W2 and sum. Before Settle do not read these results, nor change
	// what the calls have read.
	Settle()

	// Sync waits for all kernels called so far.
	Sync() error
	Close() error

	// Capabilities returns the optional capabilities of the device.
	Capabilities() Capabilities
	// Watch reports every later kernel call to p; nil ends the reports.
	Watch(p *Probe)
}

// Counter is a Device whose arrays are only counted: they have addresses and no memory, and nothing
// is written to them.
type Counter interface {
	Device
	Counts()
}

// Capabilities are the abilities of a Device beyond computing on host memory; an absent one is nil.
// A device that wraps another one passes on its capabilities.
type Capabilities struct {
	Precision Precision // precision of the factors of its matrix products
	// type of the rows that layers read, at even width (docs/design/32-stored-in-bf16.md)
	Stores      Elements
	Accelerator Accelerator // nil unless the device has its own memory
	// nil unless the device sends slices to the devices of other ranks
	Peer PeerDevice
	// nil unless kernels are asynchronous and the device can time them
	NewStopwatch func() Stopwatch
	Peaks        func() []Peak // measured peaks of its arithmetic units
	// total time its threads have spun, waiting for kernels
	Spun func() time.Duration
	// bytes of host memory that its kernels hold between calls
	Scratch func() int64
	Tiles   func(tiles int, do func(tile int)) // see InTiles
	// A product of up to SameTiles rows is made in tiles of this many rows, from the first one on,
	// each with the bits that it has alone; 0: the device promises nothing.
	ProductTile int
}

// SameTiles is the largest number of rows to which Capabilities.ProductTile applies.
const SameTiles = 3584

// InTiles calls do for every tile, on the threads on which a device runs kernels, and returns when
// all are done: work of the host between kernels. do must not call kernels of the device.
func InTiles(d Device, tiles int, do func(tile int)) {
	if run := CapabilitiesOf(d).Tiles; run != nil {
		run(tiles, do)
		return
	}
	for i := range tiles {
		do(i)
	}
}

// Peak is the measured peak of a device's arithmetic units, on independent multiply-adds in
// registers.
type Peak struct {
	ISA       string    `json:"isa"`                  // the instructions, such as "AVX-512"
	Precision Precision `json:"precision"`            // of the factors
	One       float64   `json:"one_flops_per_second"` // on one thread
	All       float64   `json:"all_flops_per_second"` // on all threads of the device
}

// BestPeak returns the highest peak on all threads, in flop/s, with factors of the given precision,
// or of float32, because rounded factors can be multiplied as float32 too; 0 if there is none.
func BestPeak(peaks []Peak, precision Precision) (best float64) {
	for _, p := range peaks {
		if p.Precision == precision || p.Precision == PrecisionFloat32 {
			best = max(best, p.All)
		}
	}
	return best
}

// CapabilitiesOf returns the capabilities of d, none if d is nil.
func CapabilitiesOf(d Device) Capabilities {
	if d == nil {
		return Capabilities{}
	}
	return d.Capabilities()
}
