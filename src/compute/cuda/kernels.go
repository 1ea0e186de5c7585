//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/compute"
)

// The sizes of scratch are worked out here and in the kernels, from the same number; and so are references to rows.
var (
	_ [compute.ChunkRows]struct{}  = [C.HALOGNN_CHUNK_ROWS]struct{}{}
	_ [compute.RefRowBits]struct{} = [C.HALOGNN_ROW_BITS]struct{}{}
)

// partial returns room for a sum of n floats of each chunk of rows.
func (d *Device) partial(rows, n int) *C.float {
	chunks := (rows + compute.ChunkRows - 1) / compute.ChunkRows
	if err := d.reserve(&d.scratch, max(1, chunks*n)*4, useScratch); err != nil {
		panic(err)
	}
	return (*C.float)(d.scratch.p)
}

func size(m compute.Matrix) (rows, cols C.int64_t) { return C.int64_t(m.Rows), C.int64_t(m.Cols) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// MatMul implements compute.Device.
func (d *Device) MatMul(y, x, w compute.Matrix, add bool) {
	compute.CheckProduct("MatMul", y, x, w)
	r, f := size(x)
	must("MatMul", C.gpu_matmul(d.c, float(y.Data), float(x.Data), float(w.Data), r, f, C.int64_t(w.Rows), cBool(add)))
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	compute.CheckProduct("MatMulInput", dy, dx, w)
	r, f := size(dx)
	must("MatMulInput", C.gpu_matmul_input(d.c, float(dx.Data), float(dy.Data), float(w.Data), r, f, C.int64_t(w.Rows), cBool(add)))
}

// MatMulWeights implements compute.Device.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	compute.CheckProduct("MatMulWeights", dy, x, dw)
	r, f := size(x)
	must("MatMulWeights", C.gpu_matmul_weights(d.c, float(dw.Data), float(dy.Data), float(x.Data), r, f, C.int64_t(dw.Rows),
		d.partial(x.Rows, dw.Rows*dw.Cols)))
}

// AddBias implements compute.Device.
func (d *Device) AddBias(y compute.Matrix, b []float32) {
	compute.CheckColumns("AddBias", y, len(b))
	rows, cols := size(y)
	must("AddBias", C.gpu_add_bias(d.c, float(y.Data), rows, cols, float(b)))
}

// ColumnSum implements compute.Device.
func (d *Device) ColumnSum(db []float32, dy compute.Matrix) {
	compute.CheckColumns("ColumnSum", dy, len(db))
	rows, cols := size(dy)
	must("ColumnSum", C.gpu_column_sum(d.c, float(db), rows, cols, float(dy.Data), d.partial(dy.Rows, dy.Cols)))
}

// SegmentMean implements compute.Device.
func (d *Device) SegmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	compute.CheckSegments("SegmentMean", s)
	compute.CheckRows("SegmentMean", out, s.Len())
	compute.CheckColumns("SegmentMean", h, out.Cols)
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("SegmentMean", s, h.Rows)
	rows, cols := size(out)
	must("SegmentMean", C.gpu_segment_mean(d.c, float(out.Data), rows, cols, indptr, indices, float(h.Data)))
}

// SegmentSum implements compute.Device.
func (d *Device) SegmentSum(out compute.Matrix, s compute.Segments, weights []float32, h compute.Matrix, add bool) {
	compute.CheckSegmentSum(out, s, weights, h)
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4 + len(weights)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("SegmentSum", s, h.Rows)
	edges := (*C.float)(onDevice(d, weights))
	rows, cols := size(out)
	must("SegmentSum", C.gpu_segment_sum(d.c, float(out.Data), rows, cols, indptr, indices, edges, float(h.Data), cBool(add)))
}

// SegmentMeanBackward implements compute.Device.
func (d *Device) SegmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments, dout compute.Matrix, add bool) {
	compute.CheckSegmentMeanBackward(dh, forward, transposed, dout)
	d.arrays(len(forward.Indptr)*8 + len(transposed.Indptr)*8 + len(transposed.Indices)*4)
	degrees, indptr := d.indptr(forward.Indptr), d.indptr(transposed.Indptr)
	indices := d.indices("SegmentMeanBackward", transposed, dout.Rows)
	rows, cols := size(dh.RowsAt(0, transposed.Len()))
	must("SegmentMeanBackward", C.gpu_segment_mean_backward(d.c, float(dh.Data), rows, cols, indptr, indices, degrees, float(dout.Data),
		cBool(add)))
	if rest := dh.RowsAt(transposed.Len(), dh.Rows); !add && len(rest.Data) > 0 {
		must("SegmentMeanBackward", C.gpu_zero(d.c, C.HALOGNN_COMPUTE, unsafe.Pointer(float(rest.Data)), C.int64_t(4*len(rest.Data))))
	}
}

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	if p == 0 {
		compute.CheckRows("ReLU", y)
		must("ReLU", C.gpu_relu(d.c, float(y.Data), C.int64_t(y.Rows*y.Cols)))
		return
	}
	compute.CheckRows("ReLU", y, len(vertices))
	threshold, scale := compute.DropoutThreshold(p), compute.DropoutScale(p)
	d.arrays(len(vertices) * 4)
	rows, cols := size(y)
	must("ReLU", C.gpu_relu_dropout(d.c, float(y.Data), rows, cols, C.uint32_t(threshold), C.float(scale),
		C.uint64_t(key.K1)<<32|C.uint64_t(key.K0), (*C.int32_t)(onDevice(d, vertices))))
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	compute.CheckSame("ReLUBackward", dy, y)
	must("ReLUBackward", C.gpu_relu_backward(d.c, float(dy.Data), C.int64_t(y.Rows*y.Cols), float(y.Data), C.float(compute.DropoutScale(p))))
}

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32) {
	compute.CheckSame("LayerNorm", y, x)
	compute.CheckColumns("LayerNorm", x, len(gamma), len(beta))
	compute.CheckRows("LayerNorm", x, len(mean), len(rstd))
	rows, cols := size(x)
	must("LayerNorm", C.gpu_layer_norm(d.c, float(y.Data), rows, cols, float(x.Data), float(gamma), float(beta), float(mean), float(rstd),
		C.float(eps)))
}

// LayerNormBackward implements compute.Device.
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix, gamma, mean, rstd []float32) {
	compute.CheckSame("LayerNormBackward", dx, dy)
	compute.CheckSame("LayerNormBackward", dx, x)
	compute.CheckColumns("LayerNormBackward", x, len(gamma), len(dgamma), len(dbeta))
	compute.CheckRows("LayerNormBackward", x, len(mean), len(rstd))
	rows, cols := size(x)
	must("LayerNormBackward", C.gpu_layer_norm_backward(d.c, float(dx.Data), float(dgamma), float(dbeta), rows, cols, float(dy.Data),
		float(x.Data), float(gamma), float(mean), float(rstd), d.partial(x.Rows, 2*x.Cols)))
}

// SoftmaxCrossEntropy implements compute.Device.
func (d *Device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32, scale float32) (loss float64, correct int) {
	compute.CheckLoss("SoftmaxCrossEntropy", dlogits, logits)
	compute.CheckLabels("SoftmaxCrossEntropy", logits, labels)
	d.arrays(len(labels) * 4)
	rows, cols := size(logits)
	on := (*C.int32_t)(onDevice(d, labels))
	must("SoftmaxCrossEntropy", C.gpu_softmax_ce(d.c, float(dlogits.Data), rows, cols, float(logits.Data), on, C.float(scale),
		(*C.halognn_cuda_loss)(d.answer.p), d.losses(rows)))
	sum := d.answered("SoftmaxCrossEntropy")
	return float64(sum.loss) * float64(scale), int(sum.counts[0])
}

// SigmoidBCE implements compute.Device.
func (d *Device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8, scale float32) (loss float64, counts [3]int) {
	compute.CheckLoss("SigmoidBCE", dlogits, logits)
	compute.CheckLengths("SigmoidBCE", logits.Rows*logits.Cols, len(targets))
	d.arrays(len(targets))
	rows, cols := size(logits)
	on := (*C.uint8_t)(onDevice(d, targets))
	must("SigmoidBCE", C.gpu_sigmoid_bce(d.c, float(dlogits.Data), rows, cols, float(logits.Data), on, C.float(scale),
		(*C.halognn_cuda_loss)(d.answer.p), d.losses(rows)))
	sum := d.answered("SigmoidBCE")
	return float64(sum.loss) * float64(scale), [3]int{int(sum.counts[0]), int(sum.counts[1]), int(sum.counts[2])}
}

// Adam implements compute.Device.
func (d *Device) Adam(p, g, m, v []float32, o compute.AdamOptions) {
	compute.CheckLengths("Adam", len(p), len(g), len(m), len(v))
	c := o.Coefficients()
	must("Adam", C.gpu_adam(d.c, float(p), float(m), float(v), C.int64_t(len(p)), float(g), C.float(c.L2), C.float(c.Decay), C.float(c.Beta1),
		C.float(c.OneMinusBeta1), C.float(c.Beta2), C.float(c.OneMinusBeta2), C.float(c.Step), C.float(c.Root), C.float(c.Eps)))
}

// SGD implements compute.Device.
func (d *Device) SGD(p, g, buf []float32, o compute.SGDOptions) {
	compute.CheckLengths("SGD", len(p), len(g), len(buf))
	must("SGD", C.gpu_sgd(d.c, float(p), float(buf), C.int64_t(len(p)), float(g), C.float(o.WeightDecay), C.float(o.Momentum), C.float(o.LR),
		cBool(o.Step <= 1)))
}
