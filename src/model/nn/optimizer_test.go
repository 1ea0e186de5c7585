package nn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// A run saved and restored in the middle ends with the same bits.
func TestOptimizerResumes(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, kind := range []string{SGD, Adam, AdamW} {
			c := Config{
				Kind: "sage", Layers: 2, In: 4, Hidden: 5, Out: 3, Norm: NormLayer,
				Task: task.Multiclass,
			}
			b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(1, 0)), c, 6)
			train := func(m *Model, o *Optimizer, steps int) {
				for range steps {
					pass(t, dev, m, b)
					o.Update(0.01)
				}
			}
			start := func(seed uint64) (*Model, *Optimizer) {
				m := newModel(t, dev, c, seed)
				o, err := NewOptimizer(dev, m.Params, DefaultOptimizer(kind))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(o.Close)
				return m, o
			}
			m, o := start(1)
			train(m, o, 3)
			resumed, ro := start(2)
			if err := resumed.Params.SetTensors(resumed.Params.Values,
				m.Params.Tensors(m.Params.Values)); err != nil {
				t.Fatal(err)
			}
			for i, slot := range o.Slots() {
				if err := resumed.Params.SetTensors(ro.Slots()[i].Data,
					m.Params.Tensors(slot.Data)); err != nil {
					t.Fatal(err)
				}
			}
			ro.SetSteps(o.Steps())
			train(m, o, 2)
			train(resumed, ro, 2)
			if !slices.Equal(download(dev, m.Params.Values), download(dev, resumed.Params.Values)) {
				t.Errorf("%s: the resumed run ended elsewhere", kind)
			}
			rest := download(dev, m.Params.Values) // without the parameters: header and gaps
			for _, p := range m.Params.List {
				clear(p.part(rest))
			}
			if slices.ContainsFunc(rest, func(x float32) bool { return x != 0 }) {
				t.Errorf("%s: the optimiser wrote between the parameters", kind)
			}
		}
	})
}
