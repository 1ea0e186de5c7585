package compute

import "math"

// Alignment is that of the arrays of a minibatch in pinned memory: enough for fast products and loads
// of 16 bytes.
const Alignment = 256

// Growth says how many times as large as those of one minibatch the inputs of others may be: the rows
// of the input layer's destinations and of its sources, and any array. The zero value says nothing.
type Growth struct{ Destinations, Sources, Arrays float64 }

// PinnedRoom returns the bytes of pinned memory in which all inputs have room that are like these and
// larger by g; 0 if g says nothing. inPlace says that the host makes no rows where it need not.
func (in *Inputs) PinnedRoom(g Growth, stored Elements, inPlace bool) int {
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

	// Whichever takes less: rows and means that the host makes, or what a device makes them of.
	width := float64(in.Rows.Cols * stored.Size())
	destinations, sources := g.Destinations*float64(in.Destinations), g.Sources*float64(len(in.Rows.Of))
	made, apart := 0.0, sources*float64(in.Rows.RowBytes()+16)+g.Sources*float64(4*len(in.Rows.Scale))
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
	if inPlace {
		made = max(made, apart)
	}
	const arrays = 8 // of rows, at most
	return int(math.Ceil(room+made)) + (count+arrays)*Alignment
}
