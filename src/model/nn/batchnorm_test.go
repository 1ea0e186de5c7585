package nn

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// The numbers of PyTorch: training, backward, running values, and inference by them.
func TestGoldenBatchNorm(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		g := openGolden(t, "batchnorm")
		_, shape := g.want("X")
		x, dy, gamma, beta := g.rows(dev, "X"), g.rows(dev, "dY"), g.rows(dev, "gamma"),
			g.rows(dev, "beta")
		vector := func() []float32 { return upload(t, dev, 1, shape[1], nil).Data }
		mean, variance, dgamma, dbeta := vector(), vector(), vector(), vector()
		y, dx := upload(t, dev, shape[0], shape[1], nil), upload(t, dev, shape[0], shape[1], nil)
		dev.ColumnMoments(mean, variance, x)
		dev.BatchNorm(y, x, gamma.Data, beta.Data, mean, variance, 1e-5, compute.Epilogue{})
		dev.BatchNormBackward(dx, dgamma, dbeta, dy, x, gamma.Data, mean, variance, 1e-5, y,
			compute.Epilogue{})
		g.compare(dev, "Y", y.Data, 6e-6) // PyTorch 6e-7
		g.compare(dev, "dX", dx.Data, 3e-6)
		g.compare(dev, "dgamma", dgamma, 3e-6) // PyTorch 3e-7
		g.compare(dev, "dbeta", dbeta, 3e-6)
		dev.BatchNorm(y, x, gamma.Data, beta.Data, g.rows(dev, "running_mean1").Data,
			g.rows(dev, "running_var1").Data, 1e-5, compute.Epilogue{})
		g.compare(dev, "Y_eval", y.Data, 6e-6)
	})
}

// The running values move by the rows of all minibatches of a step together, however many ranks
// have trained them; inference reads them, and they are saved with the weights.
func TestRunningStatistics(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{
			Kind: "mlp", Layers: 2, In: 3, Hidden: 4, Out: 2, Norm: NormBatch,
			Task: task.Multiclass,
		}
		m := newModel(t, dev, c, 1)
		o, err := NewOptimizer(dev, m.Params, DefaultOptimizer(SGD))
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		rng := rand.New(rand.NewPCG(7, 0))
		var rows, sums, squares [4]float64
		total := make([]float32, m.Params.Len())
		for _, seeds := range []int{5, 0, 9} { // one rank has none
			b, _ := randomBatch(t, dev, rng, c, seeds)
			if seeds == 0 {
				b = &Batch{
					Hops: seedHops(2, 0), X: compute.Matrix{Cols: 3}, Train: true, GlobalSeeds: 14,
				}
			}
			_, grads := pass(t, dev, m, b)
			for i, v := range grads {
				total[i] += v
			}
			x := download(dev, m.stages[0].batch.x.data[:seeds*4])
			for j := range 4 {
				mean, variance := 0.0, 0.0
				for r := range seeds {
					mean += float64(x[r*4+j]) / float64(seeds)
				}
				for r := range seeds {
					off := float64(x[r*4+j]) - mean
					variance += off * off / float64(seeds-1)
				}
				rows[j] += float64(seeds)
				sums[j] += float64(seeds) * mean
				squares[j] += float64(seeds) * variance
			}
		}
		dev.Upload(m.Params.Grads, total)
		o.Update(0)
		tensors := map[string][]float32{}
		for _, x := range m.Params.Tensors(m.Params.Values) {
			tensors[x.Name] = x.Data
		}
		for j := range 4 {
			mean, variance := 0.1*sums[j]/rows[j], 0.9+0.1*squares[j]/rows[j]
			got := float64(tensors["norms.0.module.running_mean"][j])
			if math.Abs(got-mean) > 1e-6 {
				t.Errorf("the running mean of column %d is %g, want %g", j, got, mean)
			}
			got = float64(tensors["norms.0.module.running_var"][j])
			if math.Abs(got-variance) > 1e-6 {
				t.Errorf("the running variance of column %d is %g, want %g", j, got, variance)
			}
		}
		if n := tensors["norms.0.module.num_batches_tracked"]; len(n) != 1 || n[0] != 1 {
			t.Errorf("%v batches are counted", n)
		}
		b, _ := randomBatch(t, dev, rng, c, 6)
		b.Train, b.InputGradient = false, false
		logits := download(dev, forward(t, m, b).Data)
		alone := *b // the first row by itself: others do not count in inference
		alone.Hops, alone.X = seedHops(2, 1), b.X.RowsAt(0, 1)
		if d := deviation(download(dev, forward(t, m, &alone).Data), widen(logits[:2])); d > 1e-6 {
			t.Errorf("the logits of a vertex depend on the others: they deviate by %g", d)
		}
	})
}

// meeting is where the ranks of a test, goroutines of which one at a time uses the device, gather.
type meeting struct {
	turn   sync.Mutex // of the device, and of what follows
	all    sync.Cond  // parts are those of all ranks, or one has failed
	parts  [][]float32
	come   int
	round  []float32 // what was gathered last
	number int       // of rounds
	failed bool
}

// ranks calls f for each rank, and returns their errors.
func (m *meeting) ranks(f func(rank int) error) error {
	errs := make([]error, len(m.parts))
	var done sync.WaitGroup
	for r := range m.parts {
		done.Go(func() {
			m.turn.Lock()
			defer m.turn.Unlock()
			if errs[r] = f(r); errs[r] != nil {
				m.failed = true
				m.all.Broadcast()
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// gather returns what all ranks bring, in their order. The turn is held, and given away meanwhile.
func (m *meeting) gather(rank int, own []float32) ([]float32, error) {
	m.parts[rank] = slices.Clone(own)
	number := m.number
	if m.come++; m.come == len(m.parts) {
		m.round, m.come, m.number = slices.Concat(m.parts...), 0, number+1
		m.all.Broadcast()
	}
	for m.number == number && !m.failed {
		m.all.Wait()
	}
	if m.number == number {
		return nil, errors.New("another rank has failed")
	}
	return slices.Clone(m.round), nil
}

// Ranks that share a minibatch, one of them without rows and one with a single row, come together
// to the loss of a float64 model of all rows, its numerical derivatives, and the statistics of all
// rows.
func TestBatchNormOverTheRowsOfSeveralRanks(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{
			Kind: "mlp", Layers: 3, In: 3, Hidden: 4, Out: 2, Norm: NormBatch, Residual: true,
			Activation: ELU, Task: task.Multiclass,
		}
		whole := newModel(t, dev, c, 1)
		b, rows := randomBatch(t, dev, rand.New(rand.NewPCG(8, 0)), c, 9)
		b.InputGradient = false
		o := newOracle(t, dev, whole, b)
		logits := forward(t, whole, b)
		statistics, _ := whole.Loss(b, logits)
		want := download(dev, whole.Params.Grads)

		first := []int{0, 4, 4, 8, 9}
		grads, losses := make([]float32, whole.Params.Len()), 0.0
		meet := meeting{parts: make([][]float32, len(first)-1)}
		meet.all.L = &meet.turn
		err := meet.ranks(func(rank int) error {
			gather := func(own []float32, _ bool) ([]float32, error) {
				return meet.gather(rank, own)
			}
			m := newModel(t, dev, c, 1)
			lo, hi := first[rank], first[rank+1]
			own := *b
			own.Hops, own.X = seedHops(c.Layers, hi-lo), b.X.RowsAt(lo, hi)
			own.Labels = b.Labels[4*lo : 4*hi]
			inputs, x, err := make([]Input, c.Layers), own.X, error(nil)
			for l := range inputs {
				inputs[l] = own.Input(l, x)
				inputs[l].Gather = gather
				if x, err = m.ForwardLayer(l, &inputs[l]); err != nil {
					return err
				}
			}
			share, dy := m.Loss(&own, x)
			for l := c.Layers - 1; l >= 0; l-- {
				if dy, err = m.BackwardLayer(l, &inputs[l], dy); err != nil {
					return err
				}
			}
			losses += share.Loss
			for i, v := range download(dev, m.Params.Grads) {
				grads[i] += v
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(losses/statistics.Loss - 1); d > 1e-6 || math.IsNaN(d) {
			t.Errorf("the loss is %g, of a rank alone %g", losses, statistics.Loss)
		}
		for _, q := range whole.Params.Statistics {
			if d := deviation(q.part(grads), widen(q.part(want))); d > 1e-6 {
				t.Errorf("%s deviates by %g", q.Name, d)
			}
		}
		x := widen(rows)
		for _, q := range whole.Params.List {
			d := deviation(q.part(grads), o.differentiate(o.params[q.Name], x))
			if strings.HasSuffix(q.Name, "bias") && strings.HasPrefix(q.Name, "lins") &&
				q.Shape[0] == c.Hidden {
				d = deviation(q.part(grads), make([]float64, q.Len())) // a norm takes it away
			}
			if !(d <= gradientTolerance) {
				t.Errorf("the gradient of %s deviates by %.2g", q.Name, d)
			}
		}
	})
}
