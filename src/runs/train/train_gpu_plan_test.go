//go:build cgo

package train

import (
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/forecast/plan"
	"halognn/src/model/nn"
	"halognn/src/step/residence"
	"halognn/src/topology/sample"
)

// A device takes the memory that is planned for it: minibatches of all neighbours, which all have
// one size, and the inference at the end, whose chunks are larger.
func TestDevicesTakeWhatWasPlanned(t *testing.T) {
	library := cudaLibrary(t)
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 3000, Degree: 4, Features: 16,
		Classes: 8, Seed: 1, Split: "20/40/40"}, shardtest.Options{Parts: 1})
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 500,
		Features: 16, Classes: 8, Seed: 1}, shardtest.Options{Parts: 1, Features: "degree"})
	relations := func(c *nn.Config) { c.Kind, c.Fold = "rgcn", nn.FoldNever }
	const memory, within = 48 << 20, 0.05
	for i, c := range []struct {
		name string
		of   compute.Precision
		set  func(*nn.Config)
	}{
		{"sage", compute.PrecisionFloat32, func(*nn.Config) {}},
		{"sage, bf16", compute.PrecisionBF16, func(*nn.Config) {}},
		{"sage, bf16, layer norm", compute.PrecisionBF16,
			func(c *nn.Config) { c.Norm = nn.NormLayer }},
		{"sage, residual", compute.PrecisionFloat32, func(c *nn.Config) { c.Residual = true }},
		{"sage, jumping, bf16", compute.PrecisionBF16,
			func(c *nn.Config) { c.Jumping = nn.JumpCat }},
		{"gcn, bf16", compute.PrecisionBF16, func(c *nn.Config) { c.Kind = "gcn" }},
		{"gin", compute.PrecisionFloat32, func(c *nn.Config) { c.Kind = "gin" }},
		{"gat", compute.PrecisionFloat32, func(c *nn.Config) {
			c.Kind, c.Heads, c.Slope = "gat", 4, 0.2
		}},
		{"typed", compute.PrecisionFloat32, relations},
		{"typed, bf16", compute.PrecisionBF16, relations},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 1 && testing.Short() {
				t.Skip("-short")
			}
			o := sageOptions()
			o.Model.Hidden, o.Batch, o.EvalEvery, o.EvalFull = 64, 600, 0, true
			o.Sample = sample.Neighbours(64, 64, 64)
			c.set(&o.Model)
			shards := shards
			if o.Model.Kind == "rgcn" {
				shards = typed
			}
			var peaks cuda.Peaks
			open := func(int) (compute.Device, error) {
				d, err := cuda.Open(cuda.Options{Memory: memory, Library: library, Precision: c.of})
				return &peaking{d, &peaks}, err
			}
			trainedOn(t, shards, 1, o, residence.GPURows{Set: true, Fraction: 1},
				residence.ReadsCopy, open)
			machine := plan.Machine{Workers: 2, Stored: c.of.Stored(),
				GPU: &plan.GPU{Memory: memory, Rounded: c.of.FactorBytes(),
					Resident: func(total, _ int) int { return total }}}
			p, err := plan.New(shards,
				plan.Job{Spec: o.Spec, Evaluations: -1, Machine: machine},
				plan.Options{Host: ref.Host{}, Rates: plan.Rates{Sample: 1e7, Lookups: 1e8,
					Rows: 1e7, Flops: 1e12, Network: 1e9, Device: 1e12, Bus: 1e10}})
			if err != nil {
				t.Fatal(err)
			}
			items := p.Device.Items
			planned := items.Sum() - items.Of(plan.ResidentRows)
			taken := int64(peaks.Model + peaks.Inputs + peaks.Scratch)
			t.Logf("planned / taken %.3f: %+v, %+v", float64(planned)/float64(taken), items, peaks)
			if d := float64(planned)/float64(taken) - 1; d < -within || d > within {
				t.Errorf("%d bytes are planned, %d taken: %+v, %+v", planned, taken, items, peaks)
			}
		})
	}
}

// peaking is a device whose peaks are noted when it closes.
type peaking struct {
	*cuda.Device
	peaks *cuda.Peaks
}

func (p *peaking) Close() error {
	*p.peaks = p.Device.Peaks()
	return p.Device.Close()
}
