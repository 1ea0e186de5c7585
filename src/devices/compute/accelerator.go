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
// Some arguments of kernels are host arrays (segments, vertices, labels). A kernel reads the copies
// of these arrays that the open StagingBuffer has sent to the device. If no StagingBuffer is open,
// or if Inputs.MadeInStep is set, the kernel copies the arrays itself and waits for the copy.
type Accelerator interface {
	Device

	// Resident copies rows of tables, as they are stored, to device memory, so that StagingBuffers
	// need not send them. It copies count[t] rows of tables[t]. These are the table's first rows
	// or, if hot[t] is not nil, the first rows that hot[t] lists. A row has rowBytes bytes. The
	// list `hot` may be nil.
	Resident(tables [][]byte, count []int, hot [][]int32, rowBytes int) error
	// MapRows is for the rows that Resident has not copied. It lets the device read these rows of
	// the tables in place, in host memory. A StagingBuffer then sends only the addresses of the
	// rows. But if always is false, and results that the host computes from the rows have fewer
	// bytes, a StagingBuffer sends these results. MapRows pins at most limit bytes. If the pages of
	// a table cannot be pinned, it copies the table to memory that can be pinned. It returns the
	// bytes of the mapped tables. If some tables are not mapped, it also returns the reason.
	// UnmapRows unmaps the tables; call it before they are freed.
	MapRows(limit int, always bool) (bytes int, prevented error)
	UnmapRows() error
	// RowRates uploads the rows of minibatches twice: first the host copies them, then the device
	// reads them in host memory. It returns the rates of both in bytes per second.
	RowRates(minibatches []Rows) (copied, mapped float64, err error)

	// HoldRows copies rows of a cache to device memory. They are the rows from number `first` on of
	// a table that was not passed to Resident. Kernels read them in device memory, and
	// StagingBuffers for resident rows send only references to them. HoldRows returns the name by
	// which the devices of other ranks of the node reach the rows, or nil if there are no rows.
	// ReachRows lets this device fetch rows of the same table from another device that holds them,
	// for each minibatch. If ReachRows fails, these rows are sent from the host like other rows.
	// DropRows ends the use of all rows that are held or reached. Other devices may still be
	// reading them, so the memory is kept for the next HoldRows. No StagingBuffer may be in use
	// during these calls.
	HoldRows(table, first int, rows []byte, rowBytes int) (name []byte, err error)
	ReachRows(name []byte) error
	DropRows() error

	// FreeBytes returns the bytes of device memory that are free, or kept for the next HoldRows.
	FreeBytes() int

	// NewStagingBuffer returns a buffer for the inputs of one minibatch at a time. The argument
	// `resident` says whether the rows of these inputs come from the tables passed to Resident.
	NewStagingBuffer(host Host, resident bool) StagingBuffer

	// NewDrawer returns a Drawer, which holds the topology in device memory. If the Drawer will use
	// resident rows, Resident must be called before NewDrawer.
	NewDrawer(o DrawOptions) (Drawer, error)

	// Copy copies src to dst, and Add adds x to sum. All arrays are in device memory.
	Copy(dst, src []float32)
	Add(sum, x []float32)

	// AllocHost returns n elements of pinned host memory. FreeHost frees them.
	AllocHost(n int) ([]float32, error)
	FreeHost([]float32)
	// StartDownload copies src to pinned memory after the kernels called so far, while kernels
	// called later run. The event e passes when the copy is done.
	NewEvent() (Event, error)
	StartDownload(dst, src []float32, e Event)
	// StartUpload copies src from pinned memory to dst. Kernels that are called later run after the
	// copy. The caller must not change src until the next Sync.
	StartUpload(dst, src []float32)

	// QueueSoftmaxCrossEntropy and QueueSigmoidBCE compute the same losses as LossKernels. The
	// results stay in device memory, so the host does not wait for them.
	QueueSoftmaxCrossEntropy(dlogits, logits Matrix, labels []int32, scale float32, to *QueuedLoss)
	QueueSigmoidBCE(dlogits, logits Matrix, targets []uint8, scale float32, to *QueuedLoss)
	// QueueDownload copies src to pinned memory after the kernels called so far and before those
	// called later. The event e passes when the copy is done.
	QueueDownload(dst, src []float32, e Event)
	// HasProbe reports whether a Probe measures kernels. If so, the caller must call Sync from time
	// to time, so that the Probe gets the times of kernels.
	HasProbe() bool
}

// Event is a point in the queued work of a device, such as the end of a copy to the host. Wait
// returns when the device has passed this point. After Wait has returned, the event may be recorded
// again. Passed does not wait; it reports whether the device has passed the point. Any goroutine
// may call Passed.
type Event interface {
	Wait() error
	Passed() bool
	Free() error
}

// Inputs are the inputs of a minibatch to a device. They are input rows, or results computed from
// these rows, and host arrays that kernels read.
type Inputs struct {
	Rows  Rows     // rows of the frontier
	Input Segments // segments of the input layer; used only if Reduce is set
	// Weights of the edges of Input, for a weighted sum; nil if the sum is not weighted.
	EdgeWeights  []float32
	Destinations int // number of destinations of the input layer; the frontier begins with them

	// Which matrices are wanted: own rows of the destinations (Own), a reduction of each
	// destination's segment (Reduce), all rows of the frontier (Sources).
	Own, Sources bool
	Reduce       Reduction
	// If Joined is set, own rows and reductions are not two matrices. They are pairs in one matrix,
	// which is returned as the reduced one (see PairKernels).
	Joined bool
	// If Exact is set, the matrices are float32. Otherwise they have the type in which the device
	// stores rows.
	Exact bool
	// Types are the rows of vertex types, which are read in addition to Rows. The host gathers them
	// or computes their means.
	Types []TypeRows

	Segments []Segments
	Weights  [][]float32 // weights of edges
	Vertices [][]int32   // ids of vertices, and ends of groups
	Labels   []byte
	// HopEnds [layers+1] says where the arrays of each hop end in Segments, Weights and Vertices.
	// The first entry is the end of the arrays that all minibatches share, which come before the
	// arrays of the hops.
	HopEnds []HopEnd

	// If Drawing is not nil, it has drawn the minibatch on the device, and kernels read the arrays
	// of the Drawing in place. In this case Input and EdgeWeights are arrays of the Drawing, and
	// Rows has only the rows of the vertices in Drawn.Missing.
	Drawing Drawing
	Drawn   *Drawn

	// If MadeInStep is set, kernels also get host arrays that are made during the training step.
	// The device copies each of these arrays and waits for the copy.
	MadeInStep bool
}

// Frontier returns the number of rows of the frontier.
func (in *Inputs) Frontier() int {
	if in.Drawn != nil {
		return in.Drawn.Frontier()
	}
	return len(in.Rows.Of)
}

// TypeRows are the rows of one vertex type. If Averaged is set, they stand for the means of
// segments of these rows.
type TypeRows struct {
	Rows
	Means    Segments
	Averaged bool
}

// Len returns the number of rows or, if Averaged is set, the number of means.
func (r *TypeRows) Len() int {
	if r.Averaged {
		return r.Means.Len()
	}
	return len(r.Of)
}

// Make sets x to the rows or, if Averaged is set, to their means.
func (r *TypeRows) Make(host Host, x Matrix) {
	switch {
	case r.Cols == 0:
	case r.Averaged:
		host.SegmentRows(x, ReduceMean, r.Means, nil, r.Rows)
	default:
		host.GatherRows(x, r.Rows)
	}
}

// RowsCall returns the cost of computing the wanted matrices from stored rows. The cost is the
// bytes of each stored row, of its reference, and of the result. If onDevice is false, the host has
// computed the matrices, and the cost is 0.
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
	// Reserve makes room for inputs like in and somewhat larger ones, so that Send need not do it.
	// In pinned memory it makes room for inputs that are larger by the factors in g. This room has
	// at most `most` bytes, and no more than the host has free. If Send finds too little room, it
	// does what Reserve does.
	Reserve(in *Inputs, g Growth, most int) error
	// Open lets kernels that are called later read what was sent. It returns the wanted matrices,
	// in device memory. They stay valid until another StagingBuffer of the device is opened.
	Open() (own, reduced, sources Matrix, err error)
	// Types returns the rows of Inputs.Types. They are valid as long as the matrices that Open
	// returned.
	Types() []Matrix
	// PinnedBytes returns the host memory of the buffer.
	PinnedBytes() int64
	// Close ends the use of the inputs that Open made available. After Close, Send may be called
	// again.
	Close() error
	Free() error
}
