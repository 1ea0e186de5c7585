package compute

import "math"

// Alignment is the alignment of the arrays of a minibatch in pinned memory: enough for fast
// products and loads of 16 bytes.
const Alignment = 256

// Growth bounds the inputs of other minibatches, as multiples of those of one: the rows of the
// input layer's destinations and of its sources, the labels, and the arrays of each hop. The zero
// value gives no bound. Alone is set if no rows come from other ranks.
type Growth struct {
	Destinations, Sources, Labels float64
	Hops                          []float64
	Alone                         bool
	// of minibatches that a device draws, instead of Destinations, Sources and Hops: the most rows
	// that are sent, which may be none with this one
	Missing int
}

// HopEnd is where the arrays of a hop end in Inputs.
type HopEnd struct{ Segments, Weights, Vertices int }

// RowsAt says where the rows of the input layer are to be read.
type RowsAt int

const (
	// rows are sent, or the results that the host makes of them, whichever take fewer bytes
	RowsAnywhere RowsAt = iota
	RowsInPlace         // the same, but the host makes nothing of rows that are mapped
	RowsOnDevice        // the device has all of them
)

// PinnedRoom returns the bytes of pinned memory that hold all inputs like these and larger by g,
// but no more than the argument most; 0 if g gives no bound.
func (in *Inputs) PinnedRoom(g Growth, stored Elements, at RowsAt, most int) int {
	if g.Labels == 0 {
		return 0
	}
	room, arrays := float64(len(in.Labels))*g.Labels, 1
	growth, from := 1.0, HopEnd{}
	add := func(bytes int) { room, arrays = room+growth*float64(bytes), arrays+1 }
	for l, end := range in.HopEnds {
		if l > 0 {
			growth = g.Hops[l-1]
		}
		for _, s := range in.Segments[from.Segments:end.Segments] {
			add(8 * len(s.Indptr))
			add(4 * len(s.Indices))
			add(4 * len(s.Edges))
		}
		for _, w := range in.Weights[from.Weights:end.Weights] {
			add(4 * len(w))
		}
		for _, v := range in.Vertices[from.Vertices:end.Vertices] {
			add(4 * len(v))
		}
		from = end
	}

	// made is the size of the results that the host makes of rows; apart is the size of the rows
	// from which a device makes the same results.
	width := float64(in.Rows.Cols * stored.Size())
	destinations := g.Destinations * float64(in.Destinations)
	sources := g.Sources * float64(len(in.Rows.Of))
	if in.Drawing != nil && at != RowsOnDevice {
		sources = float64(g.Missing)
	}
	made, apart := 0.0, 16*sources+float64(4*len(in.Rows.Scale)) // references and addresses
	if at != RowsOnDevice {
		apart += sources * float64(in.Rows.RowBytes())
	}
	if in.Own {
		made += destinations * width
	}
	if in.Sources {
		made += sources * width
	}
	if in.Drawing != nil {
		made = math.Inf(1) // the host has no edges to make means by
	} else if in.Reduce != NoReduction {
		made += destinations * width
		apart += g.Hops[0] * float64(8*len(in.Input.Indptr)+4*(len(in.Input.Indices)+
			len(in.EdgeWeights)+len(in.Input.Counts)))
	}
	if at == RowsInPlace {
		room += apart
	} else {
		room += min(made, apart)
	}
	// Each array is aligned: of rows these are own, reduced and all ones, or references, addresses,
	// pointers, indices, weights, counts, scales and the rows.
	const ofRows = 8
	return int(min(math.Ceil(room)+float64((arrays+ofRows)*Alignment), float64(most)))
}
