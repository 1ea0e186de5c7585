package compute

// Offboard is a Device with memory of its own, which the host must not touch: inputs go up and gradients come down beside training.
//
//	preparing goroutine        device                            training goroutine
//	Inbox.Send ── one copy ──> room for a minibatch ── Inbox.Open ──> kernels, Own and Mean
//	(pinned memory)            beside training                        ready(layer) ── StartDownload ──> pinned memory
//
// Host arrays that a kernel is handed (segments, vertices, labels, targets) are found on the device if the open Inbox sent them, and
// copied on the spot, which waits, if not.
type Offboard interface {
	Device

	// Resident puts rows of tables, as stored, into device memory, so that no Inbox sends them: count[t] of tables[t], which are the first
	// ones or, where hot[t] is not nil, those that it begins with. rowBytes of each. hot may be nil.
	Resident(tables [][]byte, count []int, hot [][]int32, rowBytes int) error
	// MapRows lets the device read the other rows of those tables where they lie in host memory, so that an Inbox sends their addresses
	// alone: pages are pinned, of at most limit bytes. A table whose pages cannot be is copied into memory whose pages can. It returns the bytes
	// of the tables that are read so, and what kept it from more. UnmapRows ends it, before the tables go.
	MapRows(limit int) (bytes int, kept error)
	UnmapRows() error
	// RowRates brings minibatches of rows up, in copies that the host makes and read by the device, and returns the bytes a second of each.
	RowRates(minibatches []Rows) (copied, mapped float64, err error)
	// Room returns the bytes of device memory that are not taken.
	Room() int

	// NewInbox returns room for the inputs of a minibatch at a time; resident says whether the rows it will be sent lie in the tables
	// that Resident was given.
	NewInbox(host Host, resident bool) Inbox

	// Copy sets dst to src, both device memory; Add adds x to sum.
	Copy(dst, src []float32)
	Add(sum, x []float32)

	// AllocHost returns n elements of pinned host memory, FreeHost returns them.
	AllocHost(n int) ([]float32, error)
	FreeHost([]float32)
	// StartDownload copies src to pinned memory when the kernels called so far are done, beside those called later. The Arrival
	// tells when.
	NewArrival() (Arrival, error)
	StartDownload(dst, src []float32, a Arrival)
	// StartUpload copies src from pinned memory before the kernels called from now on. src stays as it is until the next Sync.
	StartUpload(dst, src []float32)
}

// Arrival is a place in the work of a device, as the end of a copy to the host. Wait returns when it is reached; it may be used again then.
type Arrival interface {
	Wait() error
	Free() error
}

// Inputs are what a minibatch hands to a device: input rows, or what is made of them, and host arrays that kernels will be given.
type Inputs struct {
	Rows               Rows     // of the frontier
	Input              Segments // of the input layer; read for Mean
	Destinations       int      // of the input layer: the first rows
	Own, Mean, Sources bool     // what is wanted: the destinations' rows, the means of their segments, all rows
	Segments           []Segments
	Vertices           [][]int32
	Labels             []int32
	Targets            []uint8
}

// Inbox holds the inputs of a minibatch on a device. Send is called by a preparing goroutine, Open, Close and Free by the training one.
type Inbox interface {
	// Send puts the inputs into pinned memory and starts their copy. The arrays of in must stay until Close. It fails for want of memory.
	Send(in *Inputs) error
	// Open lets the kernels called from now on read what was sent, and returns the matrices that were wanted, in device memory; they stay
	// valid until another Inbox of the device opens.
	Open() (own, mean, sources Matrix, err error)
	// PinnedBytes is the host memory that it has.
	PinnedBytes() int64
	// Close ends that: Send may be called again.
	Close() error
	Free() error
}
