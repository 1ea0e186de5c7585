package meter

import "halognn/src/compute"

const float = 4 // bytes

// device hands kernels on and counts them.
type device struct {
	inner compute.Device
	m     *Meter
}

func size(m compute.Matrix) int { return m.Rows * m.Cols }

// written is how often a result is passed over: once, or twice if it is added to.
func written(add bool) int {
	if add {
		return 2
	}
	return 1
}

// Sync implements compute.Device.
func (d *device) Sync() error {
	err := d.inner.Sync()
	if d.m.on && err == nil {
		d.m.collect()
	}
	return err
}

// MatMul implements compute.Device.
func (d *device) MatMul(y, x, w compute.Matrix, add bool) {
	d.m.kernel(matMul, float*(size(x)+size(w)+written(add)*size(y)), 2*size(x)*y.Cols, func() { d.inner.MatMul(y, x, w, add) })
}

// MatMulInput implements compute.Device.
func (d *device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	d.m.kernel(matMulInput, float*(size(dy)+size(w)+written(add)*size(dx)), 2*size(dx)*dy.Cols, func() { d.inner.MatMulInput(dx, dy, w, add) })
}

// MatMulWeights implements compute.Device.
func (d *device) MatMulWeights(dw, dy, x compute.Matrix) {
	d.m.kernel(matMulWeights, float*(size(dy)+size(x)+size(dw)), 2*size(x)*dy.Cols, func() { d.inner.MatMulWeights(dw, dy, x) })
}

// AddBias implements compute.Device.
func (d *device) AddBias(y compute.Matrix, b []float32) {
	d.m.kernel(addBias, float*(2*size(y)+len(b)), 0, func() { d.inner.AddBias(y, b) })
}

// ColumnSum implements compute.Device.
func (d *device) ColumnSum(db []float32, dy compute.Matrix) {
	d.m.kernel(columnSum, float*(size(dy)+len(db)), 0, func() { d.inner.ColumnSum(db, dy) })
}

// segmentBytes is the size of segments themselves.
func segmentBytes(s compute.Segments) int { return 8*len(s.Indptr) + 4*len(s.Indices) }

// SegmentMean implements compute.Device.
func (d *device) SegmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	bytes := float*(len(s.Indices)*out.Cols+size(out)) + segmentBytes(s)
	d.m.kernel(segmentMean, bytes, 0, func() { d.inner.SegmentMean(out, s, h) })
}

// SegmentSum implements compute.Device.
func (d *device) SegmentSum(out compute.Matrix, s compute.Segments, weights []float32, h compute.Matrix, add bool) {
	bytes := float*(len(s.Indices)*out.Cols+written(add)*size(out)+len(weights)) + segmentBytes(s)
	d.m.kernel(segmentSum, bytes, 0, func() { d.inner.SegmentSum(out, s, weights, h, add) })
}

// SegmentMeanBackward implements compute.Device. Every edge also reads where its destination's segment begins and ends.
func (d *device) SegmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments, dout compute.Matrix, add bool) {
	edges := len(transposed.Indices)
	bytes := float*(edges*dh.Cols+written(add)*size(dh)) + segmentBytes(transposed) + 16*edges
	d.m.kernel(segmentMeanBackward, bytes, 0, func() { d.inner.SegmentMeanBackward(dh, forward, transposed, dout, add) })
}

// ReLU implements compute.Device.
func (d *device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	d.m.kernel(relu, float*2*size(y), 0, func() { d.inner.ReLU(y, p, key, vertices) })
}

// ReLUBackward implements compute.Device.
func (d *device) ReLUBackward(dy, y compute.Matrix, p float32) {
	d.m.kernel(reluBackward, float*3*size(y), 0, func() { d.inner.ReLUBackward(dy, y, p) })
}

// LayerNorm implements compute.Device.
func (d *device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32) {
	d.m.kernel(layerNorm, float*(2*size(x)+2*x.Rows), 0, func() { d.inner.LayerNorm(y, x, gamma, beta, mean, rstd, eps) })
}

// LayerNormBackward implements compute.Device.
func (d *device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix, gamma, mean, rstd []float32) {
	d.m.kernel(layerNormBackward, float*(3*size(x)+2*x.Rows), 0, func() {
		d.inner.LayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean, rstd)
	})
}

// SoftmaxCrossEntropy implements compute.Device.
func (d *device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32, scale float32) (loss float64, correct int) {
	d.m.kernel(softmaxCrossEntropy, float*(size(logits)+len(dlogits.Data)+logits.Rows), 0, func() {
		loss, correct = d.inner.SoftmaxCrossEntropy(dlogits, logits, labels, scale)
	})
	return loss, correct
}

// SigmoidBCE implements compute.Device.
func (d *device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8, scale float32) (loss float64, counts [3]int) {
	d.m.kernel(sigmoidBCE, float*(size(logits)+len(dlogits.Data))+len(targets), 0, func() {
		loss, counts = d.inner.SigmoidBCE(dlogits, logits, targets, scale)
	})
	return loss, counts
}

// Adam implements compute.Device.
func (d *device) Adam(p, g, m, v []float32, o compute.AdamOptions) {
	d.m.kernel(adam, float*7*len(p), 0, func() { d.inner.Adam(p, g, m, v, o) })
}

// SGD implements compute.Device.
func (d *device) SGD(p, g, buf []float32, o compute.SGDOptions) {
	d.m.kernel(sgd, float*5*len(p), 0, func() { d.inner.SGD(p, g, buf, o) })
}
