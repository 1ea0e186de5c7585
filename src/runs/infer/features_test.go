package infer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/topology/graph"
)

// Columns of features are matched by their names: in another order the weights follow them, and
// missing, new or renamed ones are refused by name. Without names on either side they are counted,
// as before.
func TestFeaturesAreMatchedByName(t *testing.T) {
	axes := func() map[string]int { return map[string]int{"w": 1} }
	for _, c := range []struct {
		trained, parts []string
		want           []float32 // the weights, 1 2 3 of the trained columns
		fault          string
	}{
		{[]string{"a", "b", "c"}, []string{"a", "b", "c"}, []float32{1, 2, 3}, ""},
		{[]string{"a", "b", "c"}, []string{"c", "a", "b"}, []float32{3, 1, 2}, ""},
		{nil, []string{"c", "a", "b"}, []float32{1, 2, 3}, ""},
		{[]string{"a", "b", "c"}, nil, []float32{1, 2, 3}, ""},
		{[]string{"a", "b", "c"}, []string{"a", "b", "d"}, nil, "c missing, and d not known"},
		{[]string{"a", "b", "c"}, []string{"a", "b"}, nil, "c missing"},
		{[]string{"a", "b", "c"}, []string{"a", "b", "c", "d"}, nil, "d not known"},
	} {
		for _, kind := range []string{"", "user"} {
			name := map[bool]string{true: "w", false: "project." + kind + ".weight"}[kind == ""]
			m := &Model{Weights: []nn.Tensor{{Name: name, Shape: []int{1, 3}, Data: []float32{1, 2,
				3}}, {Name: "other", Shape: []int{3}, Data: []float32{1, 2, 3}}}}
			s := &shard.Shards{Meta: shard.Meta{Names: c.parts}}
			if kind != "" {
				s.Meta = shard.Meta{Schema: graph.Schema{Types: []string{kind}},
					Tables: []dataset.Table{{Names: c.parts}}}
			}
			if c.trained != nil {
				m.Features = map[string][]string{kind: c.trained}
			}
			_, err := m.matchFeatures(s, axes)
			if fmt.Sprint(err) == "<nil>" != (c.fault == "") || !strings.Contains(fmt.Sprint(err),
				c.fault) {
				t.Errorf("%v on %v: %v, want %q", c.trained, c.parts, err, c.fault)
			}
			if err == nil && (!slices.Equal(m.Weights[0].Data, c.want) ||
				m.Weights[1].Data[0] != 1) {
				t.Errorf("%v on %v: weights %v", c.trained, c.parts, m.Weights)
			}
		}
	}
}

// Classes that are other numbers in the source are predicted by these.
func TestClassNumbers(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  []int32
	}{{nil, nil}, {[]string{"1", "2"}, []int32{1, 2}}, {[]string{"-1", "1"}, []int32{-1, 1}},
		{[]string{"a", "1"}, nil}, {[]string{"1", "99999999999"}, nil}, {[]string{"01", "1"},
			nil}} {
		if got := (&Model{ClassNames: c.names}).classNumbers(); !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.names, got, c.want)
		}
	}
}
