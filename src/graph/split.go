package graph

import "fmt"

// Split lists the vertices for training, validation and test. A vertex is in at most one of the
// three lists.
type Split struct {
	Train, Valid, Test []VertexID
}

// Validate reports the first vertex that does not exist among n or is listed twice. It takes n bits
// of memory.
func (s Split) Validate(n int) error {
	seen := make([]uint64, (n+63)/64)
	for _, list := range []struct {
		name string
		ids  []VertexID
	}{{"train", s.Train}, {"valid", s.Valid}, {"test", s.Test}} {
		for i, v := range list.ids {
			if uint32(v) >= uint32(n) {
				return fmt.Errorf("%s split, entry %d: vertex %d: %w (the graph has %d vertices)",
					list.name, i, v, ErrVertexRange, n)
			}
			bit := uint64(1) << (v % 64)
			if seen[v/64]&bit != 0 {
				return fmt.Errorf("%s split, entry %d: vertex %d is listed twice; the splits "+
					"must not overlap", list.name, i, v)
			}
			seen[v/64] |= bit
		}
	}
	return nil
}
