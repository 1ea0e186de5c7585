package compute

import "unsafe"

// The limits of a Drawer. They limit the fanout, the number of hops, and the number of sources plus
// edges of a hop.
const (
	MostDrawnFanout = 64
	MostDrawnHops   = 16
	MostDrawnHop    = 1 << 28
)

// DrawnWeights says how the edges of drawn minibatches are weighted.
type DrawnWeights uint8

// The ways to weight edges.
const (
	DrawnUnweighted DrawnWeights = iota
	DrawnPlain                   // 1
	DrawnMean                    // 1 divided by the number of edges of the segment
	DrawnSymmetric               // the weights of GCN; see parallel.LayerEdges
)

// DrawOptions say what a Drawer draws: minibatches of kind neighbour or labor on a graph without
// relations, as package sample draws them. Only NewDrawer reads the host arrays.
type DrawOptions struct {
	Indptr   []int64 // row pointers of the whole graph (graph.CSC)
	Indices  []int32
	Original []int32 // [N]
	// [P+1] The vertices of part p are Parts[p] to Parts[p+1]-1.
	Parts []int64
	// Whether feature rows are in the tables passed to Accelerator.Resident, one table for each
	// part.
	Resident bool

	Seeds int         // largest number of seeds of a minibatch
	Hops  []DrawnHops // the hop of the seeds comes first
	// SelfEdges says whether every destination's segment begins with an edge from the destination
	// itself. Weights says how edges are weighted.
	SelfEdges bool
	Weights   DrawnWeights
	// Whether the edges of a destination in the last hop are ordered by part, as graph.Grouper
	// orders them. If so, the last hop has no transpose.
	Grouped bool

	// An entry of the device's map of vertices holds the tag of a minibatch and a value: a local
	// number, or an edge of a hop. ValueBits is the number of bits for the value, and 0 means as
	// many as necessary. Tests give it more, so that tags have few bits and are soon used up.
	ValueBits int
}

// DrawnHops are the largest sizes that a hop may have.
type DrawnHops struct {
	Fanout                       int
	Destinations, Edges, Sources int
	Transposed                   bool // whether the hop's transpose is wanted
}

// TopologyBytes returns the bytes of device memory for a graph's topology, for a map of its
// vertices, and for references to their feature rows.
func TopologyBytes(vertices int, edges int64) int64 { return 24*int64(vertices) + 4*edges }

// DrawingBytes returns an upper bound of the device memory of a Drawing.
func DrawingBytes(o *DrawOptions) (bytes int64) {
	// bytes of a vertex: in the frontier, as original id, as reference, and in the lists of missing
	// rows
	const vertex, arrays = 24, 4096
	bytes = arrays + int64(o.Seeds)*4
	for i, h := range o.Hops {
		edges, each := int64(h.Edges), int64(4)
		if o.SelfEdges {
			edges += int64(h.Destinations)
		}
		if o.Weights != DrawnUnweighted {
			each += 4
		}
		if h.Transposed {
			each += 4 + each
			bytes += 8 * int64(h.Sources+1)
		}
		bytes += 8*int64(h.Destinations+1) + each*edges + arrays
		if i == len(o.Hops)-1 {
			bytes += vertex * int64(h.Sources)
		}
	}
	return bytes
}

// DrawKeys are the keys from which the random draws of a minibatch are computed. Hop 0 is the hop
// of the seeds.
type DrawKeys struct {
	// [hops] key of the random sequences of the destinations, and of the edges in Drawn.Digest
	Words []uint64
	// [hops] The random numbers of vertices. It is set only if destinations draw the neighbours
	// with the smallest random numbers (sample.Labor).
	Numbers []Numbers
}

// Numbers gives every vertex a random number in one hop, uniform in [0,2^32): Mix(word ^ original
// id) >> 32. Each vertex has a phase, which is a number below Lasts: Lasts times the high word of
// Mix(Phases ^ original id), divided by the range of that word. If Turn plus the phase is below
// Lasts, the word is Now, otherwise it is Next.
type Numbers struct{ Now, Next, Phases, Turn, Lasts uint64 }

// Drawer draws minibatches on a device. It draws one minibatch after the other, in the order in
// which Start is called.
type Drawer interface {
	// NewDrawing returns a Drawing, which has room for one minibatch at a time.
	NewDrawing() (Drawing, error)
	// Free frees the device memory. No drawing may be in use.
	Free() error
}

// Drawing is a minibatch that is drawn in device memory:
//
//	preparing   Start ──> Wait ──> Inputs.Drawing ──> StagingBuffer.Send
//	training    StagingBuffer.Open ── kernels read Drawn ── Close ──> Start may follow
//
// Any goroutine may call its methods, but only one at a time.
type Drawing interface {
	// Start begins to draw the minibatch of the given seeds, of which there must be at least one.
	// It overwrites the previous minibatch. If a StagingBuffer has sent that minibatch, the
	// StagingBuffer must be closed.
	Start(seeds []int32, keys DrawKeys) error
	// Wait waits for the drawing and returns what was drawn. The result is valid until the next
	// Start.
	Wait() (*Drawn, error)
	// PinnedBytes returns the pinned host memory of the drawing.
	PinnedBytes() int64
	Free() error
}

// Drawn is a minibatch whose arrays are in device memory, except Missing.
type Drawn struct {
	// [hops+1] Vertices[0] is the number of seeds. After it comes the number of vertices of the
	// frontier after each hop.
	Vertices []int
	Edges    []int  // [hops] number of edges that each hop has drawn
	Digest   uint64 // sample.Minibatch.EdgesDigest
	// Faulty is set if the seeds or the topology are invalid. The other fields are then invalid
	// too.
	Faulty bool
	// Missing are the vertices of the frontier whose rows are not resident, in frontier order.
	Missing     []int32
	MostMissing int          // largest length that Missing can have in any minibatch
	Original    []int32      // original ids of the frontier
	Blocks      []DrawnBlock // one block for each layer, the input layer first
}

// DrawnBlock is a block of a minibatch.
type DrawnBlock struct {
	Forward, Transposed        Segments // with Segments.Above
	Weights, TransposedWeights []float32
}

// DownloadIDs copies int32 numbers from device memory to the host, as Device.Download does for
// float32.
func DownloadIDs(d Device, dst, src []int32) { d.Download(asFloats(dst), asFloats(src)) }

// asFloats returns the memory of int32 numbers as a slice of float32.
func asFloats(x []int32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// NumEdges returns the number of edges drawn in all hops.
func (d *Drawn) NumEdges() (n int) {
	for _, e := range d.Edges {
		n += e
	}
	return n
}

// Frontier returns the number of vertices of the input frontier.
func (d *Drawn) Frontier() int { return d.Vertices[len(d.Vertices)-1] }
