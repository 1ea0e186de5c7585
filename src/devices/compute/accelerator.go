package compute

import "errors"

// ErrMemory is wrapped by errors about too little memory of an Accelerator.
var ErrMemory = errors.New("the device has too little memory")

// Accelerator is a Device with its own memory, which the host must not access. Inputs are uploaded
// and gradients downloaded while kernels run:
//
//	preparing goroutine     device                     training goroutine
//	StagingBuffer.Send ───> minibatch i+1,             StagingBuffer.Open ─> kernels read them
//	(pinned memory)         beside training            ready(layer) ─ StartDownload ─> pinned memory
//
// A kernel that is given host arrays (segments, vertices, labels) finds them on the device: the
// open StagingBuffer must have sent them. Where none is open, or with Inputs.MadeInStep, it copies
// them at once, and waits for the copy.
type Accelerator interface {
	Device

	// Resident copies rows of tables, as stored, to device memory, so that no StagingBuffer sends
	// them: count[t] rows of tables[t]: its first rows or, if hot[t] is not nil, the first rows
	// listed there. A row has rowBytes bytes. hot may be nil.
	Resident(tables [][]byte, count []int, hot [][]int32, rowBytes int) error
	// MapRows lets the device read the other rows of those tables in place, in host memory, so that
	// a StagingBuffer sends only their addresses. Unless always is set, a StagingBuffer still sends
	// results that the host computes from the rows where these have fewer bytes. It pins pages of
	// at most limit bytes. A table whose pages cannot be pinned is copied to memory that can be. It
	// returns the bytes of the mapped tables, and the reason if some are not mapped. UnmapRows
	// unmaps them; call it before the tables are freed.
	MapRows(limit int, always bool) (bytes int, prevented error)
	UnmapRows() error
	// RowRates uploads the rows of minibatches twice, once copied by the host and once read by the
	// device, and returns the bytes per second of both.
	RowRates(minibatches []Rows) (copied, mapped float64, err error)

	// HoldRows copies rows of a cache to device memory: rows [first, ...) of a table of Rows that
	// is not among those of Resident. Kernels read them there, and StagingBuffers of resident rows
	// send only references to them. It returns the name by which the devices of other ranks of the
	// node reach them; nil for no rows. ReachRows lets this device read rows of the same table that
	// another device holds: it fetches them from there for each minibatch. If it cannot, the rows
	// are sent from the host like any others. DropRows ends both; other devices may still be
	// reading, so the memory is kept for the next HoldRows. No StagingBuffer may be in use
	// meanwhile.
	HoldRows(table, first int, rows []byte, rowBytes int) (name []byte, err error)
	ReachRows(name []byte) error
	DropRows() error

	// FreeBytes returns the bytes of device memory that are free, or kept for the next HoldRows.
	FreeBytes() int

	// NewStagingBuffer returns a buffer for the inputs of one minibatch at a time. resident says
	// whether their rows come from the tables passed to Resident.
	NewStagingBuffer(host Host, resident bool) StagingBuffer

	// NewDrawer returns a Drawer, which holds the topology in device memory. The rows of Resident
	// are there already.
	NewDrawer(o DrawOptions) (Drawer, error)

	// Copy sets dst to src, both in device memory; Add adds x to sum.
	Copy(dst, src []float32)
	Add(sum, x []float32)

	// AllocHost returns n elements of pinned host memory, FreeHost frees them.
	AllocHost(n int) ([]float32, error)
	FreeHost([]float32)
	// StartDownload copies src to pinned memory after the kernels called so far, while later ones
	// run. The event passes when the copy is done.
	NewEvent() (Event, error)
	StartDownload(dst, src []float32, e Event)
	// StartUpload copies src from pinned memory before any kernel that is called later. src must
	// not change until the next Sync.
	StartUpload(dst, src []float32)

	// QueueSoftmaxCrossEntropy and QueueSigmoidBCE are the losses of LossKernels for a host that
	// does not wait for them: the results stay in device memory.
	QueueSoftmaxCrossEntropy(dlogits, logits Matrix, labels []int32, scale float32, to *QueuedLoss)
	QueueSigmoidBCE(dlogits, logits Matrix, targets []uint8, scale float32, to *QueuedLoss)
	// QueueDownload copies src to pinned memory after the kernels called so far and before those
	// called later. The event passes when the copy is done.
	QueueDownload(dst, src []float32, e Event)
	// HasProbe reports whether a Probe measures kernels. It learns their times at a Sync.
	HasProbe() bool
}

// Event is a point in the queued work of a device, such as the end of a copy to the host. Wait
// returns when the device has passed it; after that the event may be recorded again. Passed reports
// at once whether the device has passed it, and may be called by any goroutine.
type Event interface {
	Wait() error
	Passed() bool
	Free() error
}

// Inputs are the inputs of a minibatch to a device: input rows, or results computed from them, and
// host arrays that kernels read.
type Inputs struct {
	Rows  Rows     // rows of the frontier
	Input Segments // segments of the input layer, read only for Reduce
	// weights of the edges of Input, for a weighted sum; nil if there are none
	EdgeWeights  []float32
	Destinations int // number of destinations of the input layer: the first rows

	// The wanted matrices: the destinations' rows (Own), a reduction of their segments (Reduce),
	// all rows (Sources).
	Own, Sources bool
	Reduce       Reduction
	// Exact: the matrices are not rounded as rows that layers read. They are float32
	Exact bool
	// Types are the rows of vertex types that are read besides. The host makes them.
	Types []TypeRows

	Segments []Segments
	Weights  [][]float32 // weights of edges
	Vertices [][]int32   // ids of vertices, and ends of groups
	Labels   []byte
	// HopEnds [layers+1] are where the arrays of each hop end in Segments, Weights and Vertices.
	// The first is where the arrays end that all minibatches share.
	HopEnds []HopEnd

	// Drawing, unless nil, has drawn the minibatch, and kernels read its arrays in place: Input and
	// EdgeWeights are the Drawing's, and Rows are only those of Drawn.Missing.
	Drawing Drawing
	Drawn   *Drawn

	// MadeInStep: kernels also get arrays that are made in the step. The device copies each one and
	// waits for the copy.
	MadeInStep bool
}

// Frontier returns the number of rows of the frontier.
func (in *Inputs) Frontier() int {
	if in.Drawn != nil {
		return in.Drawn.Frontier()
	}
	return len(in.Rows.Of)
}

// TypeRows are rows of one width, or the means of segments of them.
type TypeRows struct {
	Rows
	Means    Segments
	Averaged bool
}

// Len returns how many rows or means there are.
func (r *TypeRows) Len() int {
	if r.Averaged {
		return r.Means.Len()
	}
	return len(r.Of)
}

// Make sets x to the rows, or to their means.
func (r *TypeRows) Make(host Host, x Matrix) {
	switch {
	case r.Cols == 0:
	case r.Averaged:
		host.SegmentRows(x, ReduceMean, r.Means, nil, r.Rows)
	default:
		host.GatherRows(x, r.Rows)
	}
}

// RowsCall returns the cost of computing the requested rows from stored ones: each stored row, its
// reference, and the result. The cost is 0 if the host computed them.
func (in *Inputs) RowsCall(onDevice bool) Call {
	const reference = 8
	c := Call{Kernel: "input rows"}
	if !onDevice {
		return c
	}
	read, written := in.Rows.RowBytes()+reference, floatBytes*in.Rows.Cols
	if in.Own {
		c.Bytes += in.Destinations * (read + written)
	}
	if in.Reduce != NoReduction {
		c.Bytes += len(in.Input.Indices)*read + in.Destinations*written + in.Input.bytes() +
			floatBytes*len(in.EdgeWeights)
	}
	if in.Sources {
		c.Bytes += in.Frontier() * (read + written)
	}
	return c
}

// CheckInputs panics unless the input layer's segments lie within Indices and fit the reduction.
func CheckInputs(in *Inputs) {
	checkSegments("SegmentRows", in.Input)
	checkHow(in.Reduce, in.Input, in.EdgeWeights)
}

// CheckCopy checks the arguments of Copy.
func CheckCopy(dst, src []float32) Call {
	CheckLengths("Copy", len(dst), len(src))
	return Call{Kernel: "Copy", Bytes: 2 * floatBytes * len(src)}
}

// CheckAdd checks the arguments of Add.
func CheckAdd(sum, x []float32) Call {
	CheckLengths("Add", len(sum), len(x))
	return Call{Kernel: "Add", Bytes: 3 * floatBytes * len(x)}
}

// StagingBuffer holds the inputs of a minibatch in pinned memory and on a device. A preparing
// goroutine calls Send; the training goroutine calls Open, Close and Free.
type StagingBuffer interface {
	// Send writes the inputs to pinned memory and starts their copy. The arrays of in must not
	// change until Close. It fails if memory is short.
	Send(in *Inputs) error
	// Reserve makes room for inputs like these and somewhat larger ones, so that Send need not.
	// Pinned memory gets room for inputs larger by g, up to the number of bytes most, if the host
	// has that much memory. Send makes the same room if it finds too little.
	Reserve(in *Inputs, g Growth, most int) error
	// Open lets the kernels called from now on read what was sent, and returns the matrices that
	// were wanted, in device memory. They stay valid until another StagingBuffer of the device
	// opens.
	Open() (own, reduced, sources Matrix, err error)
	// Types returns the rows of Inputs.Types. They are valid as long as the matrices that Open
	// returned.
	Types() []Matrix
	// PinnedBytes returns the host memory of the buffer.
	PinnedBytes() int64
	// Close ends the use of the inputs that Open made available: Send may be called again.
	Close() error
	Free() error
}
