package nn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// A last layer that maps rows first gives the numbers of one that adds them first, up to rounding.
func TestMapFirst(t *testing.T) {
	of := Config{Layers: 2, In: 5, Hidden: 12, Out: 4, Norm: NormLayer, Task: task.Multiclass}
	kinds := map[string]func(*Config){
		"sage":          func(c *Config) { c.Kind = "sage" },
		"weighted sage": func(c *Config) { c.Kind, c.EdgeWeights = "sage", true },
		"gcn":           func(c *Config) { c.Kind = "gcn" },
		"gcn by both ends": func(c *Config) {
			c.Kind, c.GCNNorm = "gcn", GCNBoth
		},
	}
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for name, set := range kinds {
			t.Run(name, func(t *testing.T) {
				c := of
				set(&c)
				if !c.MapsFirst(1) {
					t.Fatal("it does not map first")
				}
				b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(3, 5)), c, 9)
				b.Train, b.InputGradient = false, false
				m := newModel(t, dev, c, 7)
				logits, err := m.Forward(b)
				if err != nil {
					t.Fatal(err)
				}
				want := slices.Clone(download(dev, logits.Data))
				in := b.Input(0, compute.Matrix{})
				x, err := m.ForwardLayer(0, &in)
				if err != nil {
					t.Fatal(err)
				}
				neighbours, own, err := m.MapFirst(1, x)
				if err != nil {
					t.Fatal(err)
				}
				h := b.Hops[1]
				n := h.Destinations
				sum := upload(t, dev, n, c.Out, make([]float32, n*c.Out))
				if c.Needs().Aggregate == compute.ReduceMean {
					dev.SegmentMean(sum, h.Forward, neighbours)
				} else {
					dev.SegmentSum(sum, h.Forward, h.Weights, neighbours, false)
				}
				last := Input{Hop: h, Shares: []compute.Matrix{sum}}
				if c.MappedColumns(1) == 2*c.Out {
					last.Shares = append(last.Shares, own.RowsAt(0, n))
				}
				y, err := m.ForwardLayer(1, &last)
				if err != nil {
					t.Fatal(err)
				}
				wide := make([]float64, len(want))
				for i, z := range want {
					wide[i] = float64(z)
				}
				if d := deviation(download(dev, y.Data), wide); d > 1e-5 {
					t.Errorf("logits deviate by %g", d)
				}
			})
		}
	})
}

// Only a last layer maps first that is a sum or mean and a linear map to fewer columns in all.
func TestMapsFirst(t *testing.T) {
	for _, c := range []struct {
		of   Config
		l    int
		want bool
	}{
		{Config{Kind: "sage", Layers: 3, Hidden: 9, Out: 4}, 2, true},
		{Config{Kind: "sage", Layers: 3, Hidden: 8, Out: 4}, 2, false}, // not fewer: 2 x 4 columns
		{Config{Kind: "gcn", Layers: 3, Hidden: 8, Out: 4}, 2, true},
		{Config{Kind: "sage", Layers: 3, Hidden: 9, Out: 4}, 1, false}, // a hidden layer
		{Config{Kind: "sage", Layers: 3, Hidden: 9, Out: 4}, 3, false}, // no layer
		{Config{Kind: "sage", Layers: 1, In: 90, Out: 4}, 0, false},    // it reads features
		{Config{Kind: "sage", Layers: 3, Hidden: 9, Out: 4, Jumping: JumpCat}, 2, false},
		{Config{Kind: "sage", Layers: 3, Hidden: 9, Out: 4, Aggregation: AggregateMax}, 2, false},
		{Config{Kind: "gin", Layers: 3, Hidden: 9, Out: 4}, 2, false}, // its map is not the last
		{Config{Kind: "gat", Layers: 3, Hidden: 9, Out: 4, Heads: 1}, 2, false},
		{Config{Kind: "mlp", Layers: 3, Hidden: 9, Out: 4}, 2, false}, // it adds nothing
	} {
		if got := c.of.MapsFirst(c.l); got != c.want {
			t.Errorf("layer %d of %+v maps first: %v", c.l, c.of, got)
		}
	}
}
