package graph

import (
	"strings"
	"testing"
)

// Check finds columns whose edges are not those of their vertex.
func TestColumnsCheck(t *testing.T) {
	both := []Relation{{"b", "x", "a"}, {"a", "y", "a"}, {"a", "z", "b"}}
	for _, c := range []struct {
		name            string
		relations       []Relation
		starts          []int64
		indptr, columns []int64
		want            string
	}{
		{"sound", both, []int64{0, 2, 4}, []int64{0, 3, 4, 6, 6}, []int64{0, 1, 3, 3, 4, 6, 6}, ""},
		{"a column before the one before it", both, []int64{0, 2, 4}, []int64{0, 3, 4, 6, 6},
			[]int64{0, 1, 3, 2, 4, 6, 6}, "column 1 of vertex 1 begins at edge 2, before edge 3"},
		{"the first column begins later", both, []int64{0, 2, 4}, []int64{0, 3, 4, 6, 6},
			[]int64{1, 1, 3, 3, 4, 6, 6},
			"columns of vertex 0 have edges 1 to 3, but the vertex has edges 0 to 3"},
		{"a vertex ends later", both, []int64{0, 2, 4}, []int64{0, 3, 4, 6, 6},
			[]int64{0, 1, 3, 3, 5, 6, 6},
			"columns of vertex 1 have edges 3 to 5, but the vertex has edges 3 to 4"},
		{"the last column ends later", both, []int64{0, 2, 4}, []int64{0, 3, 4, 6, 6},
			[]int64{0, 1, 3, 3, 4, 6, 7},
			"columns of vertex 3 have edges 6 to 7, but the vertex has edges 6 to 6"},
		{"an edge into a type in which no relation ends", both[1:2], []int64{0, 1, 2},
			[]int64{0, 1, 2}, []int64{0, 1},
			"columns of vertex 1 have edges 1 to 1, but the vertex has edges 1 to 2"},
	} {
		columns, err := NewColumns(&Schema{Types: []string{"a", "b"}, Relations: c.relations},
			c.starts, c.columns)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		err = columns.Check(c.indptr)
		if c.want == "" && err != nil || c.want != "" && (err == nil ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
