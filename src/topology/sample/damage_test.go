package sample

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Arrays that break the rules of a CSC give an error that names the array and the vertex: with one
// worker or several, either vertex map, Sample or Draw. Nothing reads outside the
// arrays, and the sampler can be used again.
func TestDamagedTopologyIsNamed(t *testing.T) {
	const n = 120
	whole := randomTopology(rand.New(rand.NewPCG(11, 0)), n)
	edges := whole.Graph.NumEdges()
	busy := graph.VertexID(1)
	for whole.Graph.InDegree(busy) < 64 { // a row that every fanout has to choose from
		busy++
	}
	row := whole.Graph.Indptr[busy]
	for _, c := range []struct {
		name, array, want string
		damage            func(g *graph.CSC)
	}{
		{"a negative source", graph.Indices, "comes from vertex -1", func(g *graph.CSC) {
			for e := row; e < g.Indptr[busy+1]; e++ {
				g.Indices[e] = -1
			}
		}},
		{"a source beyond the last vertex", graph.Indices, "comes from vertex 120",
			func(g *graph.CSC) {
				for e := row; e < g.Indptr[busy+1]; e++ {
					g.Indices[e] = n
				}
			}},
		{"the largest id", graph.Indices, "comes from vertex 2147483647", func(g *graph.CSC) {
			for e := row; e < g.Indptr[busy+1]; e++ {
				g.Indices[e] = 1<<31 - 1
			}
		}},
		{"a row that ends before it begins", graph.Indptr, "indptr falls",
			func(g *graph.CSC) { g.Indptr[busy] = edges }},
		{"a row that begins below 0", graph.Indptr, "at edges -5 to",
			func(g *graph.CSC) { g.Indptr[busy] = -5 }},
		{"a row that ends beyond the edges", graph.Indptr, "there are",
			func(g *graph.CSC) { g.Indptr[busy+1] = 1 << 40 }},
		{"a row of more edges than a block can have", graph.Indptr, "there are",
			func(g *graph.CSC) { g.Indptr[busy+1] = 1 << 62 }},
	} {
		for _, o := range []Options{
			{}, {Map: MapHash}, {Workers: 3, minParallel: 1},
			{Workers: 3, minParallel: 1, Map: MapHash}, {Spec: labor()},
			{Spec: labor(), Workers: 3, minParallel: 1, Map: MapHash},
		} {
			for _, fanouts := range [][]int{{5, 3}, {All, 2}, {All, All}} {
				t.Run(fmt.Sprintf("%s, %s, map %d, %d workers, %v", c.name, o.kind(), o.Map,
					o.Workers, fanouts),
					func(t *testing.T) {
						topology := &Topology{Original: whole.Original, Graph: graph.CSC{
							Indptr:  slices.Clone(whole.Graph.Indptr),
							Indices: slices.Clone(whole.Graph.Indices),
						}}
						c.damage(&topology.Graph)
						o.Fanouts = fanouts
						s := mustNew(t, topology, o)
						check := func(err error) {
							t.Helper()
							var bad *graph.LayoutError
							if !errors.As(err, &bad) || bad.Array != c.array ||
								!strings.Contains(err.Error(), c.want) {
								t.Errorf("%v; want %q, of %s", err, c.want, c.array)
							}
							if !strings.Contains(fmt.Sprint(err),
								fmt.Sprint("vertex ", busy, ":")) &&
								!strings.Contains(fmt.Sprint(err),
									fmt.Sprint("vertex ", busy-1, ":")) {
								t.Errorf("%v; want it to name vertex %d, or the one before, which "+
									"shares a row pointer", err, busy)
							}
						}
						var mb Minibatch
						defer mb.Free()
						check(s.Sample(&mb, []graph.VertexID{busy, 0, busy + 1}, Key{Step: 3}))
						var a Answer
						defer a.Free()
						err := (&Remote{fused: s}).Answer(&a, []graph.VertexID{busy, 0}, []int{2},
							[]uint64{3}, &Asking{Fanout: fanouts[0]})
						if c.array == graph.Indptr {
							check(err)
						}

						copy(topology.Graph.Indptr, whole.Graph.Indptr)
						copy(topology.Graph.Indices, whole.Graph.Indices)
						want := Reference(topology, o.Spec, []graph.VertexID{busy, 4}, Key{})
						defer want.Free()
						if err := s.Sample(&mb, want.Seeds, Key{}); err != nil ||
							difference(&mb, want) != "" {
							t.Errorf("with the topology restored: %v %s", err,
								difference(&mb, want))
						}
					})
			}
		}
	}
}

// A panic that the topology does not explain is a bug of the program and goes on, with its stack.
func TestPanicOfASoundTopologyStays(t *testing.T) {
	s := mustNew(t, randomTopology(rand.New(rand.NewPCG(12, 0)), 50), Options{Spec: Neighbours(3)})
	err := s.contain(func() error { panic("ours") })
	if p := (*mem.Panic)(nil); !errors.As(err, &p) || p.Value != "ours" {
		t.Errorf("%v", err)
	}
}

// A topology file that shrinks while it is mapped ends the call with an error, not the process,
// whichever goroutine reads it.
func TestShrunkTopologyFile(t *testing.T) {
	const n, degree = 4096, 8
	for _, workers := range []int{1, 2} {
		path := filepath.Join(t.TempDir(), "indices")
		if err := os.WriteFile(path, make([]byte, 4*n*degree), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := mem.Map(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		topology := &Topology{Original: make([]int32, n)}
		bytes := unsafe.Pointer(unsafe.SliceData(f.Bytes()))
		topology.Graph.Indices = unsafe.Slice((*graph.VertexID)(bytes), n*degree)
		seeds := make([]graph.VertexID, n)
		for v := range n + 1 {
			topology.Graph.Indptr = append(topology.Graph.Indptr, int64(v*degree))
			if v < n {
				seeds[v] = graph.VertexID(v)
			}
		}
		s := mustNew(t, topology, Options{Spec: Neighbours(4), Workers: workers, minParallel: 1})
		if err := os.Truncate(path, 4096); err != nil {
			t.Fatal(err)
		}
		var mb Minibatch
		if err := s.Sample(&mb, seeds, Key{}); !errors.Is(err, mem.ErrShrank) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%d workers: %v", workers, err)
		}
		mb.Free()
	}
}
