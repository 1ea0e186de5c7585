package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// linear is the layer of a model that does not use the graph: y = x Wᵀ + b. It reads no neighbours,
// so the sources and the destinations of every hop are the seeds.
type linear struct {
	dev         compute.Device
	name        string
	in, out     int
	w, dw       compute.Matrix // [out,in]
	bias, dbias []float32
}

func newLinear(s *store, c Config, l int) Layer {
	in, out := c.Widths(l)
	return &linear{dev: s.dev, name: fmt.Sprintf("lins.%d", l), in: in, out: out}
}

func (d *linear) Params() []Param {
	return []Param{weight(d.name+".weight", d.out, d.in), bias(d.name+".bias", d.out, d.in)}
}

func (d *linear) Bind(values, grads [][]float32) {
	d.w, d.dw = matrix(values[0], d.out, d.in), matrix(grads[0], d.out, d.in)
	d.bias, d.dbias = values[1], grads[1]
}

func (d *linear) Needs() Needs { return Needs{Own: true} }

func (d *linear) firstMap() firstMap { return firstMap{weights: [2]trained{1: {d.w, d.dw}}} }

func (d *linear) Reserve(in *Input) error {
	if in.Gradient && in.Sources != in.Destinations {
		panic(fmt.Sprintf("nn: %s got %d sources for %d destinations; a model without neighbours "+
			"is handed its seeds in every hop",
			d.name, in.Sources, in.Destinations))
	}
	return nil
}

func (d *linear) Flops(h *Hop, gradient bool) int {
	return 2 * passes(gradient) * h.Destinations * d.in * d.out
}

// passes returns the number of matrix products of a linear map: one for forward, one for the
// gradient of the weights and, if gradient is true, one for the gradient of the input.
func passes(gradient bool) int {
	if gradient {
		return 3
	}
	return 2
}

func (d *linear) Forward(y compute.Matrix, in *Input, epilogue compute.Epilogue) {
	if len(in.Shares) > 0 {
		addShares(d.dev, y, in, d.bias, epilogue)
		return
	}
	d.dev.Dense(y, d.dense(in, epilogue))
}

func (d *linear) dense(in *Input, epilogue compute.Epilogue) compute.Dense {
	return compute.Dense{X: in.ownRows(), W: d.w, Bias: d.bias, Epilogue: epilogue}
}

func (d *linear) Backward(dx *Gradient, dy, y compute.Matrix, in *Input,
	epilogue compute.Epilogue) {
	if len(in.Shares) > 0 {
		sharesBackward(d.dev, dx.Matrix, dy, y, d.dbias, epilogue)
		return
	}
	d.dev.DenseBackward(compute.DenseGradients{W: d.dw, Bias: d.dbias}, dy, y,
		d.dense(in, epilogue))
	if in.Gradient {
		d.dev.DenseInput(dx.Matrix, dy, d.w, dx.completion(d.dev, dy, compute.Matrix{}))
	}
}
