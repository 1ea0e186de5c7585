package nn

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"halognn/src/compute"
)

// The golden files hold float64 results of PyTorch's autograd. PyTorch's own float32 run deviates from them by at most
// the number in each comment below, relative to the largest value of an array. We sum in another order (edges one by
// one, rows in chunks), which costs about the same again in an unlucky place: tolerances are within ten times
// PyTorch's.
const (
	layerForward   = 1e-6 // PyTorch 1e-7: sage_mean and sage_mean_wide, softmax, sigmoid, layernorm
	layerBackward  = 2e-6 // PyTorch 2e-7 (db), wide 3e-7 (dW_neigh)
	modelForward   = 1e-6 // PyTorch 1e-7: three layers
	modelBackward  = 3e-6 // PyTorch 3e-7
	runLosses      = 2e-6 // PyTorch 1e-7 to 3e-7
	runFirstStep   = 5e-7 // PyTorch 5e-8 to 8e-8, absolute
	runTenthStep   = 1e-6 // PyTorch 1e-7, AdamW 5e-7, absolute
	runMoments     = 5e-6 // no number from PyTorch: moments are sums of gradients (3e-7) and of their squares (twice that)
	sigmoidForward = 1e-7 // PyTorch 7e-9, extreme 2e-8
)

func TestGoldenLayer(t *testing.T) {
	array := map[string]string{"convs.0.lin_l.weight": "W_neigh", "convs.0.lin_l.bias": "b", "convs.0.lin_r.weight": "W_self"}
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, name := range []string{"sage_mean", "sage_mean_wide"} {
			g := openGolden(t, name)
			_, x := g.want("X")
			_, y := g.want("Y")
			m := newModel(t, dev, Config{Kind: "sage", Layers: 1, In: x[1], Out: y[1], Norm: NormNone, Task: Multiclass}, 0)
			g.setParams(m, func(p string) string { return array[p] })
			in := &Input{Hop: g.hop(""), X: g.rows(dev, "X"), Train: true, Gradient: true}
			out, err := m.ForwardLayer(0, in)
			if err != nil {
				t.Fatal(err)
			}
			g.compare(dev, "Y", out.Data, layerForward)
			g.compare(dev, "agg", m.stages[0].Layer.(*sage).agg.Data, layerForward)
			dx := m.BackwardLayer(0, in, g.rows(dev, "dY"))
			g.compare(dev, "dX", dx.Data, layerBackward)
			for _, p := range m.Params.List {
				g.compare(dev, "d"+array[p.Name], p.of(m.Params.Grads), layerBackward)
			}
		}
	})
}

func TestGoldenLosses(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, name := range []string{"softmax_ce", "softmax_ce_extreme", "sigmoid_bce", "sigmoid_bce_extreme"} {
			g := openGolden(t, name)
			logits := g.rows(dev, "logits")
			gradient := upload(t, dev, logits.Rows, logits.Cols, nil)
			var got Stats
			tolerance := layerForward
			if strings.HasPrefix(name, "softmax") {
				got = CrossEntropy(dev, gradient, logits, g.int32s("labels"), logits.Rows)
			} else {
				labels, _ := g.want("labels")
				targets := make([]uint8, len(labels))
				for i, l := range labels {
					targets[i] = uint8(l)
				}
				got = BinaryCrossEntropy(dev, gradient, logits, targets, logits.Rows)
				tolerance = sigmoidForward
			}
			if want := g.scalar("loss"); !(math.Abs(got.Loss-want) <= tolerance*want) {
				t.Errorf("%s: loss %.9g, want %.9g within %g", name, got.Loss, want, tolerance)
			}
			g.compare(dev, "dlogits", gradient.Data, layerForward)
		}
	})
}

// The layer normalisation of a model is this kernel; gradient_test.go holds the model's use of it to finite differences.
func TestGoldenLayerNorm(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		g := openGolden(t, "layernorm")
		x, dy := g.rows(dev, "X"), g.rows(dev, "dY")
		gamma, beta := g.rows(dev, "gamma").Data, g.rows(dev, "beta").Data
		dgamma, dbeta := upload(t, dev, 1, x.Cols, nil).Data, upload(t, dev, 1, x.Cols, nil).Data
		mean, rstd := upload(t, dev, 1, x.Rows, nil).Data, upload(t, dev, 1, x.Rows, nil).Data
		y := upload(t, dev, x.Rows, x.Cols, nil)
		if eps := g.scalar("eps"); eps != normEps {
			t.Fatalf("the file has eps %g, the model %g", eps, normEps)
		}
		dev.LayerNorm(y, x, gamma, beta, mean, rstd, normEps)
		g.compare(dev, "Y", y.Data, layerForward)
		dev.LayerNormBackward(dy, dgamma, dbeta, dy, x, gamma, mean, rstd)
		g.compare(dev, "dX", dy.Data, layerBackward)
		g.compare(dev, "dgamma", dgamma, layerBackward)
		g.compare(dev, "dbeta", dbeta, layerBackward)
	})
}

// modelArray maps convs.1.lin_l.weight to l1_W_neigh.
func modelArray(param string) string {
	var l int
	var rest string
	if _, err := fmt.Sscanf(param, "convs.%d.%s", &l, &rest); err != nil {
		panic(param)
	}
	return fmt.Sprintf("l%d_", l) + map[string]string{"lin_l.weight": "W_neigh", "lin_l.bias": "b", "lin_r.weight": "W_self"}[rest]
}

// goldenModel returns the three-layer model with its initial parameters, and its minibatch.
func goldenModel(t *testing.T, dev compute.Device) (golden, *Model, *Batch) {
	g := openGolden(t, "model_sage3")
	b := &Batch{Hops: []Hop{g.hop("b0_"), g.hop("b1_"), g.hop("b2_")}, X: g.rows(dev, "X"), Labels: g.int32s("labels"),
		Train: true, InputGradient: true}
	b.GlobalSeeds = len(b.Labels)
	m := newModel(t, dev, Config{Kind: "sage", Layers: 3, In: 16, Hidden: 12, Out: 5, Norm: NormNone, Task: Multiclass}, 0)
	g.setParams(m, modelArray)
	return g, m, b
}

func TestGoldenModel(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		g, m, b := goldenModel(t, dev)
		logits := forward(t, m, b)
		g.compare(dev, "h1", m.inputs[1].X.Data, modelForward)
		g.compare(dev, "h2", m.inputs[2].X.Data, modelForward)
		g.compare(dev, "logits", logits.Data, modelForward)
		stats, dlogits := m.Loss(b, logits)
		if want := g.scalar("loss"); !(math.Abs(stats.Loss-want) <= modelForward*want) {
			t.Errorf("loss %.9g, want %.9g", stats.Loss, want)
		}
		g.compare(dev, "dX", m.Backward(dlogits, nil).Data, modelBackward)
		for _, p := range m.Params.List {
			g.compare(dev, "d_"+modelArray(p.Name), p.of(m.Params.Grads), modelBackward)
		}
	})
}

func TestGoldenOptimizers(t *testing.T) {
	slotArray := map[string]string{"m": "m_", "v": "v_", "momentum": "buf_"}
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, c := range []struct{ file, kind string }{
			{"model_sage3_adam", Adam}, {"model_sage3_adamw", AdamW}, {"model_sage3_adam_l2", Adam}, {"model_sage3_sgd", SGD},
		} {
			t.Run(c.file, func(t *testing.T) {
				_, m, b := goldenModel(t, dev)
				g := openGolden(t, c.file)
				options := OptimizerOptions{Kind: c.kind, WeightDecay: g.scalar("weight_decay")}
				if c.kind == SGD {
					options.Momentum = g.scalar("momentum")
				} else {
					betas, _ := g.want("betas")
					options.Beta1, options.Beta2, options.Eps = betas[0], betas[1], g.scalar("eps")
				}
				o, err := NewOptimizer(dev, m.Params, options)
				if err != nil {
					t.Fatal(err)
				}
				defer o.Close()
				schedule := Schedule{Kind: ScheduleConstant, Base: g.scalar("lr")}
				losses, _ := g.want("losses")
				for step, want := range losses {
					stats, dlogits := m.Loss(b, forward(t, m, b))
					if !(math.Abs(stats.Loss-want) <= runLosses*want) {
						t.Errorf("loss before step %d is %.9g, want %.9g", step+1, stats.Loss, want)
					}
					if step == 10 {
						break
					}
					m.Backward(dlogits, nil)
					o.Update(schedule.LR(step, 10))
					if step == 0 {
						g.compareParams(dev, m, "p1_", runFirstStep)
					}
				}
				g.compareParams(dev, m, "p10_", runTenthStep)
				for _, slot := range o.Slots() {
					for _, p := range m.Params.List {
						g.compare(dev, slotArray[slot.Name]+modelArray(p.Name), p.of(slot.Data), runMoments)
					}
				}
			})
		}
	})
}

// compareParams holds all parameters to the archive's, with an absolute tolerance.
func (g golden) compareParams(dev compute.Device, m *Model, prefix string, tolerance float64) {
	g.t.Helper()
	for _, p := range m.Params.List {
		want, _ := g.want(prefix + modelArray(p.Name))
		for i, got := range download(dev, p.of(m.Params.Values)) {
			if d := math.Abs(float64(got) - want[i]); !(d <= tolerance) {
				g.t.Errorf("%s%s[%d] is off by %.2g, tolerance %.2g", prefix, modelArray(p.Name), i, d, tolerance)
				break
			}
		}
	}
}
