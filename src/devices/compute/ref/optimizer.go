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

// SparseAdam implements compute.Host.
func (Host) SparseAdam(p, m, v compute.Matrix, of compute.RowGradients,
	o compute.SparseAdamOptions) {
	compute.CheckSparseAdam(p, m, v, of)
	sum := make([]float32, p.Cols)
	for i, row := range of.Rows {
		decay := float32(1)
		for n, k := range of.Indices[of.Indptr[i]:of.Indptr[i+1]] {
			for j := range sum {
				x := of.Gradients.Data[int(k)*p.Cols+j]
				if n > 0 {
					x += sum[j]
				}
				sum[j] = x
			}
		}
		for _, g := range sum {
			if g != 0 {
				decay = o.Decay
			}
		}
		for j, g := range sum {
			k := int(row)*p.Cols + j
			m.Data[k] += float32((g - m.Data[k]) * o.First)
			v.Data[k] += float32((float32(g*g) - v.Data[k]) * o.Second)
			root := float32(math.Sqrt(float64(v.Data[k])))
			p.Data[k] = float32(p.Data[k]*decay) + float32(o.Step*(m.Data[k]/(root+o.Eps)))
		}
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
