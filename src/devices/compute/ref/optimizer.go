package ref

import (
	"math"

	"halognn/src/devices/compute"
)

// Adam implements compute.Device.
func (d *Device) Adam(p, g, m, v []float32, o compute.AdamOptions) {
	defer d.probe.Start(compute.CheckAdam(p, g, m, v)).Done()
	if !o.Within.Allows() {
		return
	}
	c := o.Coefficients()
	for i := range p {
		grad := g[i] + c.L2*p[i]
		m[i] = c.Beta1*m[i] + c.OneMinusBeta1*grad
		v[i] = c.Beta2*v[i] + c.OneMinusBeta2*grad*grad
		p[i] = c.Decay*p[i] - c.Step*m[i]/(float32(math.Sqrt(float64(v[i])))*c.Root+c.Eps)
	}
}

// SGD implements compute.Device.
func (d *Device) SGD(p, g, buf []float32, o compute.SGDOptions) {
	defer d.probe.Start(compute.CheckSGD(p, g, buf)).Done()
	if !o.Within.Allows() {
		return
	}
	lr, momentum, decay := float32(o.LR), float32(o.Momentum), float32(o.WeightDecay)
	for i := range p {
		grad := g[i] + decay*p[i]
		if o.Step > 1 {
			grad += momentum * buf[i]
		}
		buf[i] = grad
		p[i] -= lr * grad
	}
}
