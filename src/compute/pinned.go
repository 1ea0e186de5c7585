package compute

import "math"

// Alignment is that of the arrays of a minibatch in pinned memory: enough for fast products and
// loads of 16 bytes.
const Alignment = 256

// Growth says how many times as large as those of one minibatch the inputs of others may be: the
// rows of the input layer's destinations and of its sources, and any array. The zero value says
// nothing. Alone: no rows come from other ranks.
type Growth struct {
	Destinations, Sources, Arrays float64
	Alone                         bool
}

// RowsAt says where the rows of the input layer are to be read.
type RowsAt int

const (
	RowsAnywhere RowsAt = iota // what takes less is sent: rows, or what the host makes of them
	RowsInPlace                // the same, but the host makes nothing of rows that it has mapped
	RowsOnDevice               // all of them
)

// PinnedRoom returns the bytes of pinned memory in which all inputs have room that are like these
// and larger by g; 0 if g says nothing.
func (in *Inputs) PinnedRoom(g Growth, stored Elements, at RowsAt) int {
	if g.Arrays == 0 {
		return 0
	}
	bytes, count := 0, 0
	add := func(n int) { bytes, count = bytes+n, count+1 }
	for i := range in.Segments {
		s := &in.Segments[i]
		add(8 * len(s.Indptr))
		add(4 * len(s.Indices))
		add(4 * len(s.Edges))
	}
	for _, w := range in.Weights {
		add(4 * len(w))
	}
	for _, v := range in.Vertices {
		add(4 * len(v))
	}
	add(len(in.Labels))
	room := float64(bytes) * g.Arrays

	// made is by the host, apart what a device makes the same of.
	width := float64(in.Rows.Cols * stored.Size())
	destinations := g.Destinations * float64(in.Destinations)
	sources := g.Sources * float64(len(in.Rows.Of))
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
	if in.Reduce != NoReduction {
		made += destinations * width
		apart += g.Arrays * float64(8*len(in.Input.Indptr)+4*(len(in.Input.Indices)+
			len(in.EdgeWeights)+len(in.Input.Counts)))
	}
	if made = min(made, apart); at == RowsInPlace {
		made = apart
	}
	const arrays = 8 // of rows, at most
	return int(math.Ceil(room+made)) + (count+arrays)*Alignment
}
