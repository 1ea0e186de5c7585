package dataset

import (
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

// A shuffled split is that of numpy.random.RandomState(seed).permutation(n): here of so many that
// the first draw has one bit more than 16 or 17, and of a seed of more than 32.
func TestPermutationIsThatOfNumPy(t *testing.T) {
	for _, c := range []struct {
		n           int
		seed        uint64
		first, last []graph.VertexID
	}{
		{65537, 1, []graph.VertexID{5024, 11184, 20956}, []graph.VertexID{50057, 32511, 5192}},
		{65537, 2, []graph.VertexID{48031, 5044, 37489}, []graph.VertexID{18898, 31019, 44566}},
		{131073, 3, []graph.VertexID{120400, 2076, 54627}, []graph.VertexID{77049, 67224, 71530}},
		{131073, 5, []graph.VertexID{103580, 21447, 15863}, []graph.VertexID{20463, 18638, 35683}},
		{262145, 7, []graph.VertexID{48616, 174105, 59154}, []graph.VertexID{49689, 189636, 61615}},
		{1000, 3<<32 | 7, []graph.VertexID{938, 68, 756, 355, 399, 208}, nil},
	} {
		ids := make([]graph.VertexID, c.n)
		for v := range ids {
			ids[v] = graph.VertexID(v)
		}
		permute(ids, c.seed)
		if got := ids[:len(c.first)]; !slices.Equal(got, c.first) {
			t.Errorf("seed %d: it begins with %v, want %v", c.seed, got, c.first)
		}
		if got := ids[c.n-len(c.last):]; !slices.Equal(got, c.last) {
			t.Errorf("seed %d: it ends with %v, want %v", c.seed, got, c.last)
		}
	}
}
