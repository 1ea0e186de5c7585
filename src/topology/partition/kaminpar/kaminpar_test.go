package kaminpar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// planted returns a graph of clusters of 50 vertices in both directions, each edge once.
func planted(t *testing.T, clusters int) *graph.CSC {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 9))
	n := 50 * clusters
	var src, dst []graph.VertexID
	seen := map[[2]int]bool{}
	for range 12 * n {
		a := rng.IntN(n)
		b := a/50*50 + rng.IntN(50)
		if rng.IntN(20) == 0 {
			b = rng.IntN(n)
		}
		if a == b || seen[[2]int{a, b}] {
			continue
		}
		seen[[2]int{a, b}], seen[[2]int{b, a}] = true, true
		src = append(src, graph.VertexID(a), graph.VertexID(b))
		dst = append(dst, graph.VertexID(b), graph.VertexID(a))
	}
	g, err := graph.FromEdges(n, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	for v := range n {
		slices.Sort(g.InNeighbours(graph.VertexID(v)))
	}
	return g
}

// parhipOf reads the file that is written of g: ends, neighbours, weights of vertices and of edges.
func parhipOf(
	t *testing.T, g *graph.CSC, edge, vertex []int32,
) (ends []int64, all, vw, ew []int32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g")
	if err := writeParHIP(path, g, edge, vertex); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(file)
	read := func(into any) {
		t.Helper()
		if err := binary.Read(r, binary.LittleEndian, into); err != nil {
			t.Fatal(err)
		}
	}
	var head [3]uint64
	read(&head)
	if head[0]&^noEdgeWeights != vertices32|vertexWeights32|edgeWeights32 ||
		int(head[1]) != g.NumVertices() {
		t.Fatalf("head %v", head)
	}
	ends, all = make([]int64, head[1]+1), make([]int32, head[2])
	vw = make([]int32, head[1])
	read(ends)
	for i := range ends {
		ends[i] = (ends[i] - int64(8*(3+len(ends)))) / 4
	}
	read(all)
	read(vw)
	if head[0]&noEdgeWeights == 0 {
		ew = make([]int32, head[2])
		read(ew)
	}
	if r.Len() > 0 {
		t.Fatalf("%d bytes are left", r.Len())
	}
	return ends, all, vw, ew
}

func TestASymmetricGraphGoesOverAsItLies(t *testing.T) {
	g := planted(t, 4)
	weights := make([]int32, g.NumVertices())
	for v := range weights {
		weights[v] = int32(v + 1)
	}
	ends, all, vw, ew := parhipOf(t, g, nil, weights)
	if !slices.Equal(ends, g.Indptr) || !bytes.Equal(mem.Bytes(all), mem.Bytes(g.Indices)) ||
		!slices.Equal(vw, weights) || ew != nil {
		t.Error("the file is not the graph")
	}
	// and the other way, which takes any graph, comes to the same
	file := &bytes.Buffer{}
	w := newParHIP(file)
	w.merged(partition.Edges{Indptr: g.Indptr, Indices: g.Indices}, weights)
	lies := &bytes.Buffer{}
	x := newParHIP(lies)
	x.asItLies(g, weights)
	if err := errors.Join(w.err, x.err, w.out.Flush(), x.out.Flush()); err != nil ||
		!bytes.Equal(file.Bytes(), lies.Bytes()) {
		t.Errorf("merged and streamed files differ (%v)", err)
	}
}

func TestOtherGraphsGetBothDirections(t *testing.T) {
	// 0->1 twice, 1->0, 2->1, a loop at 2, and 3 alone
	g, err := graph.FromEdges(4, []graph.VertexID{0, 0, 1, 2, 2}, []graph.VertexID{1, 1, 0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	ends, all, _, ew := parhipOf(t, g, nil, make([]int32, 4))
	if !slices.Equal(ends, []int64{0, 1, 3, 4, 4}) || !slices.Equal(all, []int32{1, 0, 2, 1}) ||
		!slices.Equal(ew, []int32{3, 3, 1, 1}) {
		t.Errorf("%v %v %v", ends, all, ew)
	}
	weights := make([]int32, g.NumEdges())
	for e := range weights {
		weights[e] = 10
	}
	if _, _, _, ew = parhipOf(t, g, weights, make([]int32, 4)); !slices.Equal(ew,
		[]int32{30, 30, 10, 10}) {
		t.Errorf("weights of edges %v", ew)
	}
}

func TestSymmetryIsSeen(t *testing.T) {
	g := planted(t, 3)
	if !symmetric(g) {
		t.Error("a symmetric graph is not seen")
	}
	last := len(g.Indices) - 1
	one := g.Indices[last]
	for name, u := range map[string]graph.VertexID{"another end": one - 1, "a loop": 149} {
		if g.Indices[last] = u; symmetric(g) {
			t.Errorf("%s passes", name)
		}
	}
}

// installed skips the test where there is no KaMinPar.
func installed(t *testing.T) {
	t.Helper()
	if _, err := Find(); err != nil {
		t.Skip(err)
	}
}

func method(t *testing.T, threads int) partition.Func {
	dir := t.TempDir()
	return KWay(threads, func() (string, error) { return dir, nil })
}

func TestItFindsClustersAndRepeats(t *testing.T) {
	installed(t)
	g := planted(t, 8)
	w, err := partition.TrainingWeights(g, graph.Split{
		Train: []graph.VertexID{1, 60, 110, 170, 220, 280, 330, 390},
	})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	o := partition.Options{Parts: 4, Seed: 7, Note: func(line string) { said = append(said, line) }}
	part, err := method(t, 1)(g, w, o)
	if err != nil {
		t.Fatal(err)
	}
	r := partition.Measure(g, part, 4, graph.Split{})
	if r.CutFraction > 0.10 || r.VertexImbalance > 1.06 || r.EdgeImbalance > 1.06 {
		t.Errorf("%s", r.Cut())
	}
	again, err := method(t, 1)(g, w, o)
	if err != nil || !slices.Equal(part, again) {
		t.Errorf("another run gives other parts (%v)", err)
	}
	if all := strings.Join(said, "\n"); strings.Contains(all, "different parts in each run") {
		t.Errorf("one thread is said not to repeat: %s", all)
	}
	if _, err = method(t, 2)(g, w, o); err != nil ||
		!strings.Contains(strings.Join(said, "\n"), "different parts in each run") {
		t.Errorf("two threads are not said to differ (%v): %q", err, said)
	}
}

func TestEdgeWeightsMoveTheCut(t *testing.T) {
	installed(t)
	// a ring of 64 whose edges are dear but for two
	var src, dst []graph.VertexID
	for v := range 64 {
		src = append(src, graph.VertexID(v), graph.VertexID((v+1)%64))
		dst = append(dst, graph.VertexID((v+1)%64), graph.VertexID(v))
	}
	g, err := graph.FromEdges(64, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	cheap := func(a, b int) bool {
		return min(a, b) == 11 && max(a, b) == 12 || min(a, b) == 43 && max(a, b) == 44
	}
	weights := make([]int32, len(g.Indices))
	for v := range 64 {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			weights[e] = 1000
			if cheap(v, int(g.Indices[e])) {
				weights[e] = 1
			}
		}
	}
	part, err := method(t, 1)(g, partition.Weights{Edge: weights}, partition.Options{Parts: 2})
	if err != nil {
		t.Fatal(err)
	}
	for v := range 64 {
		if u := (v + 1) % 64; (part[v] != part[u]) != cheap(v, u) {
			t.Errorf("edge %d-%d: parts %d and %d", v, u, part[v], part[u])
		}
	}
}

func TestWithoutItTheErrorNamesTheWayOut(t *testing.T) {
	t.Setenv("HALOGNN_KAMINPAR_PYTHON", filepath.Join(t.TempDir(), "python"))
	_, err := method(t, 1)(planted(t, 1), partition.Weights{}, partition.Options{Parts: 2})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "pip install kaminpar") ||
		!strings.Contains(err.Error(), "--method ldg") {
		t.Errorf("got %v", err)
	}
}

func TestAKilledProcessIsAnError(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	script := "#!/bin/sh\n[ $# -gt 2 ] || { echo 0; exit; }\nkill -9 $$\n"
	if err := os.WriteFile(python, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HALOGNN_KAMINPAR_PYTHON", python)
	_, err := method(t, 1)(planted(t, 1), partition.Weights{}, partition.Options{Parts: 2})
	if err == nil || !strings.Contains(err.Error(), "killed") ||
		!strings.Contains(err.Error(), "--method ldg") {
		t.Errorf("got %v", err)
	}
}

func TestAFullDiskIsAnError(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	g := planted(t, 4)
	if err := writeParHIP("/dev/full", g, nil, make([]int32, g.NumVertices())); err == nil ||
		!strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v", err)
	}
}
