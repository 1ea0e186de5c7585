//go:build e2e

package tests

import (
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// handmade is a small graph that generate cannot make. Vertices form a community for each class, a
// range of ids. Most edges are inside a community, and noisy features tell the community. A zero
// field has the default.
type handmade struct {
	vertices int // default 400
	classes  int // default 4
	// default multiclass; with multilabel, odd vertices also have the next class
	task     string
	unmarked func(v int) bool    // multilabel vertices without a label; default none
	split    func(v int) [3]bool // train, valid, test; default 3 of 5, 1 of 5, 1 of 5
	isolated bool                // no edges
}

// write writes the graph to dir and returns it.
func (h handmade) write(t *testing.T, dir string) string {
	t.Helper()
	if h.vertices == 0 {
		h.vertices = 400
	}
	if h.classes == 0 {
		h.classes = 4
	}
	if h.task == "" {
		h.task = task.Multiclass
	}
	if h.split == nil {
		h.split = func(v int) [3]bool { return [3]bool{v%5 < 3, v%5 == 3, v%5 == 4} }
	}
	w, err := dataset.Create(dir, dataset.Meta{Name: "handmade", Task: h.task, Classes: h.classes})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(*dataset.Writer) error{h.topology, h.features, h.labels, h.splits} {
		if err := step(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (h handmade) community(v int) int { return v * h.classes / h.vertices }

func (h handmade) topology(w *dataset.Writer) error {
	random := rand.New(rand.NewPCG(1, 2))
	var src, dst []graph.VertexID
	for v := range h.vertices {
		for range 5 {
			u := random.IntN(h.vertices)
			if h.community(u) == h.community(v) || random.IntN(8) == 0 {
				src, dst = append(src, graph.VertexID(u)), append(dst, graph.VertexID(v))
			}
		}
	}
	if h.isolated {
		src, dst = nil, nil
	}
	g, err := graph.FromEdges(h.vertices, src, dst)
	if err != nil {
		return err
	}
	defer g.Free()
	clean, _ := graph.Clean(g, graph.CleanOptions{Undirected: true})
	return w.Topology(clean)
}

// features has a column for each class, and one for odd vertices.
func (h handmade) features(w *dataset.Writer) error {
	out, err := w.Features(h.vertices, h.classes+1, dataset.Float32)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(3, 4))
	row := make([]float32, h.classes+1)
	for v := range h.vertices {
		for i := range row {
			row[i] = float32(random.NormFloat64() / 2)
		}
		row[h.community(v)]++
		row[h.classes] = float32(v % 2)
		if err := out.Write(row); err != nil {
			return err
		}
	}
	return out.Close()
}

func (h handmade) labels(w *dataset.Writer) error {
	if h.task == task.Multilabel {
		marks := make([]uint8, h.vertices*h.classes)
		for v := range h.vertices {
			if h.unmarked != nil && h.unmarked(v) {
				continue
			}
			c := h.community(v)
			marks[v*h.classes+c] = 1
			marks[v*h.classes+(c+v%2)%h.classes] = 1
		}
		return w.Labels(marks)
	}
	labels := make([]int32, h.vertices)
	for v := range labels {
		labels[v] = int32(h.community(v))
	}
	return w.Labels(mem.Bytes(labels))
}

func (h handmade) splits(w *dataset.Writer) error {
	var lists [3][]graph.VertexID
	for v := range h.vertices {
		for i, in := range h.split(v) {
			if in {
				lists[i] = append(lists[i], graph.VertexID(v))
			}
		}
	}
	return w.Splits(graph.Split{Train: lists[0], Valid: lists[1], Test: lists[2]})
}

// partitioned runs `halognn partition` on the dataset and returns the PARTS directory.
func partitioned(t *testing.T, data string, parts int, method string, flags ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "parts")
	args := []string{"partition", "--data", data, "--parts", strconv.Itoa(parts), "--method",
		method, "--out", dir}
	halognn(t).must(t, append(args, flags...)...)
	return dir
}
