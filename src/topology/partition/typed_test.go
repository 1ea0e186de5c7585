package partition

import (
	"testing"

	"halognn/src/topology/graph"
)

// Vertices of the type that is trained, and bytes of rows, are spread over the parts though
// neighbours draw them together, and a report counts what each relation cuts.
func TestTypesAreBalanced(t *testing.T) {
	schema := graph.Schema{Types: []string{"a", "b"}, Relations: []graph.Relation{
		{Source: "a", Name: "x", Target: "b"}, {Source: "b", Name: "y", Target: "b"}}}
	const a, b, parts = 40, 80, 4
	indptr, columns := []int64{0}, []int64{0}
	var indices []graph.VertexID
	for v := range a + b {
		if v >= a { // all of type a are neighbours of the same ten, and these of each other
			for u := 0; u < a && v < a+10; u++ {
				indices = append(indices, graph.VertexID(u))
			}
			columns = append(columns, int64(len(indices)))
			indices = append(indices, graph.VertexID(a+(v-a+1)%b))
			columns = append(columns, int64(len(indices)))
		}
		indptr = append(indptr, int64(len(indices)))
	}
	g := &graph.CSC{Indptr: indptr, Indices: indices}
	c, err := graph.NewColumns(&schema, []int64{0, a, a + b}, columns)
	if err != nil {
		t.Fatal(err)
	}
	imbalances := func(types bool) (trained float64, r Report) {
		w, err := TrainingWeights(g, graph.Split{})
		if err != nil {
			t.Fatal(err)
		}
		w.Vertex[InEdges] = make([]int32, a+b)
		if types {
			w.Vertex = append(w.Vertex, TypeWeights(&c, a+b, 0, []int64{512, 64})...)
		}
		part, err := LDG(g, w, Options{Parts: parts, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		r = Measure(g, part, parts, graph.Split{})
		r.MeasureTypes(g, &c, &schema, part)
		return r.Types[0].Imbalance, r
	}
	without, _ := imbalances(false)
	with, r := imbalances(true)
	if !(with <= 1.11 && without > with) {
		t.Errorf("the largest part has %.2f of the mean of what is trained, %.2f without weights "+
			"of types", with, without)
	}
	cut := r.Relations[0].Cut + r.Relations[1].Cut
	if r.Types[0].Count != a || r.Types[1].Count != b || r.Relations[0].Count != 400 ||
		r.Relations[1].Count != b || cut != r.Total.Cut {
		t.Errorf("%+v %+v, of %d edges that are cut", r.Types, r.Relations, r.Total.Cut)
	}
	if w := rowWeights(1<<28, []int64{4000, 12, 0}); w[0] != 7 || w[1] != 1 || w[2] != 0 {
		t.Errorf("weights of rows of many vertices: %v", w)
	}
	if w := TypeWeights(&c, a+b, 0, []int64{512, 64}); w[0][a] != 0 || w[1][0] != 8 ||
		w[1][a] != 1 {
		t.Errorf("weights %v", w)
	}
}
