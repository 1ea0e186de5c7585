package dataset

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// writeTyped writes vertices of many types and a relation that ends in each, from type 0.
func writeTyped(t *testing.T, types, each int) *Dataset {
	t.Helper()
	var m Meta
	var counts []int64
	var edges []TypedEdges
	for k := range types {
		name := string(rune('a' + k))
		m.Schema.Types, counts = append(m.Schema.Types, name), append(counts, int64(each))
		edges = append(edges, TypedEdges{
			Relation: graph.Relation{Source: "a", Name: "to", Target: name},
			Sources:  []int32{2, 1, 1, 0}, Targets: []int32{0, 0, 0, 1},
		})
	}
	m.Task = "none"
	dir := filepath.Join(t.TempDir(), "d")
	w, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.TypedTopology(counts, edges, graph.CleanOptions{})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return opened(t, dir)
}

// The rows of a relation are those of its target type alone: other types take no memory for it.
func TestRelationHasRowsOfItsTarget(t *testing.T) {
	const types, each = 20, 1 << 14
	live := mem.Allocated()
	d := writeTyped(t, types, each)
	if leak := mem.Allocated() - live; leak != 0 {
		t.Errorf("%d bytes not given back", leak)
	}
	if err := d.Verify(); err != nil {
		t.Error(err)
	}
	starts := d.Meta.Starts()
	for r, s := range d.Meta.Schema.Relations {
		e := TypedEdges{Relation: s, Sources: []int32{2, 1}, Targets: []int32{0, 0}}
		g, _, err := e.build(&d.Meta.Schema, r, starts, graph.CleanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := g.InNeighbours(0); g.NumVertices() != each ||
			!slices.Equal(got, []graph.VertexID{1, 2}) {
			t.Errorf("relation %s has %d rows, want %d; the first is %v", s, g.NumVertices(), each,
				got)
		}
		g.Free()
	}
}

// Verify finds columns that do not fit the graph, and an edge from a vertex of another type.
func TestVerifyFindsBadColumns(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(d *Dataset)
	}{
		{"sound", "", func(*Dataset) {}},
		{"columns of other edges", "have edges 0 to 1, but the vertex has edges 0 to 2",
			func(d *Dataset) { d.Columns.Indptr[1] = 1 }},
		{"a source of another type", "which is no a", func(d *Dataset) { d.Graph.Indices[0] = 4 }},
	} {
		d := writeTyped(t, 3, 4)
		d.Columns.Indptr = slices.Clone(d.Columns.Indptr)
		d.Graph.Indices = slices.Clone(d.Graph.Indices)
		c.spoil(d)
		err := d.checkColumns()
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrMismatch) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
