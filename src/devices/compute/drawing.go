package compute

import "unsafe"

// The most that a Drawer can draw: neighbours of a vertex, hops, and sources plus edges of a hop.
const (
	MostDrawnFanout = 64
	MostDrawnHops   = 16
	MostDrawnHop    = 1 << 28
)

// DrawnWeights says which weights the edges of drawn blocks have.
type DrawnWeights uint8

// The weights of edges.
const (
	DrawnUnweighted DrawnWeights = iota
	DrawnPlain                   // 1
	DrawnMean                    // 1 over the number of edges of the segment
	DrawnSymmetric               // GCN's: parallel.LayerEdges
)

// DrawOptions say what a Drawer draws: minibatches of kind neighbour or labor on a graph without
// relations, as package sample draws them. The host arrays are read once.
type DrawOptions struct {
	Indptr   []int64 // row pointers of the whole graph (graph.CSC)
	Indices  []int32
	Original []int32 // [N]
	// [P+1] part p has the vertices Parts[p] to Parts[p+1]-1
	Parts []int64
	// feature rows are those of the tables passed to Accelerator.Resident, one for each part
	Resident bool

	Seeds int         // largest number of seeds of a minibatch
	Hops  []DrawnHops // the hop of the seeds first
	// every destination's segment begins with an edge from itself; edges have weights
	SelfEdges bool
	Weights   DrawnWeights
	// the last hop's edges come part by part, as graph.Grouper orders them; it has no transpose
	Grouped bool

	// number of bits for the local numbers and edges of a hop in the map; 0: the number that is
	// needed. Tests set it to make the other bits run out
	ValueBits int
}

// DrawnHops are the bounds of a hop.
type DrawnHops struct {
	Fanout                       int
	Destinations, Edges, Sources int
	Transposed                   bool // the transpose is wanted
}

// TopologyBytes returns the device memory of a graph's topology, of a map of its vertices and of
// the places of their rows.
func TopologyBytes(vertices int, edges int64) int64 { return 24*int64(vertices) + 4*edges }

// DrawingBytes bounds the device memory of a Drawing.
func DrawingBytes(o *DrawOptions) (bytes int64) {
	const vertex, arrays = 24, 4096 // frontier, original ids, references, those that are missing
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

// DrawKeys key the draws of a minibatch. Hop 0 is that of the seeds.
type DrawKeys struct {
	Words []uint64 // [hops] key random sequences of destinations, and edges in Drawn.Digest
	// [hops] if destinations draw the neighbours with the smallest numbers (sample.Labor)
	Numbers []Numbers
}

// Numbers gives every vertex a number in one hop, uniform in [0,2^32): Mix(word ^ its original id)
// >> 32. Every vertex has a phase below Lasts: the high bits of Mix(Phases ^ original id) times
// Lasts. The word is Now if Turn plus the phase is below Lasts, otherwise it is Next.
type Numbers struct{ Now, Next, Phases, Turn, Lasts uint64 }

// Drawer draws minibatches on a device. It makes one after the other, in the order of Start.
type Drawer interface {
	// NewDrawing returns room for one minibatch at a time.
	NewDrawing() (Drawing, error)
	// Free frees the device memory. No drawing may be in use.
	Free() error
}

// Drawing is a minibatch that is drawn in device memory:
//
//	preparing   Start ──> Wait ──> Inputs.Drawing ──> StagingBuffer.Send
//	training    StagingBuffer.Open ── kernels read Drawn ── Close ──> Start may follow
//
// Any goroutine may call it, one at a time.
type Drawing interface {
	// Start begins to draw the minibatch of some seeds, at least one. It replaces the minibatch
	// before, whose StagingBuffer is closed or was never sent.
	Start(seeds []int32, keys DrawKeys) error
	// Wait returns what was drawn; it is valid until the next Start.
	Wait() (*Drawn, error)
	// PinnedBytes returns the pinned host memory of the drawing.
	PinnedBytes() int64
	Free() error
}

// Drawn is a minibatch whose arrays, except Missing, lie in device memory.
type Drawn struct {
	Vertices []int  // [hops+1] number of vertices of the frontier: the seeds, and after each hop
	Edges    []int  // [hops] number of edges that each hop has drawn
	Digest   uint64 // sample.Minibatch.EdgesDigest
	// Faulty is set if seeds or topology break a rule; the other fields are then invalid.
	Faulty bool
	// Missing are the vertices of the frontier whose rows are not resident, in its order.
	Missing     []int32
	MostMissing int          // of any minibatch
	Original    []int32      // original ids of the frontier
	Blocks      []DrawnBlock // input layer first
}

// DrawnBlock is a block of a minibatch.
type DrawnBlock struct {
	Forward, Transposed        Segments // with Segments.Above
	Weights, TransposedWeights []float32
}

// DownloadIDs copies numbers that were drawn to the host, as Device.Download does.
func DownloadIDs(d Device, dst, src []int32) { d.Download(asFloats(dst), asFloats(src)) }

// asFloats returns the memory of numbers as that of floats.
func asFloats(x []int32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// NumEdges returns the number of edges drawn.
func (d *Drawn) NumEdges() (n int) {
	for _, e := range d.Edges {
		n += e
	}
	return n
}

// Frontier returns the number of vertices of the input frontier.
func (d *Drawn) Frontier() int { return d.Vertices[len(d.Vertices)-1] }
