package cache

import (
	"fmt"
	"slices"

	"halognn/src/topology/graph"
)

// Static is a fixed set of rows, fetched before the first step. An empty set means no cache.
type Static struct {
	blind
	index *Index
	slots int
}

// NewStatic makes a cache that holds the rows of the given vertices. The row of vertices[i] is in
// slot i. The graph has n vertices.
func NewStatic(n int, vertices []graph.VertexID) (*Static, error) {
	s := &Static{index: NewIndex(n, len(vertices), IndexAuto), slots: len(vertices)}
	if err := fill(s.index, n, vertices, func(slot int32) int32 { return slot }); err != nil {
		s.Free()
		return nil, fmt.Errorf("static cache: %w", err)
	}
	return s, nil
}

// fill maps vertices[i] to entry(i) in the index, for every i.
func fill(x *Index, n int, vertices []graph.VertexID, entry func(slot int32) int32) error {
	for i, v := range vertices {
		if uint32(v) >= uint32(n) {
			return fmt.Errorf("entry %d of the initial rows is vertex %d: %w (the graph has %d "+
				"vertices)", i, v, graph.ErrVertexRange, n)
		}
		if x.Get(v) >= 0 {
			return fmt.Errorf("the initial rows name vertex %d twice: entries %d and %d", v,
				slices.Index(vertices, v), i)
		}
		x.Set(v, entry(int32(i)))
	}
	return nil
}

// Step looks the vertices up.
func (s *Static) Step(remote []graph.VertexID, d *Decision) {
	d.begin(len(remote), 0, 0)
	d.Misses = s.index.Lookup(remote, d.Slot)
}

// Slots returns the number of rows held.
func (s *Static) Slots() int { return s.slots }

// Bytes returns the memory of the index.
func (s *Static) Bytes() int64 { return s.index.Bytes() }

// Free gives the memory back.
func (s *Static) Free() { s.index.Free() }
