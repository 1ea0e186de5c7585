package dataset_test

import (
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// What an edge list is not is an error: ids that begin with 0, METIS graphs, and two sets that are
// both numbered from 1.
func TestEdgeListFaults(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{"007 12\n12 7\n", "an id begins with 0"},
		{"1 0\n0 -07\n", "line 2"},
		{"4 4\n2 4\n1 3\n2 4\n1 3\n", "a METIS graph"},
		{"% made\n4 5\n2 3 4\n1 3\n1 2 4\n1 3\n", "a METIS graph"},
		{"3 2 1\n2 7\n1 7 3 9\n2 9\n", "a METIS graph"},
		{"% bip posweighted\n1 1\n", "bipartite"},
		{"0 1 0.5\n1 2 2\n", "a weight"},
		{"2 1\n0 1\n0 1\n0 1 x\n", "two vertex ids"}, // more lines than 2
		{"9 1\n0 1 2 3 4 5 6 7 8\n", "two vertex ids"},
	} {
		dir := t.TempDir()
		o := dataset.ImportOptions{
			Format: "edgelist", In: filepath.Join(dir, "g.txt"), Out: filepath.Join(dir, "d"),
		}
		write(t, o.In, []byte(c.text))
		if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	dir := t.TempDir()
	o := dataset.ImportOptions{
		Format: "edgelist", In: filepath.Join(dir, "g.txt"), Out: filepath.Join(dir, "d"),
	}
	write(t, o.In, []byte("3 3\n0 10\n100 0\n"))
	if d, _ := imported(t, o); d.Meta.Vertices != 4 {
		t.Errorf("a loop first, and zeros: %d vertices", d.Meta.Vertices)
	}
}
