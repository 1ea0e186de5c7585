//go:build e2e

package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/npy"
)

// tables writes an edge table and a node table of a ring of three teams, and imports them: the
// vertices first to last-1, with their team if labelled. It returns parts.
func tables(t *testing.T, first, last int, labelled bool) string {
	t.Helper()
	dir := t.TempDir()
	edges, nodes := "from,to\n", "user,age,visits"
	if labelled {
		nodes += ",team"
	}
	nodes += "\n"
	for v := first; v < last; v++ {
		team := (v - first) * 3 / (last - first)
		for d := 1; d <= 3; d++ {
			edges += fmt.Sprintf("user%d,user%d\n", v, first+(v-first+d)%(last-first))
		}
		nodes += fmt.Sprintf("user%d,%d,%d", v, 3*team-3, v*5%2)
		if labelled {
			nodes += "," + []string{"blue", "red", "green"}[team]
		}
		nodes += "\n"
	}
	write(t, filepath.Join(dir, "edges.csv"), []byte(edges))
	write(t, filepath.Join(dir, "nodes.csv"), []byte(nodes))
	args := []string{"import", "--format", "csv", "--in", filepath.Join(dir, "edges.csv"),
		"--nodes", filepath.Join(dir, "nodes.csv"), "--id", "user", "--undirected", "--out",
		filepath.Join(dir, "data")}
	if labelled {
		args = append(args, "--label", "team")
	}
	halognn(t).must(t, args...)
	return partitioned(t, filepath.Join(dir, "data"), 2, "ldg")
}

// A model predicts vertices that it has never seen, without labels, by their source ids and the
// source's classes: the same on any number of ranks.
func TestInferNewVertices(t *testing.T) {
	t.Parallel()
	run := trained(t, tables(t, 0, 240, true), 2, "train.epochs=30", "train.lr=0.05")
	parts, dir := tables(t, 1000, 1120, false), t.TempDir()
	ids := filepath.Join(dir, "ids")
	write(t, ids, []byte("user1119\nuser1000\n\nuser1060\n"))
	infer := func(ranks int, name string, flags ...string) (said, wrote string) {
		out := filepath.Join(dir, fmt.Sprintf("%d-%s", ranks, name))
		said = halognn(t).must(t, append([]string{"infer", "--run", run.dir, "--parts", parts,
			"--out", out, "--ranks-in-process", fmt.Sprint(ranks)}, flags...)...).out
		return said, string(read(t, out))
	}
	hidden := filepath.Join(dir, "hidden.npy")
	said, one := infer(1, "all.csv", "--embeddings", hidden)
	for _, want := range []string{"predicted 120 of 120 vertices", "no labels", "16 columns"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	if a, err := npy.Map[float32](hidden, 120, 16); err != nil {
		t.Error(err)
	} else if err := a.Close(); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(one, "id,class\nuser1000,blue\n") || strings.Count(one, "\n") != 121 {
		t.Errorf("the table begins with %.60q", one)
	}
	if _, two := infer(2, "all.csv"); two != one {
		t.Error("two ranks predict something else")
	}
	_, few := infer(2, "few.csv", "--vertices", ids, "--mode", "sampled",
		"--set", "sample.eval_fanouts=-1,-1")
	if few != "id,class\nuser1119,green\nuser1000,blue\nuser1060,red\n" {
		t.Errorf("the chosen vertices are %q", few)
	}
}

// Labels of another graph are used to judge its predictions, whatever the order of their names.
func TestInferJudgesAnotherGraph(t *testing.T) {
	t.Parallel()
	run := trained(t, tables(t, 0, 240, true), 2, "train.epochs=30", "train.lr=0.05")
	out := halognn(t).must(t, "infer", "--run", run.dir, "--parts", tables(t, 1000, 1120, true),
		"--embeddings", filepath.Join(t.TempDir(), "e.npy"), "--ranks-in-process", "2").out
	for _, split := range []string{"train", "valid", "test"} {
		if !strings.Contains(out, split+" accuracy ") {
			t.Errorf("it does not judge %s: %s", split, out)
		}
	}
}
