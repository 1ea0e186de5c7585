//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/compute"
)

// SoftmaxCrossEntropy implements compute.Device.
func (d *Device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32,
	scale float32) (loss float64, correct int) {
	defer d.probe.Start(compute.CheckSoftmaxCrossEntropy(dlogits, logits, labels)).Done()
	d.arrays(len(labels) * 4)
	rows, cols := size(logits)
	on := (*C.int32_t)(onDevice(d, labels))
	must("SoftmaxCrossEntropy", C.gpu_softmax_ce(d.c, float(dlogits.Data), rows, cols,
		float(logits.Data), on, C.float(scale), (*C.halognn_cuda_loss)(d.answer.p), d.losses(rows)))
	sum := d.answered("SoftmaxCrossEntropy")
	return float64(sum.loss) * float64(scale), int(sum.counts[0])
}

// SigmoidBCE implements compute.Device.
func (d *Device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8,
	scale float32) (loss float64, counts [3]int) {
	defer d.probe.Start(compute.CheckSigmoidBCE(dlogits, logits, targets)).Done()
	d.arrays(len(targets))
	rows, cols := size(logits)
	on := (*C.uint8_t)(onDevice(d, targets))
	must("SigmoidBCE", C.gpu_sigmoid_bce(d.c, float(dlogits.Data), rows, cols, float(logits.Data), on,
		C.float(scale), (*C.halognn_cuda_loss)(d.answer.p), d.losses(rows)))
	sum := d.answered("SigmoidBCE")
	return float64(sum.loss) * float64(scale),
		[3]int{int(sum.counts[0]), int(sum.counts[1]), int(sum.counts[2])}
}

// losses returns room for the losses of rows.
func (d *Device) losses(rows C.int64_t) unsafe.Pointer {
	if err := d.reserve(&d.scratch, max(1, int(C.gpu_loss_scratch(rows))), useScratch); err != nil {
		panic(err)
	}
	return d.scratch.p
}

// answered waits for a loss and returns it.
func (d *Device) answered(kernel string) *C.halognn_cuda_loss {
	must(kernel, C.gpu_download(d.c, C.HALOGNN_COMPUTE, (*C.char)(unsafe.Pointer(d.result)),
		d.answer.p, C.int64_t(unsafe.Sizeof(*d.result))))
	must(kernel, C.gpu_sync(d.c, C.HALOGNN_COMPUTE))
	return d.result
}
