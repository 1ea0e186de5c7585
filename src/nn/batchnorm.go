package nn

import (
	"fmt"

	"halognn/src/compute"
)

// batchNorm normalises the columns of a layer's output (Ioffe and Szegedy, ICML 2015), as BatchNorm
// of PyTorch Geometric does. Training takes mean and variance of the minibatch, whichever ranks
// train others in the step; evaluation takes the running ones, which all ranks have:
//
//	minibatch   rows n, mean, variance ─> n*mean, n*unbiased variance, n      in the gradients, of each minibatch
//	step        the sums over minibatches and ranks, with the gradients
//	update      running = 0.9 running + 0.1 sum/n
type batchNorm struct {
	gamma, beta, dgamma, dbeta []float32 // [out]
	x                          *buffer   // [D,out] output of the convolution
	mean, variance             *buffer   // [out] of the minibatch
	running                    []Param   // running_mean, running_var [out], num_batches_tracked [1]
	values                     [2][]float32
}

// momentum is PyTorch's default.
const momentum = 0.1

// batchNormStatistics declares the running values of the norm of layer l.
func batchNormStatistics(l, out int) []Param {
	name := fmt.Sprintf("norms.%d.module.", l)
	return []Param{
		constant(name+"running_mean", out, 0), constant(name+"running_var", out, 1),
		constant(name+"num_batches_tracked", 1, 0),
	}
}

func (n *batchNorm) reserve(rows, out int) error {
	return reserveAll(sized{n.x, rows * out}, sized{n.mean, out}, sized{n.variance, out})
}

// forward sets y from x, which the convolution has made, and applies then to it.
func (n *batchNorm) forward(dev compute.Device, y, x compute.Matrix, train bool,
	then compute.Epilogue) {
	mean, variance := n.values[0], n.values[1]
	if train {
		mean, variance = n.mean.data[:y.Cols], n.variance.data[:y.Cols]
		dev.ColumnMoments(mean, variance, x)
	}
	dev.BatchNorm(y, x, n.gamma, n.beta, mean, variance, normEps, then)
}

// backward turns dy, the gradient with respect to y, into that before then, in place, and sets the
// gradients of the parameters and dx, which may be dy.
func (n *batchNorm) backward(dev compute.Device, dx, dy, x, y compute.Matrix,
	then compute.Epilogue) {
	dev.BatchNormBackward(dx, n.dgamma, n.dbeta, dy, x, n.gamma, n.mean.data[:dy.Cols],
		n.variance.data[:dy.Cols], normEps, y, then)
}

// setStatistics puts what the minibatch adds to the running values into the host's copy of the
// gradients' front. Waits for the device.
func (m *Model) setStatistics() {
	for l := range m.stages {
		n := m.stages[l].batch
		if n == nil {
			continue
		}
		rows, out := float32(m.inputs[l].Destinations), m.stages[l].out
		mean, variance := n.running[0].of(m.Params.front), n.running[1].of(m.Params.front)
		m.dev.Download(mean, n.mean.data[:out])
		m.dev.Download(variance, n.variance.data[:out])
		unbiased := rows
		if rows > 1 {
			unbiased = rows * rows / (rows - 1)
		}
		for j := range mean {
			mean[j] *= rows
			variance[j] *= unbiased
		}
		n.running[2].of(m.Params.front)[0] = rows
	}
}

// moveStatistics moves the running values by the sums in Grads. Waits for the device.
func (p *Params) moveStatistics() {
	if len(p.Statistics) == 0 {
		return
	}
	values, sums := p.running, p.front
	p.dev.Download(values, p.Values[:p.first])
	p.dev.Download(sums, p.Grads[:p.first])
	for i := 0; i < len(p.Statistics); i += 3 {
		rows := p.Statistics[i+2].of(sums)[0]
		if rows == 0 {
			continue
		}
		for _, q := range p.Statistics[i : i+2] {
			running, sum := q.of(values), q.of(sums)
			for j := range running {
				running[j] = float32((1-momentum)*running[j]) + float32(momentum*(sum[j]/rows))
			}
		}
		p.Statistics[i+2].of(values)[0]++
	}
	p.dev.Upload(p.Values[:p.first], values)
}
