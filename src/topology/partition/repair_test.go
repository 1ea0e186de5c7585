package partition

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

func TestRepairBringsEverythingWithinLimits(t *testing.T) {
	for seed := range uint64(5) {
		g, s := random(t, rand.New(rand.NewPCG(seed, 4)), 2000, 20000)
		w, err := TrainingWeights(g, s)
		if err != nil {
			t.Fatal(err)
		}
		for name, start := range map[string]func(v int) int32{
			"all in one part":              func(int) int32 { return 0 },
			"two parts empty":              func(v int) int32 { return int32(v % 6) },
			"hubs together, rest together": func(v int) int32 { return int32(min(v*16/2000, 7)) },
		} {
			part := make([]int32, g.NumVertices())
			for v := range part {
				part[v] = start(v)
			}
			o := Options{Parts: 8}
			Repair(g, w, o, part)
			for c, weights := range w.Vertex {
				if x := imbalance(weights, part, 8); x > 1.06 {
					t.Errorf("seed %d, %s: constraint %d has imbalance %.3f", seed, name, c, x)
				}
			}
			if moves := Repair(g, w, o, part); moves != 0 {
				t.Errorf("seed %d, %s: a repaired partition is changed by %d moves", seed, name,
					moves)
			}
		}
	}
}

// Every part is full of vertices, so that only swaps even out what they weigh; and of two kinds, so
// that only those of one kind can be swapped.
func TestBalanceSwapsWherePartsAreFull(t *testing.T) {
	const n, parts = 800, 8
	g, _ := random(t, rand.New(rand.NewPCG(1, 4)), n, 4000)
	w := Weights{Vertex: [][]int32{make([]int32, n), make([]int32, n), make([]int32, n)}}
	part := make([]int32, n)
	for v := range n {
		w.Vertex[v%2][v] = 1
		w.Vertex[2][v] = 1 + int32(v/2%4) // 1 to 4
		if part[v] = int32(v * parts / n); v/2%4 == 3 && part[v] == 0 {
			w.Vertex[2][v] = 9
		}
	}
	o := Options{Parts: parts, Imbalance: []float32{1, 1, 1.01}}
	if moves := Balance(g, w, o, part); moves == 0 {
		t.Error("no vertex moved")
	}
	for c, x := range Imbalances(n, w, o, part) {
		if x > float64(o.Imbalance[c]) {
			t.Errorf("constraint %d: %.3f", c, x)
		}
	}
	if moves := Balance(g, w, o, part); moves != 0 {
		t.Errorf("%d more vertices moved", moves)
	}
	// one vertex that is more than a part may hold stays where it is, and nothing hangs
	w.Vertex[2][0] = 1 << 20
	Balance(g, w, o, part)
}

func TestRefineLowersTheCutWithinLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	g := clusters(t, rng, 8, func(int, int) int { return 10 })
	w, err := TrainingWeights(g, graph.Split{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Parts: 4}
	part, err := Random(g, w, o)
	if err != nil {
		t.Fatal(err)
	}
	before := Measure(g, part, 4, graph.Split{})
	Refine(g, w, o, part)
	after := Measure(g, part, 4, graph.Split{})
	if after.CutFraction > 0.8*before.CutFraction || after.VertexImbalance > 1.06 ||
		after.EdgeImbalance > 1.06 {
		t.Errorf("%s, before %s", after.Cut(), before.Cut())
	}
}

func TestRepairLeavesBalancedPartsAlone(t *testing.T) {
	g := edges(t, 4, [2]int{0, 1}, [2]int{2, 3})
	part := []int32{0, 1, 0, 1}
	if moves := Repair(g, Weights{}, Options{Parts: 2}, part); moves != 0 {
		t.Errorf("%d moves, parts %v", moves, part)
	}
}

func TestRenumberPutsClosePartsTogether(t *testing.T) {
	// Eight clusters in a hierarchy: pairs closest, then fours.
	const count = 8
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 5))
		g := clusters(t, rng, count, func(a, b int) int {
			switch {
			case a/2 == b/2:
				return 60
			case a/4 == b/4:
				return 20
			}
			return 2
		})
		label := rng.Perm(count)
		part := make([]int32, g.NumVertices())
		for v := range part {
			part[v] = int32(label[v/40])
		}
		Renumber(g, Weights{}, part, count)
		at := make([]int32, count)
		for c := range at {
			at[c] = part[c*40]
			for v := range 40 {
				if part[c*40+v] != at[c] {
					t.Fatalf("seed %d: cluster %d is torn apart", seed, c)
				}
			}
		}
		for a := range count {
			for b := range a {
				if (a/2 == b/2) != (at[a]/2 == at[b]/2) || (a/4 == b/4) != (at[a]/4 == at[b]/4) {
					t.Fatalf("seed %d: clusters 0 to 7 became parts %v", seed, at)
				}
			}
		}
	}
}

func TestRenumberOnlyRenames(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 6))
		parts := 1 + rng.IntN(15)
		g, _ := random(t, rng, 200, 1000)
		old := make([]int32, 200)
		for v := range old {
			old[v] = int32(rng.IntN(parts))
		}
		renamed := Renumber(g, Weights{}, slices.Clone(old), parts)
		to, used := map[int32]int32{}, map[int32]bool{}
		for v, k := range old {
			if name, ok := to[k]; !ok && !used[renamed[v]] && int(renamed[v]) < parts {
				to[k], used[renamed[v]] = renamed[v], true
			} else if name != renamed[v] {
				t.Fatalf("seed %d: part %d became both %d and %d", seed, k, name, renamed[v])
			}
		}
	}
}

func TestOrderKeepsPartsContiguousAndHotVerticesFirst(t *testing.T) {
	part := []int32{1, 0, 1, 0, 0, 1}
	newID, offsets := Order(part, 3, []float32{1, 2, 3, 2, 9, 1})
	if want := []graph.VertexID{4, 1, 3, 2, 0, 5}; !reflect.DeepEqual(newID, want) {
		t.Errorf("new ids %v, want %v", newID, want)
	}
	if want := []int64{0, 3, 6, 6}; !reflect.DeepEqual(offsets, want) {
		t.Errorf("offsets %v, want %v", offsets, want)
	}
	got := InDegrees(edges(t, 3, [2]int{0, 1}, [2]int{2, 1}), new(graph.Columns))
	if !reflect.DeepEqual(got, []int64{0, 2, 0}) {
		t.Errorf("in-degrees %v", got)
	}
}

func TestCompletePutsVerticesWhereTheirNeighboursAre(t *testing.T) {
	// 0..3 are placed; 4 reads two of part 1 and one of part 0, 5 reads 4, 6 reads nothing, and 7
	// would like part 0, which is full
	g := edges(t, 8, [2]int{0, 4}, [2]int{2, 4}, [2]int{3, 4}, [2]int{4, 5}, [2]int{0, 7})
	part := []int32{0, 0, 1, 0, -1, -1, -1, -1}
	part[3] = 1
	Complete(g, Options{Parts: 2}, part)
	if want := []int32{0, 0, 1, 1, 1, 1, 0, 0}; !slices.Equal(part, want) {
		t.Errorf("got %v, want %v", part, want)
	}
	full := []int32{0, 0, 0, 0, 1, 1, 1, -1}
	Complete(g, Options{Parts: 2}, full)
	if full[7] != 1 {
		t.Errorf("the vertex that reads a full part went into part %d", full[7])
	}
	empty := []int32{0, 0, 0, 0, 0, 0, 0, 0}
	Complete(g, Options{Parts: 2}, empty)
	if !slices.Contains(empty, 1) {
		t.Error("a part has no vertex")
	}
}

// Swaps are bounded, however many parts exceed a limit.
func TestExchangeEnds(t *testing.T) {
	const parts = 2200
	part, w := make([]int32, 4*parts), make([]int32, 4*parts)
	l := &load{[]Constraint{{Weights: w, Mean: 22, Limit: 23}}, make([]int64, parts)}
	for v := range part { // two swaps would relieve each heavy part
		part[v], w[v] = int32(v%parts), 1
		if v%2 == 0 {
			w[v] = 10
		}
		l.add(v, v%parts, 1)
	}
	if swaps := exchange(l, part); swaps != exchanges {
		t.Errorf("%d swaps, want %d", swaps, exchanges)
	}
}
