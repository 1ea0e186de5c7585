package sample

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// SeedError is an error about an invalid seed.
type SeedError struct{ Reason error }

func (e *SeedError) Error() string { return e.Reason.Error() }
func (e *SeedError) Unwrap() error { return e.Reason }

func seedError(format string, args ...any) error { return &SeedError{fmt.Errorf(format, args...)} }

// errEdges is returned for a hop with more edges than a block can number: the batch is too large,
// or row pointers do not ascend.
var errEdges = errors.New("too many edges")

// contain runs a call that draws, and turns a panic about a damaged topology into an error. The hot
// loops do not validate the topology. Instead, Go checks the bounds of every read, and arrays that
// break the rules of a CSC sooner or later fail such a check, or give too many edges. Only then are
// the rows of the current hop examined one by one. The first row that breaks a rule is the error;
// if none does, the panic is a bug of the program and continues.
func (s *Fused) contain(f func() error) error {
	s.hop.vertices = nil // vertices of an earlier minibatch may be freed
	if err := mem.Contain(f); err != nil {
		return s.explain(err)
	}
	return nil
}

// explain returns an error about the damaged topology that caused err, or err itself if the
// topology is not damaged.
func (s *Fused) explain(err error) error {
	if errors.Is(err, mem.ErrWindow) { // a row that begins or ends in the rows of other ranks
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

// checkRows reports the first destination of the current hop whose row breaks a rule. Every
// destination is known to be a vertex: seeds were checked, and for others the original id has been
// read.
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
