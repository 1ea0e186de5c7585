package assignment

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

func text(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "graph.part.3")
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func array[T npy.Element](t *testing.T, data []T, shape ...int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "part.npy")
	if _, err := npy.WriteFile(path, data, shape...); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFormatsAgree(t *testing.T) {
	want := []int32{2, 0, 1, 1}
	for name, path := range map[string]string{
		"METIS's text":            text(t, "2\n0\n1\n1\n"),
		"blanks, no last newline": text(t, " 2\r\n0\n\n1\n1"),
		"int32":                   array(t, want, 4),
		"a column of int64":       array(t, []int64{2, 0, 1, 1}, 4, 1),
		"uint8":                   array(t, []uint8{2, 0, 1, 1}, 4),
	} {
		if got, err := Read(path, 4, 3); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct{ path, want string }{
		"too short":      {text(t, "0\n1\n2\n"), "3 entries, but 4 vertices"},
		"too long":       {array(t, make([]int32, 5), 5), "5 entries, but 4 vertices"},
		"counts from 1":  {text(t, "1\n2\n3\n3\n"), "vertex 2 is in part 3, but 3 parts"},
		"below 0":        {array(t, []int64{0, 1, -1, 2}, 4), "vertex 2 is in part -1"},
		"beyond 32 bits": {text(t, "0\n1\n99999999999\n1\n"), ":3: not an assignment"},
		"words": {text(t, "0\nleft\n"),
			`:2: not an assignment of these vertices to parts: "left"`},
		"two columns": {array(t, make([]int32, 8), 4, 2), "want one integer per vertex"},
		"fractions":   {array(t, []float32{0.5, 0, 1, 2}, 4), "0.5"},
		"nothing":     {text(t, ""), "0 entries"},
		"no file":     {filepath.Join(t.TempDir(), "none"), "no such file"},
	} {
		if _, err := Read(c.path, 4, 3); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// ring is a cycle in both directions.
func ring(t *testing.T, n int) *graph.CSC {
	t.Helper()
	var src, dst []graph.VertexID
	for v := range n {
		next := graph.VertexID((v + 1) % n)
		src, dst = append(src, graph.VertexID(v), next), append(dst, next, graph.VertexID(v))
	}
	g, err := graph.FromEdges(n, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestFileRepairsUnlessTheyAreToStay(t *testing.T) {
	g := ring(t, 12)
	path := text(t, strings.Repeat("0\n", 9)+"2\n2\n2\n") // part 1 is empty
	var said []string
	o := partition.Options{Parts: 3, Note: func(line string) { said = append(said, line) }}
	part, err := File(path, false)(g, partition.Weights{}, o)
	if err != nil {
		t.Fatal(err)
	}
	size := make([]int, 3)
	for _, k := range part {
		size[k]++
	}
	if !slices.Equal(size, []int{4, 4, 4}) {
		t.Errorf("parts of %v vertices", size)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{
		"as given: 16.67% of the edges are cut, largest/mean 2.250 vertices",
		"5 moves of a vertex",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in %q", want, all)
		}
	}
	if _, err := File(path, true)(g, partition.Weights{}, o); !errors.Is(err, ErrAssignment) ||
		!strings.Contains(err.Error(), "part 1 of 3 is empty") {
		t.Errorf("an empty part to keep: %v", err)
	}
	kept := text(t, strings.Repeat("1\n", 9)+"2\n2\n0\n")
	part, err = File(kept, true)(g, partition.Weights{}, o)
	if want, _ := Read(kept, 12, 3); err != nil || !slices.Equal(part, want) {
		t.Errorf("kept as %v, %v", part, err)
	}
}
