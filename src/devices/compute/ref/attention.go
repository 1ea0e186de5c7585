package ref

import (
	"math"

	"halognn/src/devices/compute"
)

// HeadDots implements compute.Device.
func (d *Device) HeadDots(src, dst, z compute.Matrix, asrc, adst []float32) {
	defer d.probe.Start(compute.CheckHeadDots(src, dst, z, asrc, adst)).Done()
	z = d.wide(0, z)
	headDot(src, z, asrc)
	headDot(dst, z, adst)
}

// headDot sets s[r,h] to the sum of z[r,j]*a[j] over the columns j of head h. The matrix s may have
// fewer rows than z.
func headDot(s, z compute.Matrix, a []float32) {
	width := z.Cols / s.Cols
	for r := range s.Rows {
		for h := range s.Cols {
			s.Row(r)[h] = dot(z.Row(r)[h*width:(h+1)*width], a[h*width:])
		}
	}
}

func dot(x, y []float32) (sum float32) {
	for j, v := range x {
		sum += v * y[j]
	}
	return sum
}

// HeadDotsBackward implements compute.Device.
func (d *Device) HeadDotsBackward(dz compute.Matrix, dasrc, dadst []float32,
	dsrc, ddst, z compute.Matrix, asrc, adst []float32) {
	defer d.probe.Start(compute.CheckHeadDotsBackward(dz, dasrc, dadst, dsrc, ddst, z, asrc,
		adst)).Done()
	z = d.wide(0, z)
	d.headDotBackward(dz, dasrc, dsrc, z, asrc)
	d.headDotBackward(dz, dadst, ddst, z, adst)
}

func (d *Device) headDotBackward(dz compute.Matrix, da []float32, ds, z compute.Matrix,
	a []float32) {
	width := z.Cols / ds.Cols
	clear(da)
	chunks(ds.Rows, func(lo, hi int) {
		sum := d.scratch(z.Cols)
		for r := lo; r < hi; r++ {
			for j := range z.Cols {
				g := ds.Row(r)[j/width]
				sum[j] += g * z.Row(r)[j]
				dz.Row(r)[j] += g * a[j]
			}
		}
		addInto(da, sum)
	})
}

func leaky(v, slope float32) float32 {
	if v > 0 {
		return v
	}
	return v * slope
}

// leakyGradient returns the factor by which leaky multiplies v.
func leakyGradient(v, slope float32) float32 {
	if v > 0 {
		return 1
	}
	return slope
}

// EdgeSoftmax implements compute.Device.
func (d *Device) EdgeSoftmax(alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	slope float32) {
	defer d.probe.Start(compute.CheckEdgeSoftmax(alpha, s, src, dst)).Done()
	for t := range s.Len() {
		for e := s.Indptr[t]; e < s.Indptr[t+1]; e++ {
			for h, v := range src.Row(int(s.Indices[e])) {
				alpha.Row(int(e))[h] = leaky(v+dst.Row(t)[h], slope)
			}
		}
	}
	softmax(alpha, s)
}

// softmax turns the scores of each segment's edges into weights. The largest score is subtracted
// first, so that no exponential overflows.
func softmax(alpha compute.Matrix, s compute.Segments) {
	for t := range s.Len() {
		lo, hi := int(s.Indptr[t]), int(s.Indptr[t+1])
		for h := range alpha.Cols {
			most, sum := float32(math.Inf(-1)), float32(0)
			for e := lo; e < hi; e++ {
				most = max(most, alpha.Row(e)[h])
			}
			for e := lo; e < hi; e++ {
				v := float32(math.Exp(float64(alpha.Row(e)[h] - most)))
				alpha.Row(e)[h] = v
				sum += v
			}
			for e := lo; e < hi; e++ {
				alpha.Row(e)[h] /= sum
			}
		}
	}
}

// EdgeSoftmaxBackward implements compute.Device.
func (d *Device) EdgeSoftmaxBackward(dsrc, ddst, dalpha compute.Matrix, s,
	transposed compute.Segments,
	alpha, src, dst compute.Matrix, slope float32) {
	defer d.probe.Start(compute.CheckEdgeSoftmaxBackward(dsrc, ddst, dalpha, s, transposed, alpha,
		src, dst)).Done()
	softmaxBackward(dalpha, s, alpha)
	clear(ddst.Data[:ddst.Rows*ddst.Cols])
	clear(dsrc.Data[:dsrc.Rows*dsrc.Cols])
	for t := range s.Len() {
		for e := s.Indptr[t]; e < s.Indptr[t+1]; e++ {
			row := dalpha.Row(int(e))
			for h, v := range src.Row(int(s.Indices[e])) {
				row[h] *= leakyGradient(v+dst.Row(t)[h], slope)
			}
			addInto(ddst.Row(t), row)
		}
	}
	for i := range transposed.Len() {
		for _, e := range transposed.Edges[transposed.Indptr[i]:transposed.Indptr[i+1]] {
			addInto(dsrc.Row(i), dalpha.Row(int(e)))
		}
	}
}

// softmaxBackward turns the gradients of the weights into the gradients of the scores.
func softmaxBackward(dalpha compute.Matrix, s compute.Segments, alpha compute.Matrix) {
	for t := range s.Len() {
		lo, hi := int(s.Indptr[t]), int(s.Indptr[t+1])
		for h := range alpha.Cols {
			mean := float32(0)
			for e := lo; e < hi; e++ {
				mean += alpha.Row(e)[h] * dalpha.Row(e)[h]
			}
			for e := lo; e < hi; e++ {
				dalpha.Row(e)[h] = alpha.Row(e)[h] * (dalpha.Row(e)[h] - mean)
			}
		}
	}
}

// EdgeDotSoftmax implements compute.Device.
func (d *Device) EdgeDotSoftmax(alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	defer d.probe.Start(compute.CheckEdgeDotSoftmax(alpha, s, src, dst, a)).Done()
	width, groups := src.Cols/alpha.Cols, a.Segments(s.Len())
	for g := range groups.Ends {
		vector := a.Of(a.Data, g, src.Cols)
		lo, hi := groups.Rows(g)
		for t := lo; t < hi; t++ {
			for e := s.Indptr[t]; e < s.Indptr[t+1]; e++ {
				scores := alpha.Row(int(e))
				clear(scores)
				for j, v := range src.Row(int(s.Indices[e])) {
					scores[j/width] += vector[j] * leaky(v+dst.Row(t)[j], slope)
				}
			}
		}
	}
	softmax(alpha, s)
}

// EdgeDotSoftmaxBackward implements compute.Device.
func (d *Device) EdgeDotSoftmaxBackward(dsrc, ddst compute.Matrix, da []float32,
	dalpha compute.Matrix, s, transposed compute.Segments, alpha, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	defer d.probe.Start(compute.CheckEdgeDotSoftmaxBackward(dsrc, ddst, da, dalpha, s, transposed,
		alpha, src, dst, a)).Done()
	width := src.Cols / alpha.Cols
	softmaxBackward(dalpha, s, alpha)
	// The function gradient returns the gradient of the sum of two rows in column j, without the
	// factor a[j].
	gradient := func(e int32, j int, u float32) float32 {
		return dalpha.Row(int(e))[j/width] * leakyGradient(u, slope)
	}
	segments, sources := a.Segments(s.Len()), a.OfSources(transposed.Len())
	for g := range segments.Ends {
		first, end := segments.Rows(g)
		vector, dvector := a.Of(a.Data, g, src.Cols), a.Of(da, g, src.Cols)
		clear(dvector)
		chunks(end-first, func(lo, hi int) {
			sum := d.scratch(src.Cols)
			for t := first + lo; t < first+hi; t++ {
				for j := range src.Cols {
					var row, of float32
					for e := s.Indptr[t]; e < s.Indptr[t+1]; e++ {
						u := src.Row(int(s.Indices[e]))[j] + dst.Row(t)[j]
						g := gradient(int32(e), j, u)
						row += g
						of += g * u
					}
					ddst.Row(t)[j] = vector[j] * row
					sum[j] += of
				}
			}
			addInto(dvector, sum)
		})
		first, end = sources.Rows(g)
		for i := first; i < end; i++ {
			for j := range src.Cols {
				row := float32(0)
				for k := transposed.Indptr[i]; k < transposed.Indptr[i+1]; k++ {
					u := src.Row(i)[j] + dst.Row(int(transposed.Indices[k]))[j]
					row += gradient(transposed.Edges[k], j, u)
				}
				dsrc.Row(i)[j] += vector[j] * row
			}
		}
	}
}

// EdgeSum implements compute.Device.
func (d *Device) EdgeSum(y compute.Matrix, s compute.Segments, alpha, z compute.Matrix) {
	defer d.probe.Start(compute.CheckEdgeSum(y, s, alpha, z)).Done()
	z = d.wide(0, z)
	width := z.Cols / alpha.Cols
	for t := range s.Len() {
		row := y.Row(t)
		clear(row)
		for e := int(s.Indptr[t]); e < int(s.Indptr[t+1]); e++ {
			for j, v := range z.Row(int(s.Indices[e])) {
				row[j] += v * alpha.Row(e)[j/width]
			}
		}
	}
}

// EdgeSumBackward implements compute.Device.
func (d *Device) EdgeSumBackward(dz, dalpha compute.Matrix, transposed compute.Segments,
	alpha, z, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckEdgeSumBackward(dz, dalpha, transposed, alpha, z, dy)).Done()
	z = d.wide(0, z)
	width := z.Cols / alpha.Cols
	clear(dz.Data[:dz.Rows*dz.Cols])
	for i := range transposed.Len() {
		for k := transposed.Indptr[i]; k < transposed.Indptr[i+1]; k++ {
			e, g := int(transposed.Edges[k]), dy.Row(int(transposed.Indices[k]))
			for j, v := range g {
				dz.Row(i)[j] += v * alpha.Row(e)[j/width]
			}
			for h := range alpha.Cols {
				dalpha.Row(e)[h] = dot(g[h*width:(h+1)*width], z.Row(i)[h*width:])
			}
		}
	}
}

// AttendPairs implements compute.Device.
func (d *Device) AttendPairs(y, alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	defer d.probe.Start(compute.CheckAttendPairs(y, alpha, s, src, dst, a)).Done()
	compute.AttendPairsInParts(d, y, alpha, s, src, dst, a, slope)
}

// Attend implements compute.Device.
func (d *Device) Attend(y, alpha compute.Matrix, s compute.Segments, src, dst, z compute.Matrix,
	slope float32) {
	defer d.probe.Start(compute.CheckAttend(y, alpha, s, src, dst, z)).Done()
	compute.AttendInParts(d, y, alpha, s, src, dst, z, slope)
}

// AttendBackward implements compute.Device.
func (d *Device) AttendBackward(dz, dsrc, ddst, dalpha compute.Matrix, s,
	transposed compute.Segments, alpha, src, dst, z, dy compute.Matrix, slope float32) {
	defer d.probe.Start(compute.CheckAttendBackward(dz, dsrc, ddst, dalpha, s, transposed, alpha,
		src, dst, z, dy)).Done()
	compute.AttendBackwardInParts(d, dz, dsrc, ddst, dalpha, s, transposed, alpha, src, dst, z, dy,
		slope)
}

// HeadMean implements compute.Device.
func (d *Device) HeadMean(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMean(y, x)).Done()
	heads := x.Cols / max(1, y.Cols)
	for r := range y.Rows {
		row := y.Row(r)
		clear(row)
		for h := range heads {
			addInto(row, x.Row(r)[h*y.Cols:(h+1)*y.Cols])
		}
		for j := range row {
			row[j] *= 1 / float32(heads)
		}
	}
}

// HeadMeanBackward implements compute.Device.
func (d *Device) HeadMeanBackward(dx, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMeanBackward(dx, dy)).Done()
	heads := dx.Cols / max(1, dy.Cols)
	for r := range dx.Rows {
		for j := range dx.Cols {
			dx.Row(r)[j] = dy.Row(r)[j%dy.Cols] * (1 / float32(heads))
		}
	}
}

// HeadMax implements compute.Device.
func (d *Device) HeadMax(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMax(y, x)).Done()
	for r := range y.Rows {
		for j := range y.Cols {
			y.Row(r)[j] = x.Row(r)[largestHead(x.Row(r), y.Cols, j)]
		}
	}
}

// largestHead returns the index in a row at which column j is largest over all heads. Each head has
// width columns.
func largestHead(row []float32, width, j int) int {
	at := j
	for i := j; i < len(row); i += width {
		if larger(row[i], row[at]) {
			at = i
		}
	}
	return at
}

// HeadMaxBackward implements compute.Device.
func (d *Device) HeadMaxBackward(dx, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMaxBackward(dx, dy, x)).Done()
	for r := range dy.Rows {
		for j := range dy.Cols {
			at := largestHead(x.Row(r), dy.Cols, j)
			for i := j; i < dx.Cols; i += dy.Cols {
				dx.Row(r)[i] = 0
			}
			dx.Row(r)[at] = dy.Row(r)[j]
		}
	}
}
