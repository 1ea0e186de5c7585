package access

import (
	"math"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/mem/memtest"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
)

// Every part is ordered by its own minibatches, not by those of part 0.
func TestOwnPartsAreAnalysedByThemselves(t *testing.T) {
	r := graphtest.Random(t)
	const n, parts = 300, 3
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 2000)...)
	m := mustNew(t, g, Options{})
	part := make([]int32, n)
	train := make([][]graph.VertexID, parts)
	for v := range part {
		part[v] = int32(r.IntN(parts))
		if k := part[v]; k < 2 && r.IntN(3) == 0 { // part 2 has no seeds
			train[k] = append(train[k], graph.VertexID(v))
		}
	}
	fanouts, batch := []int{3, 2}, 7
	steps := max((len(train[0])+batch-1)/batch, (len(train[1])+batch-1)/batch)
	heat := memtest.Must[float32](t)(m.OwnParts(part, train, batch, fanouts))
	differ := 0
	first := memtest.Must[float32](t)(m.Inclusion(train[0],
		float64(len(train[0]))/float64(steps), fanouts))
	for k, seeds := range train {
		want := make([]float32, n)
		if len(seeds) > 0 {
			want = memtest.Must[float32](t)(
				m.Inclusion(seeds, float64(len(seeds))/float64(steps), fanouts))
		}
		for v := range part {
			if int(part[v]) == k && heat[v] != want[v] {
				t.Fatalf("vertex %d of part %d: %g, by its own minibatches %g", v, k, heat[v],
					want[v])
			}
			if part[v] == 1 && heat[v] != first[v] {
				differ++
			}
		}
	}
	if differ == 0 {
		t.Error("part 1 is ordered as the minibatches of part 0 would have it")
	}
	for name, err := range map[string]error{
		"batch":   second(m.OwnParts(part, train, 0, fanouts)),
		"parts":   second(m.OwnParts(part[1:], train, batch, fanouts)),
		"fanouts": second(m.OwnParts(part, train, batch, nil)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second(_ any, err error) error { return err }

// HotRows returns the part's rows in order of the reader's accesses, or, without seeds, in order of
// degrees.
func TestHotRows(t *testing.T) {
	m, r := reading(t, 0)
	p := memtest.Must[float32](t)(m.Reads(r))
	part := r.Local[1]
	for _, count := range []int{0, 10, 50, 1000} {
		rows := memtest.Must[int32](t)(m.HotRows(r, part, count))
		if len(rows) != min(count, int(part.End-part.First)) {
			t.Fatalf("%d rows, asked for %d of %d", len(rows), count, part.End-part.First)
		}
		last := float32(math.Inf(1))
		coldest := float32(0)
		for _, row := range rows {
			x := p[part.First+graph.VertexID(row)]
			if x > last {
				t.Errorf("row %d is read with %g, the one before with %g", row, x, last)
			}
			last, coldest = x, x
		}
		for v := part.First; v < part.End; v++ {
			if p[v] > coldest && len(rows) > 0 && !slices.Contains(rows, int32(v-part.First)) {
				t.Errorf("row %d is read with %g and not among the hottest %d, of which one has %g",
					v-part.First, p[v], count, coldest)
			}
		}
	}
	r.Sources = nil
	rows := memtest.Must[int32](t)(m.HotRows(r, part, 1000))
	if !slices.IsSortedFunc(rows, func(a, b int32) int {
		return m.out.InDegree(part.First+graph.VertexID(b)) -
			m.out.InDegree(part.First+graph.VertexID(a))
	}) {
		t.Error("without seeds, rows are not in order of out-degree")
	}
	if rows, err := m.HotRows(r, Range{5, 2}, 1); err == nil {
		mem.Free(rows)
		t.Error("a range that falls was taken")
	}
}
