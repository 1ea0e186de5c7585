//go:build cgo

package train

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cuda"
	"halognn/src/model/nn"
	"halognn/src/step/residence"
	"halognn/src/topology/sample"
)

// launchesPerStep is the most kernels and products that a training step may launch, by model: three
// layers with a norm and dropout, more rows than a chunk in every layer, all feature rows on the
// device. Copies and zeros come on top.
var launchesPerStep = []struct {
	name string
	most int
	set  func(*nn.Config)
	bare bool // of sparse rows, and fewer than a chunk
	of   compute.Precision
}{
	{"sage", 22, func(c *nn.Config) {}, false, ""},
	{"sage, layer norm", 28, func(c *nn.Config) { c.Norm = nn.NormLayer }, false, ""},
	{"sage, batch norm", 32, func(c *nn.Config) { c.Norm = nn.NormBatch }, false, ""},
	{"gcn", 20, func(c *nn.Config) { c.Kind = "gcn" }, false, ""},
	{"gin", 38, func(c *nn.Config) { c.Kind = "gin" }, false, ""},
	{"gat", 34, func(c *nn.Config) {
		c.Kind, c.Hidden, c.Heads, c.Slope, c.Activation = "gat", 6, 2, 0.2, nn.ELU
	}, false, ""},
	{"gatv2", 60, func(c *nn.Config) {
		c.Kind, c.Hidden, c.Heads, c.Slope, c.Activation = "gatv2", 6, 2, 0.2, nn.ELU
	}, false, ""},
	// weights are turned, and so are their gradients
	{"sage, sparse rows", 28, func(c *nn.Config) {}, true, ""},
	{"gcn, sparse rows", 23, func(c *nn.Config) { c.Kind = "gcn" }, true, ""},
	// what the loss gives is rounded for its two products
	{"sage, bf16", 24, func(c *nn.Config) {}, false, compute.PrecisionBF16},
	{"rgcn", 78, func(c *nn.Config) { c.Kind, c.Fold = "rgcn", nn.FoldNever }, false, ""},
}

// TestLaunches counts what training puts on the streams of an emulated device. A launch takes a GPU
// some microseconds, whatever its size.
func TestLaunches(t *testing.T) {
	library := cudaLibrary(t)
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 1200, Degree: 6, Features: 4,
		Classes: 3, Seed: 1, Split: "60/20/20"}, shardtest.Options{Parts: 1})
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 1200,
		Features: 4, Classes: 3, Seed: 1, Split: "60/20/20"},
		shardtest.Options{Parts: 1, Features: "degree"})
	sparse := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{Sparse: true}),
		shardtest.Options{Parts: 1})
	for i, c := range launchesPerStep {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			o.Model.Hidden, o.EvalEvery, o.Batch, o.Sample = 4, 0, 720, sample.Neighbours(2, 2, 2)
			c.set(&o.Model)
			// Memory grows in the first steps.
			s := shards
			if c.bare {
				s = sparse
			} else if o.Model.Kind == "rgcn" {
				s = typed
			}
			before, steps := launchesOf(t, library, c.of, s, o, 2)
			after, _ := launchesOf(t, library, c.of, s, o, 3)
			if before == nil {
				t.Skip("the library counts no launches: it is not emulated")
			}
			launches := 0
			for _, name := range slices.Sorted(maps.Keys(after)) {
				n := float64(after[name]-before[name]) / float64(steps)
				t.Logf("%6.1f %s", n, name)
				if strings.Contains(name, "/") {
					launches += after[name] - before[name]
				}
			}
			t.Logf("%6.1f launches a step", float64(launches)/float64(steps))
			if launches > c.most*steps {
				t.Errorf("a step launches %.1f kernels and products; at most %d were needed",
					float64(launches)/float64(steps), c.most)
			}
		})
	}
}

// launchesOf trains some epochs on one rank and returns what was launched, and the steps of an
// epoch.
func launchesOf(t *testing.T, library string, p compute.Precision, shards *shard.Shards, o Options,
	epochs int) (map[string]int, int) {
	t.Helper()
	o.Epochs = epochs
	cuda.Launches()
	sum := trainedOn(t, shards, 1, o, residence.GPURows{}, residence.ReadsCopy,
		func(int) (compute.Device, error) {
			return cuda.Open(cuda.Options{Memory: 8 << 20, Library: library, Precision: p})
		})
	return cuda.Launches(), sum.StepsPerEpoch
}
