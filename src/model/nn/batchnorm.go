package nn

import (
	"fmt"
	"math"

	"halognn/src/devices/compute"
)

// batchNorm normalises the columns of a layer's output (Ioffe and Szegedy, ICML 2015), as BatchNorm
// of PyTorch Geometric does. Training uses the mean and variance of this rank's minibatch only.
// Evaluation uses running values, which are equal on all ranks:
//
//	minibatch   from n, mean, variance of its rows: n*mean, n*unbiased variance, n
//	step        these are summed over minibatches and ranks, with the gradients
//	update      running = 0.9 running + 0.1 sum/n
//
// If several ranks share one minibatch, mean and variance are over the rows of all these ranks. For
// this each rank gathers numbers of the other ranks, in rank order: in forward the mean and
// variance of their rows, and in backward their sums dgamma and dbeta.
type batchNorm struct {
	gamma, beta, dgamma, dbeta []float32 // [out]
	x                          *buffer   // [D,out] output of the convolution
	mean, variance             *buffer   // [out] mean and variance of the minibatch
	total                      float64   // number of rows of the minibatch, over all ranks
	// [2,out] the correction that backward adds to dx if ranks share the minibatch: factors of the
	// normalised rows, then constants.
	shift *buffer
	// [5,out] copies on the host: mean and variance of this rank's rows, the sums dgamma and dbeta,
	// and gamma.
	host    []float32
	running []Param // running_mean, running_var [out], num_batches_tracked [1]
	values  [2][]float32
}

// momentum is the weight of the newest sums in the running values. It is PyTorch's default.
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
	return reserveAll(sized{n.x, rows * out}, sized{n.mean, out}, sized{n.variance, out},
		sized{n.shift, 2 * out})
}

// forward normalises x, the output of the convolution, writes the result to y, and applies the
// epilogue to y.
func (n *batchNorm) forward(dev compute.Device, y, x compute.Matrix, in *Input,
	epilogue compute.Epilogue) error {
	mean, variance := n.values[0], n.values[1]
	if in.Train {
		mean, variance = n.mean.data[:y.Cols], n.variance.data[:y.Cols]
		dev.ColumnMoments(mean, variance, x)
		n.total = float64(x.Rows)
		if in.Gather != nil {
			if err := n.join(dev, mean, variance, x.Rows, in.Gather); err != nil {
				return err
			}
		}
	}
	dev.BatchNorm(y, x, n.gamma, n.beta, mean, variance, normEps, epilogue)
	return nil
}

// join computes the mean and variance of the rows of all ranks from those of each rank's rows
// (Chan, Golub and LeVeque, 1983). All ranks get the same bits.
func (n *batchNorm) join(dev compute.Device, mean, variance []float32, rows int,
	gather Gather) error {
	out := len(mean)
	if n.host == nil {
		n.host = make([]float32, 5*out)
	}
	own := n.host[:2*out+1]
	dev.Download(own[:out], mean)
	dev.Download(own[out:2*out], variance)
	own[2*out] = float32(rows)
	all, err := gather(own, false)
	if err != nil {
		return err
	}
	n.total = 0
	for r := 2 * out; r < len(all); r += len(own) {
		n.total += float64(all[r])
	}
	// The function over returns the mean over ranks of value(moments of the rank). A rank's weight
	// in this mean is its number of rows.
	over := func(value func(own []float32) float64) float32 {
		sum := 0.0
		for r := 0; r < len(all); r += len(own) {
			sum += float64(float64(all[r+2*out]) * value(all[r:r+2*out]))
		}
		return float32(sum / max(1, n.total))
	}
	for j := range out {
		n.host[j] = over(func(own []float32) float64 { return float64(own[j]) })
		n.host[out+j] = over(func(own []float32) float64 {
			d := float64(own[j]) - float64(n.host[j])
			return float64(own[out+j]) + float64(d*d)
		})
	}
	dev.Upload(mean, n.host[:out])
	dev.Upload(variance, n.host[out:2*out])
	return nil
}

// backward backpropagates dy, the gradient with respect to y, through the epilogue in place. It
// sets the gradients of the parameters to this rank's part of them. It returns the gradient with
// respect to x, in the memory of dx or of x. The argument dx may be dy itself.
func (n *batchNorm) backward(dev compute.Device, dx, dy, x, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) (compute.Matrix, error) {
	mean, variance := n.mean.data[:dy.Cols], n.variance.data[:dy.Cols]
	dev.BatchNormBackward(dx, n.dgamma, n.dbeta, dy, x, n.gamma, mean, variance, normEps, y,
		epilogue)
	if in.Gather == nil {
		return dx, nil
	}
	shift, bias, err := n.correction(dev, x.Rows, in.Gather)
	if err == nil {
		dev.BatchNorm(x, x, shift, bias, mean, variance, normEps, compute.Epilogue{Add: dx})
	}
	return x, err
}

// correction returns what must be added to dx, because dx was computed from dgamma and dbeta, which
// are sums over the R rows of this rank alone. To each number of dx, scale times the normalised
// number plus shift must be added. If G and B are the sums over the N rows of all ranks, scale and
// shift are
//
//	gamma*root * (dgamma/R - G/N)     gamma*root * (dbeta/R - B/N)
func (n *batchNorm) correction(dev compute.Device, rows int, gather Gather) (scale, shift []float32,
	err error) {
	out := len(n.dgamma)
	variance, own, gamma := n.host[out:2*out], n.host[2*out:4*out], n.host[4*out:]
	dev.Download(own[:out], n.dgamma)
	dev.Download(own[out:], n.dbeta)
	dev.Download(gamma, n.gamma)
	all, err := gather(own, true)
	if err != nil {
		return nil, nil, err
	}
	for k, v := range own {
		sum, j := 0.0, k%out
		for r := k; r < len(all); r += len(own) {
			sum += float64(all[r])
		}
		root := 1 / math.Sqrt(float64(variance[j])+normEps)
		own[k] = float32(float64(gamma[j]) * root *
			(float64(v)/float64(max(1, rows)) - sum/max(1, n.total)))
	}
	dev.Upload(n.shift.data[:2*out], own)
	return n.shift.data[:out], n.shift.data[out : 2*out], nil
}

// setStatistics writes sums over the minibatch into Params.front, the host copy of the beginning of
// Grads. The update of the running values needs these sums. Waits for the device.
func (m *Model) setStatistics() {
	for l := range m.stages {
		n := m.stages[l].batch
		if n == nil {
			continue
		}
		rows, out := float32(m.inputs[l].Destinations), m.stages[l].out
		mean, variance := n.running[0].part(m.Params.front), n.running[1].part(m.Params.front)
		m.dev.Download(mean, n.mean.data[:out])
		m.dev.Download(variance, n.variance.data[:out])
		unbiased := rows
		if total := float32(n.total); total > 1 {
			unbiased = rows * total / (total - 1)
		}
		for j := range mean {
			mean[j] *= rows
			variance[j] *= unbiased
		}
		n.running[2].part(m.Params.front)[0] = rows
	}
}

// moveStatistics updates the running values from the sums in Grads. Waits for the device.
func (p *Params) moveStatistics() {
	if len(p.Statistics) == 0 {
		return
	}
	values, sums := p.running, p.front
	p.dev.Download(values, p.Values[:p.first])
	p.dev.Download(sums, p.Grads[:p.first])
	for i := 0; i < len(p.Statistics); i += 3 {
		rows := p.Statistics[i+2].part(sums)[0]
		if rows == 0 {
			continue
		}
		for _, q := range p.Statistics[i : i+2] {
			running, sum := q.part(values), q.part(sums)
			for j := range running {
				running[j] = float32((1-momentum)*running[j]) + float32(momentum*(sum[j]/rows))
			}
		}
		p.Statistics[i+2].part(values)[0]++
	}
	p.dev.Upload(p.Values[:p.first], values)
}
