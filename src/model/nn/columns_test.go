package nn

import (
	"math/rand/v2"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// inputRows returns the rows that the input layer of c reads of a batch with rows of all sources:
// own rows and aggregates.
func inputRows(
	t *testing.T, dev compute.Device, c Config, b *Batch,
) (own, aggregate compute.Matrix) {
	h, needs := &b.Hops[0], c.Needs()
	own = b.X.RowsAt(0, h.Destinations)
	aggregate = upload(t, dev, h.Destinations, c.In, make([]float32, h.Destinations*c.In))
	switch needs.Aggregate {
	case compute.ReduceMean:
		dev.SegmentMean(aggregate, h.Forward, b.X)
	case compute.ReduceSum:
		dev.SegmentSum(aggregate, h.Forward, h.Weights, b.X, false)
	}
	return own, aggregate
}

// columnsOf copies columns of a matrix.
func columnsOf(t *testing.T, dev compute.Device, x compute.Matrix, first, end int) compute.Matrix {
	y := upload(t, dev, x.Rows, end-first, make([]float32, x.Rows*(end-first)))
	dev.CopyColumns(y, 0, x, first, end-first, false)
	return y
}

// The shares of the columns add up to the model: its loss and every gradient, whatever else its
// layers do. Kinds whose input layer is not linear are refused.
func TestColumnsAddUp(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			t.Run(a.name, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, 5))
				b, _ := randomBatch(t, dev, rng, a.Config, 9)
				b.InputGradient = false
				m := newModel(t, dev, a.Config, 7)
				bounds := []int{0, 1, a.In - 1, a.In}
				if !a.Linear() {
					_, err := m.Columns(0, 1)
					if err == nil || !strings.Contains(err.Error(), "not a sum over the columns") {
						t.Fatalf("%v", err)
					}
					return
				}
				stats, _ := pass(t, dev, m, b)
				want := download(dev, m.Params.Grads)

				own, aggregate := inputRows(t, dev, a.Config, b)
				var shares []compute.Matrix
				var columns []*Columns
				var inputs []Input
				for k := range len(bounds) - 1 {
					c, err := m.Columns(bounds[k], bounds[k+1])
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					in := Input{Hop: Hop{Destinations: own.Rows},
						Own:       columnsOf(t, dev, own, bounds[k], bounds[k+1]),
						Aggregate: columnsOf(t, dev, aggregate, bounds[k], bounds[k+1])}
					y, err := c.Forward(&in)
					if err != nil {
						t.Fatal(err)
					}
					shares, columns = append(shares, y), append(columns, c)
					inputs = append(inputs, in)
				}
				got, dsum := passOfShares(t, dev, m, b, shares)
				grads := download(dev, m.Params.Grads)
				for k, c := range columns {
					c.Backward(&inputs[k], dsum)
					all := download(dev, m.Params.Grads)
					for _, q := range m.Params.List {
						if !ofMap(m, q) {
							continue
						}
						for i, g := range q.part(all) {
							if k == 0 {
								q.part(grads)[i] = 0
							}
							q.part(grads)[i] += g
						}
					}
				}
				if d := deviation([]float32{float32(got.Loss)}, []float64{stats.Loss}); d > 1e-6 {
					t.Errorf("the loss is %v, want %v", got.Loss, stats.Loss)
				}
				if d := deviation(grads, want); d > gradientTolerance {
					t.Errorf("gradients deviate by %g", d)
				}
			})
		}
	})
}

// ofMap reports whether a parameter belongs to the first map of the input layer.
func ofMap(m *Model, q Param) bool {
	first := m.stages[0].Layer.(columnwise).firstMap()
	for _, of := range [][]float32{first.weights[0].dw.Data, first.weights[1].dw.Data, first.deps} {
		if len(of) > 0 && &of[0] == &q.part(m.Params.Grads)[0] {
			return true
		}
	}
	return false
}

// passOfShares is pass with the shares of the input layer's columns. It returns the gradient of
// their sum; the gradients of the map are not set.
func passOfShares(t *testing.T, dev compute.Device, m *Model, b *Batch, shares []compute.Matrix) (
	task.Stats, compute.Matrix) {
	inputs := make([]Input, len(b.Hops))
	var x compute.Matrix
	for l := range b.Hops {
		inputs[l] = b.Input(l, x)
		if l == 0 {
			inputs[l].X, inputs[l].Shares, inputs[l].Gradient = compute.Matrix{}, shares, true
		}
		var err error
		if x, err = m.ForwardLayer(l, &inputs[l]); err != nil {
			t.Fatal(err)
		}
	}
	stats, grad := m.Loss(b, m.Output(x))
	grad = m.OutputBackward(grad)
	for l := len(b.Hops) - 1; l >= 0; l-- {
		grad, _ = m.BackwardLayer(l, &inputs[l], grad)
	}
	return stats, grad
}

// Columns that the rows do not have are refused.
func TestColumnsRange(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		m := newModel(t, dev, architectures[0].Config, 1)
		for _, bad := range [][2]int{{0, 0}, {2, 1}, {-1, 2}, {0, 6}} {
			if _, err := m.Columns(bad[0], bad[1]); err == nil {
				t.Errorf("columns %v of 5 were accepted", bad)
			}
		}
	})
}
