//go:build e2e

package tests

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// degreeTables writes the tables of a graph without features to dir: vertices of class "hub" have 9
// in-edges and those of class "leaf" 2, from random vertices.
func degreeTables(t *testing.T, dir string, vertices int) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(vertices)))
	edges, nodes := "from,to\n", "id,label\n"
	for v := range vertices {
		class, degree := "leaf", 2
		if v%2 == 1 {
			class, degree = "hub", 9
		}
		nodes += fmt.Sprintf("v%d,%s\n", v, class)
		for _, u := range random.Perm(vertices)[:degree] {
			edges += fmt.Sprintf("v%d,v%d\n", u, v)
		}
	}
	write(t, filepath.Join(dir, "edges.csv"), []byte(edges))
	write(t, filepath.Join(dir, "nodes.csv"), []byte(nodes))
}

// A graph without features is refused with a message that says what to do. It trains on features
// made from the graph, and its model predicts another such graph. Sums of ones count neighbours.
func TestGraphWithoutFeatures(t *testing.T) {
	t.Parallel()
	p, dir := halognn(t), t.TempDir()
	imported := func(vertices int) string {
		tables, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
		degreeTables(t, tables, vertices)
		r := p.must(t, "import", "--format", "csv", "--in", tables, "--directed", "--out", data)
		if !strings.Contains(r.out, "--features degree") {
			t.Errorf("import does not name the way: %v", r)
		}
		return data
	}
	cut := func(data, name string, flags ...string) (string, result) {
		out := filepath.Join(dir, name)
		return out, p.must(t, append([]string{"partition", "--data", data, "--parts", "4",
			"--method", "contiguous", "--allow-imbalance", "--out", out}, flags...)...)
	}
	data, other := imported(600), imported(300)
	none, r := cut(data, "none")
	if !strings.Contains(r.out, "--features degree") {
		t.Errorf("partition does not name the way: %v", r)
	}
	for _, args := range [][]string{
		training(t, none, t.TempDir()), append(training(t, none, t.TempDir()), "--dry-run"),
		{"plan", "--config", baseFile.dir(t), "--parts", none},
	} {
		r := p.run(t, args...)
		if m := r.message(t); r.code != badData || !strings.Contains(m, "no features") ||
			!strings.Contains(m, "--features degree") {
			t.Errorf("%s ends with %d and %q", args[0], r.code, m)
		}
	}
	for _, c := range []struct {
		features, model string
		least           float64 // ROC-AUC
	}{{"degree", "sage", 0.99}, {"ones", "gin", 0.9}} {
		parts, _ := cut(data, c.features, "--features", c.features)
		another, _ := cut(other, c.features+"-other", "--features", c.features)
		o := trained(t, parts, 2, "train.epochs=10", "model.dropout=0", "sample.fanouts=-1,-1",
			"model.kind="+c.model)
		if !(o.TestMetric.Value >= c.least) {
			t.Errorf("%s of %s features has ROC-AUC %v, want %g", c.model, c.features, o.TestMetric,
				c.least)
		}
		if n := len(predicted(t, o.dir, 2, "--parts", another)); n != 300 {
			t.Errorf("%s: %d vertices of another graph predicted", c.features, n)
		}
	}
	for _, c := range []badInput{
		{"features of another kind", func(_ *testing.T, dir string) []string {
			return []string{"partition", "--data", data, "--parts", "2", "--features", "twos",
				"--out", filepath.Join(dir, "out")}
		}, usage, []string{"--features twos", "use degree or ones"}},
		{"a graph with features", func(t *testing.T, dir string) []string {
			return []string{"partition", "--data", smallData.dir(t), "--parts", "2", "--features",
				"ones", "--out", filepath.Join(dir, "out")}
		}, usage, []string{"--features ones", "16 feature columns", "leave --features out"}},
	} {
		t.Run(c.name, c.run)
	}
}
