package infer

import (
	"strings"
	"testing"

	"halognn/src/data/shard"
	"halognn/src/model/nn"
)

// A model is told of parts whose features were scaled in another way, or whose graph is of another
// kind.
func TestPartsThatAreNotThoseOfTheRun(t *testing.T) {
	parts := func(scaling string) *shard.Shards {
		return &shard.Shards{Meta: shard.Meta{Features: 2, Origin: shard.Origin{Scaling: scaling}},
			Dir: "p"}
	}
	for _, c := range []struct {
		about map[string]string
		of    string
		says  string
	}{
		{map[string]string{}, "a", ""},
		{map[string]string{"scaling": "a"}, "a", ""},
		{map[string]string{"scaling": ""}, "", ""},
		{map[string]string{"scaling": "a"}, "b", "--standardize-as DATASET"},
		// of parts cut by older versions, or not standardized
		{map[string]string{"scaling": "a"}, "", ""},
		{map[string]string{"scaling": ""}, "a", ""},
	} {
		m := &Model{Run: "r", About: c.about}
		if got := m.rescaled(parts(c.of)); !strings.Contains(got, c.says) ||
			(got == "") != (c.says == "") {
			t.Errorf("%v on %q: %q, want %q", c.about, c.of, got, c.says)
		}
	}
	typed := &Model{Run: "r", In: 64, Weights: []nn.Tensor{{Name: "project.paper.weight"}}}
	if _, err := typed.fit(parts("")); err == nil || !strings.Contains(err.Error(),
		"have no vertex types") {
		t.Errorf("a typed model on parts without types: %v", err)
	}
}
