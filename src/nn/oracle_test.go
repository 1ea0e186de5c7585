package nn

import (
	"fmt"
	"math"
	"testing"

	"halognn/src/compute"
)

// oracle is the whole model once more, in float64 and plain loops, knowing nothing of devices, buffers or backward: its loss,
// differentiated numerically, is what backward must agree with.
type oracle struct {
	config Config
	batch  *Batch
	params map[string][]float64
	masks  [][]float32 // per layer, what dropout multiplies each activation by
}

// newOracle copies the model's parameters. It reads the dropout masks off the device by dropping from ones.
func newOracle(t *testing.T, dev compute.Device, m *Model, b *Batch) *oracle {
	o := &oracle{config: m.Config, batch: b, params: map[string][]float64{}}
	for _, tensor := range m.Params.Tensors(m.Params.Values) {
		o.params[tensor.Name] = widen(tensor.Data)
	}
	for l, h := range b.Hops {
		_, out := m.Config.Widths(l)
		ones := make([]float32, h.Destinations*out)
		for i := range ones {
			ones[i] = 1
		}
		mask := upload(t, dev, h.Destinations, out, ones)
		dev.ReLU(mask, m.Config.Dropout, h.Dropout, h.Vertices)
		o.masks = append(o.masks, download(dev, mask.Data))
	}
	return o
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(x[i])
	}
	return y
}

// loss is the whole forward pass for input rows x [Sources of hop 0, In].
func (o *oracle) loss(x []float64) float64 {
	for l, h := range o.batch.Hops {
		in, out := o.config.Widths(l)
		var y []float64
		if o.config.Kind == "sage" {
			y = o.linear(meanRows(h, x, in), in, out, fmt.Sprintf("convs.%d.lin_l.", l))
			for i, v := range o.linear(x[:h.Destinations*in], in, out, fmt.Sprintf("convs.%d.lin_r.", l)) {
				y[i] += v
			}
		} else {
			y = o.linear(x, in, out, fmt.Sprintf("lins.%d.", l))
		}
		if l < o.config.Layers-1 {
			if o.config.Norm == NormLayer {
				o.normalise(y, out, fmt.Sprintf("norms.%d.", l))
			}
			for i := range y {
				y[i] = max(y[i], 0) * float64(o.masks[l][i])
			}
		}
		x = y
	}
	if o.config.Task == Multilabel {
		return o.sigmoid(x)
	}
	return o.softmax(x)
}

// linear is x Wᵀ + b; a layer without a bias has none in params.
func (o *oracle) linear(x []float64, in, out int, prefix string) []float64 {
	w, b := o.params[prefix+"weight"], o.params[prefix+"bias"]
	y := make([]float64, len(x)/in*out)
	for i := range y {
		r, c := i/out, i%out
		if b != nil {
			y[i] = b[c]
		}
		for k := range in {
			y[i] += x[r*in+k] * w[c*in+k]
		}
	}
	return y
}

func meanRows(h Hop, x []float64, width int) []float64 {
	mean := make([]float64, h.Destinations*width)
	for d := range h.Destinations {
		list := h.Forward.Indices[h.Forward.Indptr[d]:h.Forward.Indptr[d+1]]
		for _, i := range list {
			for k := range width {
				mean[d*width+k] += x[int(i)*width+k] / float64(len(list))
			}
		}
	}
	return mean
}

func (o *oracle) normalise(y []float64, width int, prefix string) {
	gamma, beta := o.params[prefix+"weight"], o.params[prefix+"bias"]
	for r := 0; r < len(y); r += width {
		row := y[r : r+width]
		mean, variance := 0.0, 0.0
		for _, v := range row {
			mean += v / float64(width)
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / float64(width)
		}
		for k, v := range row {
			row[k] = (v-mean)/math.Sqrt(variance+1e-5)*gamma[k] + beta[k]
		}
	}
}

func (o *oracle) softmax(z []float64) float64 {
	loss, classes := 0.0, o.config.Out
	for r, label := range o.batch.Labels {
		sum := 0.0
		for _, v := range z[r*classes : (r+1)*classes] {
			sum += math.Exp(v)
		}
		loss += math.Log(sum) - z[r*classes+int(label)]
	}
	return loss / float64(o.batch.GlobalSeeds)
}

func (o *oracle) sigmoid(z []float64) float64 {
	loss := 0.0
	for i, target := range o.batch.Targets {
		loss += math.Log(1+math.Exp(z[i])) - z[i]*float64(target)
	}
	return loss / float64(o.batch.GlobalSeeds*o.config.Out)
}

// differentiate returns the derivative of the loss with respect to every element of at, which is x or a parameter. The
// step balances the truncation error, its square, against rounding, 1e-16 over it: both below 1e-9.
func (o *oracle) differentiate(at, x []float64) []float64 {
	const step = 1e-5
	gradient := make([]float64, len(at))
	for i, v := range at {
		at[i] = v + step
		up := o.loss(x)
		at[i] = v - step
		gradient[i] = (up - o.loss(x)) / (2 * step)
		at[i] = v
	}
	return gradient
}
