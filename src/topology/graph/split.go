package graph

import "fmt"

// Split lists the vertices for training, validation and test. A vertex is in at most one of the
// three lists.
type Split struct {
	Train, Valid, Test []VertexID
}

// Lists returns the lists, in the order of SplitNames.
func (s *Split) Lists() [3]*[]VertexID { return [3]*[]VertexID{&s.Train, &s.Valid, &s.Test} }

// ListedTwice is the error about a vertex that is in two lists of a split, or twice in one.
type ListedTwice struct {
	List   string // list in which the vertex is found again
	Entry  int
	Vertex VertexID
}

func (e *ListedTwice) Error() string {
	return fmt.Sprintf("%s split, entry %d: vertex %d is listed twice; the splits must not overlap",
		e.List, e.Entry, e.Vertex)
}

// Validate reports the first vertex in the lists whose number is not from 0 to n-1, or that is
// listed twice. It takes n bits of memory.
func (s Split) Validate(n int) error {
	seen := make([]uint64, (n+63)/64)
	for k, list := range s.Lists() {
		for i, v := range *list {
			if uint32(v) >= uint32(n) {
				return fmt.Errorf("%s split, entry %d: vertex %d: %w (the graph has %d vertices)",
					SplitNames[k], i, v, ErrVertexRange, n)
			}
			bit := uint64(1) << (v % 64)
			if seen[v/64]&bit != 0 {
				return &ListedTwice{SplitNames[k], i, v}
			}
			seen[v/64] |= bit
		}
	}
	return nil
}
