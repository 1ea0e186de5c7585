package partition

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
)

// edges builds a graph from (source, destination) pairs.
func edges(t testing.TB, n int, pairs ...[2]int) *graph.CSC {
	t.Helper()
	src, dst := make([]graph.VertexID, len(pairs)), make([]graph.VertexID, len(pairs))
	for i, p := range pairs {
		src[i], dst[i] = graph.VertexID(p[0]), graph.VertexID(p[1])
	}
	g, err := graph.FromEdges(n, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// random returns a directed graph of n vertices and m edges with heavy-tailed degrees, loops and
// duplicates, and a split.
func random(t testing.TB, rng *rand.Rand, n, m int) (*graph.CSC, graph.Split) {
	pairs := make([][2]int, m)
	for i := range pairs {
		hub := rng.Float64()
		pairs[i] = [2]int{rng.IntN(n), int(hub * hub * float64(n))}
	}
	var s graph.Split
	for v := range n {
		switch id := graph.VertexID(v); rng.IntN(5) {
		case 0:
			s.Train = append(s.Train, id)
		case 1:
			s.Valid = append(s.Valid, id)
		case 2:
			s.Test = append(s.Test, id)
		}
	}
	return edges(t, n, pairs...), s
}

// clusters returns an undirected graph of equal clusters of 40 vertices: dense inside, and with
// bridges between clusters a and b as often as bridges says.
func clusters(t testing.TB, rng *rand.Rand, count int, bridges func(a, b int) int) *graph.CSC {
	const size = 40
	var pairs [][2]int
	both := func(u, v int) { pairs = append(pairs, [2]int{u, v}, [2]int{v, u}) }
	for a := range count {
		for range 10 * size {
			both(a*size+rng.IntN(size), a*size+rng.IntN(size))
		}
		for b := range a {
			for range bridges(a, b) {
				both(a*size+rng.IntN(size), b*size+rng.IntN(size))
			}
		}
	}
	return edges(t, count*size, pairs...)
}

func imbalance(weights, part []int32, parts int) float64 {
	sum, total := make([]int64, parts), int64(0)
	for v, k := range part {
		sum[k] += int64(weights[v])
		total += int64(weights[v])
	}
	return float64(slices.Max(sum)) * float64(parts) / float64(total)
}

func TestMethodsGiveEveryVertexAPartAndEveryPartAVertex(t *testing.T) {
	star := make([][2]int, 30)
	for i := range star {
		star[i] = [2]int{i + 1, 0}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	dense, split := random(t, rng, 60, 600)
	for _, c := range []struct {
		name  string
		g     *graph.CSC
		split graph.Split
	}{
		{"one vertex", edges(t, 1), graph.Split{}},
		{"no edges", edges(t, 17), graph.Split{}},
		{"one loop", edges(t, 2, [2]int{0, 0}), graph.Split{}},
		{"star", edges(t, 31, star...), graph.Split{Train: []graph.VertexID{0, 1, 2}}},
		{"dense", dense, split},
	} {
		w, err := TrainingWeights(c.g, c.split)
		if err != nil {
			t.Fatal(err)
		}
		n := c.g.NumVertices()
		for name := range Methods() {
			for _, parts := range []int{1, 2, 3, n/2 + 1, n - 1, n} {
				if parts < 1 || parts > n {
					continue
				}
				part, err := Run(Methods(), c.g, w, Options{Method: name, Parts: parts, Seed: 7})
				if err != nil {
					t.Fatalf("%s, %s, %d parts: %v", c.name, name, parts, err)
				}
				size := make([]int, parts)
				for _, k := range part {
					size[k]++
				}
				if len(part) != n || slices.Min(size) == 0 {
					t.Errorf("%s, %s: %d vertices in %d parts of sizes %v", c.name, name, len(part),
						parts, size)
				}
			}
		}
	}
}

func TestMethodsAreDeterministicAndBalanced(t *testing.T) {
	for seed := range uint64(3) {
		g, s := random(t, rand.New(rand.NewPCG(seed, 2)), 3000, 40000)
		w, err := TrainingWeights(g, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"random", "ldg"} {
			for _, parts := range []int{2, 5, 16} {
				o := Options{Method: name, Parts: parts, Seed: seed}
				part, err := Run(Methods(), g, w, o)
				if err != nil {
					t.Fatal(err)
				}
				if again, _ := Run(Methods(), g, w, o); !reflect.DeepEqual(part, again) {
					t.Errorf("seed %d: %s into %d parts differs between two calls", seed, name,
						parts)
				}
				for c, weights := range w.Vertex {
					if x := imbalance(weights, part, parts); x > 1.10 {
						t.Errorf("seed %d: %s into %d parts: constraint %d has imbalance %.3f",
							seed, name, parts, c, x)
					}
				}
			}
		}
	}
}

func TestRandomDependsOnItsSeed(t *testing.T) {
	g := edges(t, 100)
	a, _ := Random(g, Weights{}, Options{Parts: 4, Seed: 1})
	b, _ := Random(g, Weights{}, Options{Parts: 4, Seed: 2})
	if reflect.DeepEqual(a, b) {
		t.Error("seeds 1 and 2 give the same partition")
	}
}

func TestContiguousCutsRangesOfEqualSize(t *testing.T) {
	part, err := Contiguous(edges(t, 10), Weights{}, Options{Parts: 4})
	if want := []int32{0, 0, 0, 1, 1, 2, 2, 2, 3, 3}; err != nil || !reflect.DeepEqual(part, want) {
		t.Errorf("got %v, %v, want %v", part, err, want)
	}
}

func TestLDGFindsClusters(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	g := clusters(t, rng, 16, func(a, b int) int { return 2 })
	// Ids that say nothing of the cluster.
	shuffle := make([]graph.VertexID, g.NumVertices())
	for i, v := range rng.Perm(len(shuffle)) {
		shuffle[i] = graph.VertexID(v)
	}
	g = graphtest.Relabel(g, shuffle)
	part, err := LDG(g, Weights{}, Options{Parts: 4})
	if err != nil {
		t.Fatal(err)
	}
	if r := Measure(g, part, 4, graph.Split{}); r.CutFraction > 0.10 {
		t.Errorf("cut %.3f; the planted one is %.3f, a random one 0.75", r.CutFraction,
			16.*12/2*2/(16*400+16*15/2*2))
	}
}

func TestLDGAvoidsHeavyEdges(t *testing.T) {
	// A ring of 8 whose every other edge is heavy: only light ones need be cut.
	var pairs [][2]int
	for v := range 8 {
		pairs = append(pairs, [2]int{v, (v + 1) % 8}, [2]int{(v + 1) % 8, v})
	}
	g := edges(t, 8, pairs...)
	w := Weights{Edge: make([]int32, g.NumEdges())}
	for v := range 8 {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			w.Edge[e] = 1
			if int(g.Indices[e])/2 == v/2 {
				w.Edge[e] = 100
			}
		}
	}
	part, err := LDG(g, w, Options{Parts: 4})
	if err != nil {
		t.Fatal(err)
	}
	for v := 0; v < 8; v += 2 {
		if part[v] != part[v+1] {
			t.Errorf("the heavy edge %d-%d is cut: %v", v, v+1, part)
		}
	}
}

func TestCheckNamesEveryFault(t *testing.T) {
	g := edges(t, 3, [2]int{0, 1}, [2]int{1, 2})
	for _, c := range []struct {
		name string
		w    Weights
		o    Options
		want string
	}{
		{"no parts", Weights{}, Options{}, "cannot make 0 parts"},
		{"more parts than vertices", Weights{}, Options{Parts: 4},
			"cannot make 4 parts of 3 vertices; ask for at most 3"},
		{"absurdly many parts", Weights{}, Options{Parts: 1 << 20},
			"cannot make 1048576 parts; ask for at most 16384"},
		{"short weights", Weights{Vertex: [][]int32{{1, 1}}}, Options{Parts: 2},
			"constraint 0 has 2 weights, but 3 vertices need one weight each"},
		{"negative weight", Weights{Vertex: [][]int32{{1, -1, 1}}}, Options{Parts: 2},
			"vertex 1 has weight -1"},
		{"short edge weights", Weights{Edge: []int32{1}}, Options{Parts: 2},
			"1 edge weights for 2 edges"},
		{"edge weight 0", Weights{Edge: []int32{1, 0}}, Options{Parts: 2}, "edge 1 has weight 0"},
		{"imbalance without constraint", Weights{}, Options{Parts: 2, Imbalance: []float32{1.1}},
			"Options.Imbalance has 1 numbers, but there are 0 constraints"},
		{"imbalance below 1", Weights{Vertex: [][]int32{{1, 1, 1}}},
			Options{Parts: 2, Imbalance: []float32{0.9}}, "imbalance 0.9 of constraint 0"},
	} {
		for name := range Methods() {
			c.o.Method = name
			if _, err := Run(Methods(), g, c.w, c.o); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: got %v, want %q", c.name, name, err, c.want)
			}
		}
	}
	_, err := Run(Methods(), g, Weights{}, Options{Method: "mets", Parts: 1})
	want := `partitioning method "mets" is unknown; choose one of ` +
		strings.Join(slices.Sorted(maps.Keys(Methods())), ", ")
	if fmt.Sprint(err) != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestTrainingWeights(t *testing.T) {
	g := edges(t, 3, [2]int{0, 1}, [2]int{2, 1})
	w, err := TrainingWeights(g,
		graph.Split{Train: []graph.VertexID{2}, Valid: []graph.VertexID{0},
			Test: []graph.VertexID{1}})
	if want := [][]int32{{1, 1, 1}, {0, 0, 1}, {1, 1, 0}, {0, 2, 0}}; err != nil ||
		!reflect.DeepEqual(w.Vertex, want) {
		t.Errorf("got %v, %v, want %v", w.Vertex, err, want)
	}
	if _, err := TrainingWeights(g, graph.Split{Valid: []graph.VertexID{3}}); err == nil {
		t.Error("a vertex out of range was accepted")
	}
}
