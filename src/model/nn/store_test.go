package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/task"
	"halognn/tests/race"
)

// With bf16 the rows between layers are numbers of bfloat16 on every device, of even and odd width,
// and devices agree on the loss but for rounding. Such rows take half the memory on the CPU.
func TestHiddenRowsAreRounded(t *testing.T) {
	const p = compute.PrecisionBF16
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
		for _, b := range rounding() {
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
					want := m.Config.Stored(l-1, dev.Capabilities().Stores)
					if got := x.Elements(); got != want {
						t.Errorf("rows of layer %d have elements of type %d, want %d",
							l-1, got, want)
					}
					rows := make([]float32, x.Rows*x.Cols)
					compute.Load(dev, rows, x, &scratch)
					for i, v := range rows {
						if p.Round(v) != v {
							t.Fatalf("element %d of the rows of layer %d is %v, which is not "+
								"rounded", i, l-1, v)
						}
					}
				}
			})
		}
	}
}

// rounding are the devices, in bf16.
func rounding() []backend {
	const p = compute.PrecisionBF16
	return []backend{
		{"ref", func(*testing.T) (compute.Device, error) { return ref.WithPrecision(p), nil }},
		{"cpu", func(*testing.T) (compute.Device, error) {
			return cpu.New(cpu.Options{Threads: 2, Precision: p})
		}},
		{"cuda", func(t *testing.T) (compute.Device, error) {
			return cuda.Open(cuda.Options{Memory: 16 << 20, Precision: p,
				Library: computetest.CUDALibrary(t, "../../..")})
		}},
	}
}

// With bf16 the gradient of a hidden row is rounded once it is complete, on every device, whichever
// terms it has, and lies as the row does, but where other ranks add to it: then it is rounded when
// they have. Devices, and both ways, agree on the gradients of the weights but for rounding.
func TestHiddenGradientsAreRounded(t *testing.T) {
	const p = compute.PrecisionBF16
	for _, c := range []Config{
		{Kind: "sage", Hidden: 6, Norm: NormNone, Dropout: 0.3},
		{
			Kind: "sage", Hidden: 6, Norm: NormLayer, Residual: true, Jumping: JumpCat,
			Activation: ELU,
		},
		{Kind: "sage", Hidden: 8, Norm: NormNone, Aggregation: AggregateMax, Residual: true},
		{Kind: "sage", Hidden: 5, Norm: NormNone, Residual: true, Activation: ELU, Dropout: 0.4},
		{Kind: "gcn", Hidden: 6, Norm: NormBatch, Jumping: JumpMax},
		{Kind: "gcn", Hidden: 6, GCNNorm: GCNBoth, Norm: NormBatch, Residual: true},
		{Kind: "gcn", Hidden: 6, Norm: NormNone, Dropout: 0.3, Activation: ELU},
		{Kind: "mlp", Hidden: 6, Norm: NormLayer, Dropout: 0.3},
		{Kind: "gin", Hidden: 6, Norm: NormNone},
		{Kind: "gin", Hidden: 6, Norm: NormNone, Residual: true},
		{Kind: "gin", Hidden: 6, Norm: NormLayer, Jumping: JumpCat},
		{Kind: "gine", EdgeIn: 2, Hidden: 6, Norm: NormNone, Residual: true},
		{Kind: "mlp", Hidden: 6, Norm: NormLayer, Residual: true, Jumping: JumpMax},
		{Kind: "gat", Hidden: 6, Heads: 2, Norm: NormNone, Residual: true},
		{Kind: "gatv2", Hidden: 6, Heads: 2, Norm: NormLayer},
	} {
		c.Layers, c.In, c.Out, c.Task = 3, 7, 4, task.Multiclass
		var want []float64
		var complete []float32 // gradients that no other rank adds to, of a device
		for _, b := range rounding() {
			if b.name == "cuda" && c.EdgeIn > 0 {
				continue // features of edges are for CPUs alone
			}
			for _, partial := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s%s/%s/%t", c.Kind, c.Norm, c.Jumping, b.name, partial)
				t.Run(name, func(t *testing.T) {
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
					inputs, x := make([]Input, c.Layers), compute.Matrix{}
					for l := range inputs {
						inputs[l] = batch.Input(l, x)
						inputs[l].Partial = partial
						if x, err = m.ForwardLayer(l, &inputs[l]); err != nil {
							t.Fatal(err)
						}
					}
					_, dy := m.Loss(batch, m.Output(x))
					dy = m.OutputBackward(dy)
					var scratch []float32
					defer func() { mem.Free(scratch) }()
					for l := c.Layers - 1; l >= 0; l-- {
						if dy, err = m.BackwardLayer(l, &inputs[l], dy); err != nil {
							t.Fatal(err)
						}
						if l == 0 || partial || c.Kind == "gin" && c.Jumps() {
							continue
						}
						want := m.Config.Stored(l-1, dev.Capabilities().Stores)
						if got := dy.Elements(); got != want {
							t.Errorf("gradients of layer %d are in %v, want %v", l-1, got, want)
						}
						if m.goesBack(l) && dy.BF16 == nil {
							continue // behind dropout it is float32, as if it had gone back later
						}
						rows := make([]float32, dy.Rows*dy.Cols)
						compute.Load(dev, rows, dy, &scratch)
						for i, v := range rows {
							if p.Round(v) != v {
								t.Fatalf("element %d of the gradient of layer %d is %v, not "+
									"rounded", i, l-1, v)
							}
						}
					}
					grads := download(dev, m.Params.Grads)
					if want == nil {
						want = widen(grads)
					}
					if d := deviation(grads, want); !(d <= 0x1p-7) {
						t.Errorf("gradients deviate by %g from those of the first device", d)
					}
					if !partial {
						complete = grads
					} else if slices.Contains([]string{"gcn", "gin", "mlp"}, c.Kind) &&
						!c.Residual && !c.Jumps() && !slices.Equal(grads, complete) {
						// with one term there is one order
						t.Error("gradients depend on whether they are complete at once")
					}
				})
			}
		}
	}
}

// A GPU takes gradients back through activations where it makes them, if nothing is added later.
// No gradient of a parameter depends on where that is.
func TestWhereGradientsGoBackChangesNoBit(t *testing.T) {
	for _, c := range []struct {
		Config
		float32s, bf16s int // layers whose gradient goes back at once
	}{
		{Config{Kind: "sage", Hidden: 6, Dropout: 0.5}, 2, 2},
		{Config{Kind: "sage", Hidden: 6, Dropout: 0.3}, 2, 0},
		{Config{Kind: "sage", Hidden: 5, Dropout: 0.3, Aggregation: AggregateMax}, 2, 2},
		{Config{Kind: "sage", Hidden: 6, Residual: true}, 1, 2},
		{Config{Kind: "sage", Hidden: 6, Jumping: JumpCat, Dropout: 0.5}, 0, 2},
		{Config{Kind: "sage", Hidden: 6, Jumping: JumpMax}, 0, 2},
		{Config{Kind: "sage", Hidden: 6, Norm: NormLayer}, 0, 0},
		{Config{Kind: "gcn", Hidden: 6, Norm: NormBatch}, 0, 0},
		{Config{Kind: "gcn", Hidden: 6, Residual: true, Dropout: 0.75}, 1, 2},
		{Config{Kind: "gcn", Hidden: 8, Dropout: 0.5}, 2, 2},
		{Config{Kind: "gcn", Hidden: 5, GCNNorm: GCNBoth, Activation: ELU, Dropout: 0.4}, 2, 2},
		{Config{Kind: "gin", Hidden: 6, Activation: ELU}, 2, 0},
		{Config{Kind: "gin", Hidden: 6}, 2, 2},
		{Config{Kind: "gin", Hidden: 6, Residual: true}, 1, 2},
		{Config{Kind: "gat", Hidden: 6, Heads: 2}, 0, 0},
	} {
		c.Layers, c.In, c.Out, c.Task = 3, 7, 4, task.Multiclass
		if c.Norm == "" {
			c.Norm = NormNone
		}
		for _, p := range []compute.Precision{compute.PrecisionFloat32, compute.PrecisionBF16} {
			t.Run(fmt.Sprintf("%+v/%s", c, p), func(t *testing.T) {
				dev, err := cuda.Open(cuda.Options{Memory: 16 << 20, Precision: p,
					Library: computetest.CUDALibrary(t, "../../..")})
				if err != nil {
					t.Skip(err)
				}
				t.Cleanup(func() {
					if err := dev.Close(); err != nil {
						t.Error(err)
					}
				})
				grads := func(fuses bool) ([]float32, int) {
					m := newModel(t, dev, c.Config, 1)
					m.fuses = fuses
					batch, _ := randomBatch(t, dev, rand.New(rand.NewPCG(5, 0)), c.Config, 6)
					pass(t, dev, m, batch)
					back := 0
					for l := range c.Layers {
						if m.goesBack(l) {
							back++
						}
						m.inputs[l].Partial = true
						if m.goesBack(l) {
							t.Errorf("the gradient of layer %d goes back before other ranks add "+
								"to it", l)
						}
					}
					return download(dev, m.Params.Grads), back
				}
				want, _ := grads(false)
				got, back := grads(true)
				if !slices.Equal(got, want) {
					t.Error("gradients depend on where they go back")
				}
				if n := c.float32s; p == compute.PrecisionFloat32 && back != n ||
					p == compute.PrecisionBF16 && back != c.bf16s {
					t.Errorf("%d gradients go back at once, want %d or %d", back, n, c.bf16s)
				}
			})
		}
	}
}

// Where the CPU stores rows in bfloat16, and where it is made to keep rounded numbers in float32,
// there is one definition: gradients are equal, bit by bit.
func TestStoredGradientsAreTheRounded(t *testing.T) {
	race.Alone(t)
	kinds := []Config{
		{Kind: "gin"}, {Kind: "gine", EdgeIn: 2},
		{Kind: "sage"}, {Kind: "sage", Aggregation: AggregateMax},
		{Kind: "gcn"}, {Kind: "mlp"}, {Kind: "gat", Heads: 2}, {Kind: "gatv2", Heads: 2},
		{Kind: "rgcn", Schema: typed, TypeFeatures: []int{5, 3}},
		{Kind: "sage", Schema: typed, TypeFeatures: []int{5, 3}},
		{Kind: "gat", Heads: 2, Schema: typed, TypeFeatures: []int{5, 3}},
	}
	norms := []string{NormNone, NormLayer, NormBatch}
	for _, c := range kinds {
		for i := range 3 * 2 * 3 * 2 {
			c := c
			c.Norm, c.Residual = norms[i%3], i/3%2 > 0
			c.Jumping = []string{JumpNone, JumpCat, JumpMax}[i/6%3]
			c.Activation, c.Dropout = ReLU, 0.4
			if i/18 > 0 {
				c.Activation = ELU
			}
			c.Layers, c.In, c.Hidden, c.Out, c.Task = 3, 8, 6, 4, task.Multiclass
			if c.Check() != nil {
				continue
			}
			name := fmt.Sprintf("%s%s/%s/%s/%s/%t",
				c.Kind, c.Aggregation, c.Norm, c.Jumping, c.Activation, c.Residual)
			t.Run(name, func(t *testing.T) {
				var want []float32
				for _, stores := range []compute.Elements{compute.Float32s, compute.BF16s} {
					dev, err := cpu.New(cpu.Options{Threads: 2, Precision: compute.PrecisionBF16})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := dev.Close(); err != nil {
							t.Error(err)
						}
					})
					as := storing{dev, stores}
					m := newModel(t, as, c, 1)
					batch, _ := randomBatch(t, as, rand.New(rand.NewPCG(5, 0)), c, 6)
					_, grads := pass(t, as, m, batch)
					if want == nil {
						want = grads
					} else if !slices.Equal(grads, want) {
						t.Errorf("gradients deviate by %g from those of rows in float32",
							deviation(grads, widen(want)))
					}
				}
			})
		}
	}
}

// storing is a device that is said to store rows so.
type storing struct {
	compute.Device
	stores compute.Elements
}

func (s storing) Capabilities() compute.Capabilities {
	c := s.Device.Capabilities()
	c.Stores = s.stores
	return c
}

// With bf16 the rows that the maps of vertex types give are rounded, and their gradients, on every
// device, and are stored so where the device stores rows so; devices agree on the gradients of the
// maps.
func TestProjectedRowsAreRounded(t *testing.T) {
	const p = compute.PrecisionBF16
	for _, kind := range []string{"rgcn", "sage", "gat"} {
		c := Config{Kind: kind, Layers: 2, In: 8, Hidden: 6, Heads: 2, Out: 4, Norm: NormNone,
			Residual: true, Schema: typed, TypeFeatures: []int{5, 3}, Task: task.Multiclass}
		var want []float64
		for _, b := range rounding() {
			t.Run(kind+"/"+b.name, func(t *testing.T) {
				dev, err := b.open(t)
				if err != nil {
					t.Skip(err)
				}
				t.Cleanup(func() {
					if err := dev.Close(); err != nil {
						t.Error(err)
					}
				})
				m, rng := newModel(t, dev, c, 1), rand.New(rand.NewPCG(5, 0))
				batch, _ := randomBatch(t, dev, rng, c, 6)
				n := batch.Hops[0].Sources
				first := n / 3
				batch.X = compute.Matrix{}
				batch.Types = []compute.Matrix{upload(t, dev, first, 5, randomRows(rng, first*5)),
					upload(t, dev, n-first, 3, randomRows(rng, (n-first)*3))}
				_, dlogits := m.Loss(batch, forward(t, m, batch))
				x, dx := m.inputs[0].X, m.Backward(dlogits, nil)
				var scratch []float32
				defer func() { mem.Free(scratch) }()
				for what, of := range map[string]compute.Matrix{"rows": x, "gradients": dx} {
					if of.Elements() != dev.Capabilities().Stores || of.Rows != n {
						t.Errorf("%s are %v", what, of)
					}
					rows := make([]float32, of.Rows*of.Cols)
					compute.Load(dev, rows, of, &scratch)
					for i, v := range rows {
						if p.Round(v) != v {
							t.Fatalf("element %d of the %s is %v, which is not rounded", i, what, v)
						}
					}
				}
				grads := download(dev, m.Params.Grads)
				if want == nil {
					want = widen(grads)
				}
				if d := deviation(grads, want); !(d <= 0x1p-7) {
					t.Errorf("gradients deviate by %g from those of the first device", d)
				}
			})
		}
	}
}

// The first size is taken as given, every later one with a quarter of slack; a growth that fails
// leaves nothing to free twice.
func TestBufferGrowth(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		meter := &meter{Device: dev, failAt: 3}
		s := store{dev: meter}
		b := s.buffer()
		for _, c := range []struct{ n, live int }{{100, 100}, {80, 100}, {120, 150}, {150, 150},
			{151, 0}, {160, 160}} {
			err := b.reserve(c.n)
			if meter.live != c.live || (err == nil) != (c.live > 0) {
				t.Errorf("reserve(%d): %d elements live, %v; want %d", c.n, meter.live, err, c.live)
			}
			if err == nil && len(b.data) < c.n {
				t.Errorf("reserve(%d) did not make room", c.n)
			}
			if err != nil {
				s.free()
			}
		}
		if s.free(); meter.live != 0 {
			t.Errorf("%d elements were not given back", meter.live)
		}
	})
}
