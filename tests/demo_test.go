//go:build e2e

package tests

import (
	"path/filepath"
	"testing"
)

// The run of `make run` is a meaningful example: a model without the graph is better than the
// majority class by half, and the graph adds 15 points.
func TestDemoNeedsItsGraph(t *testing.T) {
	unlessShort(t)
	p, dir := halognn(t), t.TempDir()
	if !p.linked("metis") {
		t.Skip("built without METIS: it partitions the graph of make run")
	}
	data, parts := filepath.Join(dir, "data"), filepath.Join(dir, "parts")
	p.must(t, "generate", "--kind", "sbm", "--preset", "arxiv", "--scale", "0.3", "--seed", "1",
		"--out", data)
	p.must(t, "partition", "--data", data, "--parts", "4", "--method", "metis", "--seed", "1",
		"--out", parts)
	train := func(kind string) *outcome {
		run := filepath.Join(dir, kind)
		r := p.must(t, "train", "--config", "../inputs/demo.yaml", "--set", "data.parts="+parts,
			"--set", "run.dir="+run,
			"--set", "model.kind="+kind, "--ranks-in-process", "4")
		return outcomeOf(t, run, r)
	}
	sage, mlp := train("sage"), train("mlp")
	if mlp.TestAccuracy.Value < 1.5*mlp.MajorityAccuracy.Value {
		t.Errorf("the MLP reaches %.4f, below 1.5 times the majority class's %.4f",
			mlp.TestAccuracy.Value, mlp.MajorityAccuracy.Value)
	}
	if sage.TestAccuracy.Value < mlp.TestAccuracy.Value+0.15 {
		t.Errorf("GraphSAGE reaches %.4f, the MLP %.4f: less than 15 points between them",
			sage.TestAccuracy.Value, mlp.TestAccuracy.Value)
	}
}
