package compute

// Accelerator is a Device with memory of its own, which the host must not touch. Inputs are
// uploaded and gradients downloaded beside training:
//
//	preparing goroutine     device                           training goroutine
//	StagingBuffer.Send ───> minibatch i+1 ─ StagingBuffer.Open ─> kernels read them
//	(pinned memory)         beside training                  ready(layer) ── StartDownload ──> pinned memory
//
// A kernel that is given host arrays (segments, vertices, labels, targets) finds them on the device
// if the open StagingBuffer sent them. Otherwise it copies them at once, and waits for the copy.
type Accelerator interface {
	Device

	// Resident copies rows of tables, as stored, to device memory, so that no StagingBuffer sends
	// them: count[t] rows of tables[t], which are the first ones or, where hot[t] is not nil, the
	// first ones that it names. A row has rowBytes bytes. hot may be nil.
	Resident(tables [][]byte, count []int, hot [][]int32, rowBytes int) error
	// MapRows lets the device read the other rows of those tables where they lie in host memory, so
	// that a StagingBuffer sends only their addresses. It pins pages of at most limit bytes. A
	// table whose pages cannot be pinned is copied to memory that can. It returns the bytes of the
	// tables that the device reads so, and what prevented more. UnmapRows ends it, before the
	// tables are freed.
	MapRows(limit int) (bytes int, prevented error)
	UnmapRows() error
	// RowRates uploads the rows of minibatches twice, copied by the host and read by the device,
	// and returns the bytes per second of each.
	RowRates(minibatches []Rows) (copied, mapped float64, err error)
	// Room returns the bytes of device memory that are free.
	Room() int

	// NewStagingBuffer returns a buffer for the inputs of one minibatch at a time. resident says
	// whether their rows lie in the tables that Resident was given.
	NewStagingBuffer(host Host, resident bool) StagingBuffer

	// Copy sets dst to src, both in device memory; Add adds x to sum.
	Copy(dst, src []float32)
	Add(sum, x []float32)

	// AllocHost returns n elements of pinned host memory, FreeHost frees them.
	AllocHost(n int) ([]float32, error)
	FreeHost([]float32)
	// StartDownload copies src to pinned memory once the kernels called so far are done, beside
	// those called later. The event passes when the copy is done.
	NewEvent() (Event, error)
	StartDownload(dst, src []float32, e Event)
	// StartUpload copies src from pinned memory before the kernels called from now on. src must not
	// change until the next Sync.
	StartUpload(dst, src []float32)
}

// Event is a point in the work of a device, such as the end of a copy to the host. Wait returns
// when the device has passed it; then it may be recorded again.
type Event interface {
	Wait() error
	Free() error
}

// Inputs are what a minibatch gives to a device: input rows, or what is computed from them, and
// host arrays that kernels will read.
type Inputs struct {
	Rows         Rows      // of the frontier
	Input        Segments  // of the input layer; read for Reduce
	EdgeWeights  []float32 // of its edges, for a weighted sum; nil for none
	Destinations int       // of the input layer: the first rows

	// What is wanted: the destinations' rows, a reduction of their segments, all rows.
	Own, Sources bool
	Reduce       Reduction

	Segments []Segments
	Weights  [][]float32 // of edges
	Vertices [][]int32
	Labels   []int32
	Targets  []uint8
}

// RowsCall returns the cost of computing the wanted rows from stored ones: each row as it is
// stored, its reference, and the result. It is nothing if the host computed them.
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
		c.Bytes += len(in.Rows.Of) * (read + written)
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
	// Open lets the kernels called from now on read what was sent, and returns the matrices that
	// were wanted, in device memory. They stay valid until another StagingBuffer of the device
	// opens.
	Open() (own, reduced, sources Matrix, err error)
	// PinnedBytes returns the host memory of the buffer.
	PinnedBytes() int64
	// Close ends what Open began: Send may be called again.
	Close() error
	Free() error
}
