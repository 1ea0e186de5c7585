//go:build cgo

package train

import (
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cuda"
	"halognn/src/model/nn"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
	"halognn/src/topology/sample"
)

// Minibatches of a skewed graph differ by several times, and all have room in the memory that was
// pinned for the first, wherever their rows lie and whoever draws them.
func TestPinnedMemoryIsReserved(t *testing.T) {
	library := cudaLibrary(t)
	shards := shardtest.Open(t, dataset.GenerateOptions{Kind: dataset.RMAT, Vertices: 1500,
		Degree: 6, Features: 5, Classes: 3, Seed: 2, Split: "5/5/90"}, shardtest.Options{Parts: 2})
	nowhere := residence.GPURows{Set: true}
	for i, c := range []struct {
		name   string
		rows   residence.GPURows
		reads  string
		rounds compute.Precision
		set    func(*Options)
	}{
		{"sage", residence.GPURows{}, residence.ReadsCopy, "", func(*Options) {}},
		{"sage, rows on the host", nowhere, residence.ReadsCopy, "", func(*Options) {}},
		{"sage, half of the rows on the host", residence.GPURows{Set: true, Fraction: 0.5},
			residence.ReadsCopy, "", func(*Options) {}},
		{"gcn in bf16, rows mapped", nowhere, residence.ReadsMapped, compute.PrecisionBF16,
			func(o *Options) { o.Model.Kind = "gcn" }},
		{"sage, drawn on the device, rows on the host", nowhere, residence.ReadsCopy, "",
			func(o *Options) { o.DrawOn, o.Seed = parallel.DrawDevice, 1 }}, // begins small
		{"gat, rows on the host, labor", nowhere, residence.ReadsCopy, "", func(o *Options) {
			o.Model.Kind, o.Model.Heads, o.Model.Slope, o.Model.Activation = "gat", 2, 0.2, nn.ELU
			o.Model.Hidden, o.Sample = 6, sample.Spec{Kind: sample.Labor, Fanouts: []int{4, 4, 4}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 1 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			o.Batch, o.EvalEvery, o.Epochs, o.Patience = 2, 0, 1, 0
			o.Sample = sample.Neighbours(9, 9, 9)
			c.set(&o)
			sum := trainedOn(t, shards, 1, o, c.rows, c.reads, func(int) (compute.Device, error) {
				return cuda.Open(cuda.Options{Memory: 8 << 20, Library: library,
					Precision: c.rounds})
			})
			if o.DrawOn != "" && sum.SampledOn != o.DrawOn {
				t.Errorf("drawn on %q: %s", sum.SampledOn, sum.SampledWhy)
			}
			if sum.PinnedGrowths != 0 {
				t.Errorf("memory was pinned %d times in %d steps after the first",
					sum.PinnedGrowths, sum.Epochs*sum.StepsPerEpoch-1)
			}
		})
	}
}
