package ref

import (
	"math"

	"halognn/src/compute"
)

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	if p == 0 {
		compute.CheckRows("ReLU", y)
		for i, v := range y.Data[:y.Rows*y.Cols] {
			if v < 0 {
				y.Data[i] = 0
			}
		}
		return
	}
	compute.CheckRows("ReLU", y, len(vertices))
	threshold, scale := compute.DropoutThreshold(p), compute.DropoutScale(p)
	for r := range y.Rows {
		row, bits := y.Row(r), key.Row(vertices[r])
		for j, v := range row {
			if v < 0 || bits.Bits(j) < threshold {
				row[j] = 0
			} else {
				row[j] = v * scale
			}
		}
	}
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	compute.CheckSame("ReLUBackward", dy, y)
	scale := compute.DropoutScale(p)
	for i, v := range y.Data[:y.Rows*y.Cols] {
		if v > 0 {
			dy.Data[i] *= scale
		} else {
			dy.Data[i] = 0
		}
	}
}

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32) {
	compute.CheckSame("LayerNorm", y, x)
	compute.CheckColumns("LayerNorm", x, len(gamma), len(beta))
	compute.CheckRows("LayerNorm", x, len(mean), len(rstd))
	for r := range x.Rows {
		row, out := x.Row(r), y.Row(r)
		var sum, squares float32
		for _, v := range row {
			sum += v
		}
		mean[r] = sum / float32(len(row))
		for _, v := range row {
			squares += (v - mean[r]) * (v - mean[r])
		}
		rstd[r] = 1 / float32(math.Sqrt(float64(squares/float32(len(row))+eps)))
		for j, v := range row {
			out[j] = (v-mean[r])*rstd[r]*gamma[j] + beta[j]
		}
	}
}

// LayerNormBackward implements compute.Device. With n = (x-mean)*rstd and g = dy*gamma:
//
//	dx = rstd * (g - mean(g) - n*mean(g*n))     dgamma = sum of dy*n     dbeta = sum of dy
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix, gamma, mean, rstd []float32) {
	compute.CheckSame("LayerNormBackward", dx, dy)
	compute.CheckSame("LayerNormBackward", dx, x)
	compute.CheckColumns("LayerNormBackward", x, len(gamma), len(dgamma), len(dbeta))
	compute.CheckRows("LayerNormBackward", x, len(mean), len(rstd))
	clear(dgamma)
	clear(dbeta)
	chunks(x.Rows, func(lo, hi int) {
		sum := d.scratch(2 * x.Cols)
		sumGamma, sumBeta := sum[:x.Cols], sum[x.Cols:]
		for r := lo; r < hi; r++ {
			var meanG, meanGN float32
			in, grad, out := x.Row(r), dy.Row(r), dx.Row(r)
			for j, v := range in {
				g := grad[j] * gamma[j]
				meanG += g
				meanGN += g * ((v - mean[r]) * rstd[r])
			}
			meanG /= float32(x.Cols)
			meanGN /= float32(x.Cols)
			for j, v := range in {
				g, n := grad[j], (v-mean[r])*rstd[r]
				sumGamma[j] += g * n
				sumBeta[j] += g
				out[j] = rstd[r] * (g*gamma[j] - meanG - n*meanGN)
			}
		}
		addInto(dgamma, sumGamma)
		addInto(dbeta, sumBeta)
	})
}
