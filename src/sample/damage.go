package sample

import (
	"errors"
	"fmt"

	"halognn/src/graph"
	"halognn/src/mem"
)

// SeedError is an error about an invalid seed.
type SeedError struct{ Reason error }

func (e *SeedError) Error() string { return e.Reason.Error() }
func (e *SeedError) Unwrap() error { return e.Reason }

func seedError(format string, args ...any) error { return &SeedError{fmt.Errorf(format, args...)} }

// errEdges is a hop of more edges than a block can number: a batch too large, or row pointers that
// are not ascending.
var errEdges = errors.New("too many edges")

// contain runs a call that draws. The hot loops do not validate the topology: Go checks the bounds
// of every read, and arrays that break the rules of a CSC sooner or later fail such a check, or
// give too many edges. Only then are the rows of the hop in progress examined one by one. The first
// row that breaks a rule is the error; if none does, the panic is a bug of the program and goes on.
func (s *Fused) contain(f func() error) error {
	s.hop.vertices = nil // vertices of an earlier minibatch may be freed
	if err := mem.Contain(f); err != nil {
		return s.explain(err)
	}
	return nil
}

// explain returns the damage of the topology that caused err, or err if there is none.
func (s *Fused) explain(err error) error {
	if errors.Is(err, mem.ErrWindow) { // a row that begins or ends among those of other ranks
		s.vertices.forget()
		t := &s.topology
		return fmt.Errorf("sample: %w", &graph.LayoutError{Array: graph.Indptr, Reason: fmt.Errorf(
			"indptr places a row outside the edges of vertices %d to %d, which this rank holds",
			t.First, int(t.First)+t.Graph.NumVertices()-1)})
	}
	if p := (*mem.Panic)(nil); !errors.As(err, &p) && !errors.Is(err, errEdges) {
		return err
	}
	s.vertices.forget() // drops entries of invalid vertices
	if damage := mem.Guard(s.checkRows); damage != nil {
		return fmt.Errorf("sample: %w", damage)
	}
	return err
}

// checkRows reports the first destination of the hop in progress whose row breaks a rule. Every
// destination is a vertex: it was a seed, which was checked, or has had its original id read.
func (s *Fused) checkRows() error {
	h, g, what := &s.hop, s.topology.Graph, "vertex"
	if g.Indptr = h.rows; !s.topology.Columns.Plain() {
		what = "column"
	}
	for _, v := range h.vertices {
		if err := g.CheckRow(v-h.first, len(s.topology.Original)); err != nil {
			return fmt.Errorf("in-neighbours of %s %d: %w", what, v, err)
		}
	}
	return nil
}
