package partition

import (
	"slices"
	"testing"

	"halognn/src/graph"
)

// A report counts vertices of each type, and what each relation cuts.
func TestTypesAreMeasured(t *testing.T) {
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
	w, err := TrainingWeights(g, graph.Split{})
	if err != nil {
		t.Fatal(err)
	}
	part, err := LDG(g, w, Options{Parts: parts, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := Measure(g, part, parts, graph.Split{})
	r.MeasureTypes(g, &c, &schema, part)
	most := make([]int, parts)
	for _, of := range part[:a] {
		most[of]++
	}
	cut := r.Relations[0].Cut + r.Relations[1].Cut
	if r.Types[0].Count != a || r.Types[1].Count != b || r.Relations[0].Count != 400 ||
		r.Relations[1].Count != b || cut != r.Total.Cut ||
		r.Types[0].Imbalance != float64(slices.Max(most)*parts)/a {
		t.Errorf("%+v %+v, of %d edges that are cut", r.Types, r.Relations, r.Total.Cut)
	}
}
