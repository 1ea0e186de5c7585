package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"halognn/src/devices/compute"
)

// A model whose parameters of the input layer are permuted as the columns of the features are has
// the same loss.
func TestInputAxes(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			t.Run(a.name, func(t *testing.T) {
				if a.Schema.Typed() {
					t.Skip("projections of types read the features")
				}
				rng := rand.New(rand.NewPCG(3, 5))
				b, _ := randomBatch(t, dev, rng, a.Config, 9)
				b.InputGradient = false
				m := newModel(t, dev, a.Config, 7)
				want, _ := pass(t, dev, m, b)
				order, x := rng.Perm(a.In), b.X.RowsAt(0, b.Hops[0].Sources)
				rows := download(dev, x.Data)
				moved := Tensor{Shape: []int{len(rows) / a.In, a.In}, Data: rows}
				moved.Permute(1, order)
				dev.Upload(x.Data, moved.Data)
				all, axes := m.Params.Tensors(m.Params.Values), a.InputAxes()
				for i := range all {
					if axis, reads := axes[all[i].Name]; reads {
						all[i].Permute(axis, order)
						delete(axes, all[i].Name)
					}
				}
				if err := m.Params.SetTensors(m.Params.Values, all); err != nil || len(axes) > 0 {
					t.Fatalf("%v, no parameters %v", err, axes)
				}
				got, _ := pass(t, dev, m, b)
				if math.Abs(got.Loss-want.Loss) > 1e-4*math.Abs(want.Loss) {
					t.Errorf("loss %g of permuted columns, %g before", got.Loss, want.Loss)
				}
			})
		}
	})
}
