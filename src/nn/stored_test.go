package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"halognn/src/compute"
	"halognn/src/compute/computetest"
	"halognn/src/compute/cpu"
	"halognn/src/compute/cuda"
	"halognn/src/compute/ref"
	"halognn/src/mem"
	"halognn/src/task"
)

// With bf16 the rows between layers are numbers of bfloat16 on every device, of even and odd width,
// and devices agree on the loss but for rounding. Such rows take half the memory on the CPU.
func TestHiddenRowsAreRounded(t *testing.T) {
	const p = compute.PrecisionBF16
	rounding := []backend{
		{"ref", func(*testing.T) (compute.Device, error) { return ref.WithPrecision(p), nil }},
		{"cpu", func(*testing.T) (compute.Device, error) {
			return cpu.New(cpu.Options{Threads: 2, Precision: p})
		}},
		{"cuda", func(t *testing.T) (compute.Device, error) {
			return cuda.Open(cuda.Options{Memory: 16 << 20, Precision: p,
				Library: computetest.CUDALibrary(t, "../..")})
		}},
	}
	for _, c := range []Config{
		{Kind: "sage", Hidden: 6, Norm: NormNone, Dropout: 0.5},
		{Kind: "gcn", Hidden: 5, Norm: NormNone, Jumping: JumpCat},
		{Kind: "gin", Hidden: 6, Norm: NormLayer, Residual: true},
		{Kind: "sage", Hidden: 6, Norm: NormBatch, Activation: ELU},
		{Kind: "gat", Hidden: 6, Heads: 2, Norm: NormNone},
		{Kind: "gat", Hidden: 6, Heads: 2, Norm: NormLayer},
	} {
		c.Layers, c.In, c.Out, c.Task = 3, 7, 4, task.Multiclass
		want := 0.0
		for _, b := range rounding {
			t.Run(fmt.Sprintf("%s/%s/%s", c.Kind, c.Norm, b.name), func(t *testing.T) {
				dev, err := b.open(t)
				if err != nil {
					t.Skip(err)
				}
				t.Cleanup(func() {
					if err := dev.Close(); err != nil {
						t.Error(err)
					}
				})
				m := newModel(t, dev, c, 1)
				batch, _ := randomBatch(t, dev, rand.New(rand.NewPCG(5, 0)), c, 6)
				stats, _ := pass(t, dev, m, batch)
				if want == 0 {
					want = stats.Loss
				}
				if math.Abs(stats.Loss-want) > 0x1p-8*want {
					t.Errorf("the loss is %g, that of the first device %g", stats.Loss, want)
				}
				var scratch []float32
				defer func() { mem.Free(scratch) }()
				for l := 1; l < c.Layers; l++ {
					x := m.inputs[l].X
					if want := m.Config.Stored(l-1, dev.Capabilities().Stores); x.Elements() != want {
						t.Errorf("rows of layer %d have elements of type %d, want %d", l-1, x.Elements(), want)
					}
					rows := make([]float32, x.Rows*x.Cols)
					compute.Load(dev, rows, x, &scratch)
					for i, v := range rows {
						if p.Round(v) != v {
							t.Fatalf("element %d of the rows of layer %d is %v, which is not rounded", i, l-1, v)
						}
					}
				}
			})
		}
	}
}
