package ref

import (
	"math"

	"halognn/src/devices/compute"
)

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32,
	epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckLayerNorm(y, x, gamma, beta, mean, rstd, epilogue)).Done()
	d.into(y, epilogue.Rounded, func(y compute.Matrix) {
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
		epilogue.Apply(d, y)
	})
}

// LayerNormBackward implements compute.Device. With n = (x-mean)*rstd and g = dy*gamma:
//
//	dx = rstd * (g - mean(g) - n*mean(g*n))     dgamma = sum of dy*n     dbeta = sum of dy
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, rstd []float32, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckLayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean, rstd,
		y, epilogue)).Done()
	dy = d.gradient(dy)
	epilogue.Backward(d, dy, y)
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

// ColumnMoments implements compute.Device.
func (d *Device) ColumnMoments(mean, variance []float32, x compute.Matrix) {
	defer d.probe.Start(compute.CheckColumnMoments(mean, variance, x)).Done()
	clear(mean)
	clear(variance)
	if x.Rows == 0 {
		return
	}
	over := func(of []float32, value func(j int, v float32) float32) {
		chunks(x.Rows, func(lo, hi int) {
			sum := d.scratch(x.Cols)
			for r := lo; r < hi; r++ {
				for j, v := range x.Row(r) {
					sum[j] += value(j, v)
				}
			}
			addInto(of, sum)
		})
		divide(of, x.Rows)
	}
	over(mean, func(_ int, v float32) float32 { return v })
	over(variance, func(j int, v float32) float32 { return (v - mean[j]) * (v - mean[j]) })
}

func root(variance, eps float32) float32 {
	return 1 / float32(math.Sqrt(float64(variance+eps)))
}

// BatchNorm implements compute.Device.
func (d *Device) BatchNorm(y, x compute.Matrix, gamma, beta, mean, variance []float32,
	eps float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckBatchNorm(y, x, gamma, beta, mean, variance, epilogue)).Done()
	d.into(y, epilogue.Rounded, func(y compute.Matrix) {
		for r := range x.Rows {
			for j, v := range x.Row(r) {
				y.Row(r)[j] = (v-mean[j])*root(variance[j], eps)*gamma[j] + beta[j]
			}
		}
		epilogue.Apply(d, y)
	})
}

// BatchNormBackward implements compute.Device. With n = (x-mean)*root, over R rows:
//
//	dgamma = sum of dy*n     dbeta = sum of dy     dx = gamma*root * (dy - dbeta/R - n*dgamma/R)
func (d *Device) BatchNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, variance []float32, eps float32, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckBatchNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean,
		variance, y, epilogue)).Done()
	dy = d.gradient(dy)
	epilogue.Backward(d, dy, y)
	clear(dgamma)
	clear(dbeta)
	chunks(x.Rows, func(lo, hi int) {
		sum := d.scratch(2 * x.Cols)
		for r := lo; r < hi; r++ {
			for j, g := range dy.Row(r) {
				sum[j] += g * ((x.Row(r)[j] - mean[j]) * root(variance[j], eps))
				sum[x.Cols+j] += g
			}
		}
		addInto(dgamma, sum[:x.Cols])
		addInto(dbeta, sum[x.Cols:])
	})
	rows := float32(x.Rows)
	for r := range x.Rows {
		for j, g := range dy.Row(r) {
			s := root(variance[j], eps)
			n := (x.Row(r)[j] - mean[j]) * s
			dx.Row(r)[j] = gamma[j] * s * (g - dbeta[j]/rows - n*(dgamma[j]/rows))
		}
	}
}
