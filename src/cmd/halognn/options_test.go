package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/model/nn"
	"halognn/src/runs/config"
	"halognn/src/runs/infer"
)

func TestCoresOfARank(t *testing.T) {
	for _, tc := range []struct {
		device                          string
		cpus, set, wantCompute, workers int
	}{{"cpu", 8, 0, 8, 3}, {"cpu", 2, 0, 2, 2}, {"cpu", 1, 0, 1, 1}, {"cuda", 8, 0, 1, 3},
		{"cuda", 2, 0, 1, 1}, {"cuda", 8, 5, 1, 5}} {
		c := new(config.Config)
		c.Compute.Device, c.Compute.Workers, c.Job.Depth = tc.device, tc.set, 2
		if compute, workers := threads(c, tc.cpus); compute != tc.wantCompute ||
			workers != tc.workers {
			t.Errorf("%+v: %d threads compute, %d goroutines prepare", tc, compute, workers)
		}
	}
}

// The last epoch is evaluated, and each that train.eval_every divides; with 0 or less the last
// alone.
func TestEvaluationsOfARun(t *testing.T) {
	for _, every := range []int{-3, 0, 1, 2, 3, 10, 100} {
		for _, epochs := range []int{1, 2, 9, 10} {
			want := 0
			for epoch := 1; epoch <= epochs; epoch++ { // as package train has it
				if epoch == epochs || every > 0 && epoch%every == 0 {
					want++
				}
			}
			if got := evaluations(epochs, every); got != want {
				t.Errorf("every %d of %d epochs: %d are evaluated, not %d", every, epochs, got,
					want)
			}
		}
	}
}

// The kinds of models of the config are those that nn makes.
func TestModelKindsOfTheConfig(t *testing.T) {
	for _, kind := range config.Words("model.kind") {
		c := config.Default()
		c.Job.Model.Kind = kind
		model := trainOptions(c).Model
		model.In, model.Out, model.Task = 8, 3, "multiclass"
		model.EdgeWeights = false // of a graph without weights
		if k := nn.FindKind(kind); k.NeedsEdges {
			model.EdgeIn = 2
		}
		if err := model.Check(); err != nil {
			t.Errorf("model.kind %s: %v", kind, err)
		}
	}
}

func TestInferOfLinksTakesNoVertices(t *testing.T) {
	for vertices, refused := range map[string]bool{"": false, "v": true} {
		c := inferCommand(new(process))
		if err := c.Flags().Set("run", "r"); err != nil {
			t.Fatal(err)
		}
		o := inferFlags{run: "r", mode: "full", vertices: vertices,
			what: infer.Request{Path: "out.npy", Links: "l"}}
		if err := o.check(c); (err != nil) != refused || refused && !strings.Contains(err.Error(),
			"--vertices") {
			t.Errorf("--vertices %q: %v", vertices, err)
		}
	}
}

// A preset's feature type is what `halognn plan` counts.
func TestGenerateKeepsTheTypeOfAPreset(t *testing.T) {
	c, dir := generateCommand(new(process)), filepath.Join(t.TempDir(), "data")
	c.SetArgs([]string{"--preset", "mag240c", "--scale", "1e-5", "--classes", "2", "--features",
		"1", "--out", dir})
	c.SetOut(io.Discard)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Meta.FeatureType != dataset.Float16 {
		t.Errorf("features are %s", d.Meta.FeatureType)
	}
}
