//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/compute"
)

// Go and the kernels count alike what a loss leaves.
var (
	_ [compute.MostSuspects]struct{} = [C.HALOGNN_SUSPECTS]struct{}{}
	_ [compute.LeftExtras]struct{}   = [C.HALOGNN_EXTRAS]struct{}{}
)

// SoftmaxCrossEntropy implements compute.Device.
func (d *Device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32,
	scale float32) (loss float64, correct int) {
	d.softmax(dlogits, logits, labels, scale, nil)
	sum := d.answered("SoftmaxCrossEntropy")
	return float64(sum.loss) * float64(scale), int(sum.counts[0])
}

// LeaveSoftmaxCrossEntropy implements compute.Accelerator.
func (d *Device) LeaveSoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32,
	scale float32, to *compute.Left) {
	d.softmax(dlogits, logits, labels, scale, to)
}

func (d *Device) softmax(dlogits, logits compute.Matrix, labels []int32, scale float32,
	to *compute.Left) {
	defer d.probe.Start(compute.CheckSoftmaxCrossEntropy(dlogits, logits, labels)).Done()
	d.arrays(len(labels)*4 + named(to))
	rows, cols := size(logits)
	on := (*C.int32_t)(onDevice(d, labels))
	must("SoftmaxCrossEntropy", C.gpu_softmax_ce(d.c, float(dlogits.Data), rows, cols,
		float(logits.Data), on, C.float(scale), (*C.halognn_cuda_loss)(d.answer.p), d.losses(rows),
		d.leave(to)))
}

// SigmoidBCE implements compute.Device.
func (d *Device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8,
	scale float32) (loss float64, counts [3]int) {
	d.sigmoid(dlogits, logits, targets, scale, nil)
	sum := d.answered("SigmoidBCE")
	return float64(sum.loss) * float64(scale),
		[3]int{int(sum.counts[0]), int(sum.counts[1]), int(sum.counts[2])}
}

// LeaveSigmoidBCE implements compute.Accelerator.
func (d *Device) LeaveSigmoidBCE(dlogits, logits compute.Matrix, targets []uint8, scale float32,
	to *compute.Left) {
	d.sigmoid(dlogits, logits, targets, scale, to)
}

func (d *Device) sigmoid(dlogits, logits compute.Matrix, targets []uint8, scale float32,
	to *compute.Left) {
	defer d.probe.Start(compute.CheckSigmoidBCE(dlogits, logits, targets)).Done()
	d.arrays(len(targets) + named(to))
	rows, cols := size(logits)
	on := (*C.uint8_t)(onDevice(d, targets))
	must("SigmoidBCE", C.gpu_sigmoid_bce(d.c, float(dlogits.Data), rows, cols, float(logits.Data), on,
		C.float(scale), (*C.halognn_cuda_loss)(d.answer.p), d.losses(rows), d.leave(to)))
}

// named returns the room for the vertices of suspects.
func named(to *compute.Left) (bytes int) {
	if to == nil {
		return 0
	}
	for _, s := range to.Suspects {
		bytes += len(s.Vertices)*4 + alignment
	}
	return bytes
}

// leave returns where a loss is left, as kernels take it; nil for nowhere. It is read before the call
// of the kernel returns.
func (d *Device) leave(to *compute.Left) *C.halognn_cuda_left {
	if to == nil {
		return nil
	}
	compute.CheckLeft(to)
	left := d.leaving
	*left = C.halognn_cuda_left{head: float(to.Head), places: (*C.uint32_t)(unsafe.Pointer(float(to.Places))),
		suspects: C.int(len(to.Suspects))}
	for i, x := range to.Extras {
		left.extras[i] = C.float(x)
	}
	for k, s := range to.Suspects {
		in := &left.of[k]
		in.x, in.known = float(s.X.Data), C.int64_t(len(s.Vertices))
		in.rows, in.cols = size(s.X)
		in.vertices = (*C.int32_t)(onDevice(d, s.Vertices))
	}
	return left
}

// losses returns room for the losses of rows.
func (d *Device) losses(rows C.int64_t) unsafe.Pointer {
	if err := d.reserve(&d.scratch, max(1, int(C.gpu_loss_scratch(rows))), useScratch); err != nil {
		panic(err)
	}
	return d.scratch.p
}

// Leave implements compute.Accelerator.
func (d *Device) Leave(dst, src []float32, e compute.Event) {
	compute.CheckLengths("Leave", len(dst), len(src))
	must("Leave", C.gpu_download(d.c, C.HALOGNN_COMPUTE, bytesAt(dst), unsafe.Pointer(float(src)),
		C.int64_t(4*len(src))))
	must("Leave", C.gpu_record(d.c, C.HALOGNN_COMPUTE, e.(*event).p))
}

// Watched implements compute.Accelerator.
func (d *Device) Watched() bool { return d.probe != nil }

// answered waits for a loss and returns it.
func (d *Device) answered(kernel string) *C.halognn_cuda_loss {
	must(kernel, C.gpu_download(d.c, C.HALOGNN_COMPUTE, (*C.char)(unsafe.Pointer(d.result)),
		d.answer.p, C.int64_t(unsafe.Sizeof(*d.result))))
	must(kernel, C.gpu_sync(d.c, C.HALOGNN_COMPUTE))
	return d.result
}
