package compute

import "math"

// Alignment is the alignment, in bytes, of a minibatch's arrays in pinned memory. It suffices for
// fast matrix products and loads of 16 bytes.
const Alignment = 256

// Growth says how much larger the inputs of any minibatch can be than those of a given one. The
// factors are for the rows of the input layer's destinations, the rows of its sources, the labels,
// and the arrays of each hop. The zero value means that no bound is known. Alone is set if no rows
// come from other ranks.
type Growth struct {
	Destinations, Sources, Labels float64
	Hops                          []float64
	Alone                         bool
	// The largest number of rows that are sent for a minibatch that the device draws. For such
	// minibatches it is used instead of Destinations, Sources and Hops. It is not a factor, because
	// the given minibatch may send no rows.
	Missing int
}

// HopEnd has the lengths of Segments, Weights and Vertices of Inputs up to the end of a hop.
type HopEnd struct{ Segments, Weights, Vertices int }

// RowsAt says where the device reads the rows of the input layer.
type RowsAt int

const (
	// The host sends rows or results that it computes from rows, whichever have fewer bytes.
	RowsAnywhere RowsAt = iota
	// The same as RowsAnywhere, but for rows that the device has mapped the host computes no
	// results.
	RowsInPlace
	RowsOnDevice // all rows are in device memory
)

// PinnedRoom returns how many bytes of pinned memory suffice for the inputs of any minibatch. It
// returns at most limit. It multiplies the sizes of the arrays of in by the factors in g. If g is
// the zero value, it returns 0.
func (in *Inputs) PinnedRoom(g Growth, stored Elements, at RowsAt, limit int) int {
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

	// The variable results has the bytes of the results that the host computes from rows. The
	// variable operands has the bytes of the rows from which the device computes the same results.
	width := float64(in.Rows.Cols * stored.Size())
	destinations := g.Destinations * float64(in.Destinations)
	sources := g.Sources * float64(len(in.Rows.Of))
	if in.Drawing != nil && at != RowsOnDevice {
		sources = float64(g.Missing)
	}
	// bytes of references and addresses
	results, operands := 0.0, 16*sources+float64(4*len(in.Rows.Scale))
	if at != RowsOnDevice {
		operands += sources * float64(in.Rows.RowBytes())
	}
	if in.Own {
		results += destinations * width
	}
	if in.Sources {
		results += sources * width
	}
	if in.Drawing != nil {
		results = math.Inf(1) // the host does not have the edges, so it cannot compute means
	} else if in.Reduce != NoReduction {
		results += destinations * width
		operands += g.Hops[0] * float64(8*len(in.Input.Indptr)+4*(len(in.Input.Indices)+
			len(in.EdgeWeights)+len(in.Input.Counts)))
	}
	if at == RowsInPlace {
		room += operands
	} else {
		room += min(results, operands)
	}
	// Each array is aligned. There are up to ofRows arrays for rows. They are own rows, reduced
	// rows and all rows, if the host makes these. Otherwise they are references, addresses,
	// pointers, indices, weights, counts, scales and the rows themselves.
	const ofRows = 8
	return int(min(math.Ceil(room)+float64((arrays+ofRows)*Alignment), float64(limit)))
}
