//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// This does not compile unless a result fits into the room before the scratch memory.
const _ = uint(alignment - C.sizeof_halognn_cuda_loss)

// This does not compile unless Go and the kernels have the same constants for a queued loss.
var (
	_ [compute.MostSuspects]struct{} = [C.HALOGNN_SUSPECTS]struct{}{}
	_ [compute.LossExtras]struct{}   = [C.HALOGNN_EXTRAS]struct{}{}
)

// SoftmaxCrossEntropy implements compute.Device.
func (d *Device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32,
	scale float32) (loss float64, correct int) {
	sum := d.softmax(dlogits, logits, labels, scale, nil)
	return float64(sum.loss) * float64(scale), int(sum.counts[0])
}

// QueueSoftmaxCrossEntropy implements compute.Accelerator.
func (d *Device) QueueSoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32,
	scale float32, to *compute.QueuedLoss) {
	d.softmax(dlogits, logits, labels, scale, to)
}

// softmax calls the kernel and, unless the loss is queued, waits for it.
func (d *Device) softmax(dlogits, logits compute.Matrix, labels []int32, scale float32,
	to *compute.QueuedLoss) *C.halognn_cuda_loss {
	defer d.probe.Start(compute.CheckSoftmaxCrossEntropy(dlogits, logits, labels)).Done()
	d.arrays(len(labels)*4 + suspectBytes(to))
	rows, cols := size(logits)
	on, told := (*C.int32_t)(onDevice(d, labels)), d.told(to)
	return d.loss("SoftmaxCrossEntropy", rows, to == nil,
		func(result *C.halognn_cuda_loss, scratch unsafe.Pointer) C.int {
			return C.gpu_softmax_ce(d.c, float(dlogits.Data), rows, cols, float(logits.Data), on,
				C.float(scale), result, scratch, told)
		})
}

// SigmoidBCE implements compute.Device.
func (d *Device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8,
	scale float32) (loss float64, counts [3]int) {
	sum := d.sigmoid(dlogits, logits, targets, scale, nil)
	return float64(sum.loss) * float64(scale),
		[3]int{int(sum.counts[0]), int(sum.counts[1]), int(sum.counts[2])}
}

// QueueSigmoidBCE implements compute.Accelerator.
func (d *Device) QueueSigmoidBCE(dlogits, logits compute.Matrix, targets []uint8, scale float32,
	to *compute.QueuedLoss) {
	d.sigmoid(dlogits, logits, targets, scale, to)
}

// sigmoid calls the kernel of SigmoidBCE and, unless the loss is queued, waits for it.
func (d *Device) sigmoid(dlogits, logits compute.Matrix, targets []uint8, scale float32,
	to *compute.QueuedLoss) *C.halognn_cuda_loss {
	defer d.probe.Start(compute.CheckSigmoidBCE(dlogits, logits, targets)).Done()
	d.arrays(len(targets) + suspectBytes(to))
	rows, cols := size(logits)
	on, told := (*C.uint8_t)(onDevice(d, targets)), d.told(to)
	return d.loss("SigmoidBCE", rows, to == nil,
		func(result *C.halognn_cuda_loss, scratch unsafe.Pointer) C.int {
			return C.gpu_sigmoid_bce(d.c, float(dlogits.Data), rows, cols, float(logits.Data), on,
				C.float(scale), result, scratch, told)
		})
}

// The method loss calls launch with room for a loss and for the partial losses of rows. If answer
// is true, it waits for the loss and returns it.
func (d *Device) loss(kernel string, rows C.int64_t, answer bool,
	launch func(result *C.halognn_cuda_loss, scratch unsafe.Pointer) C.int) *C.halognn_cuda_loss {
	bytes := alignment + int(C.gpu_loss_scratch(rows))
	d.lend(kernel, &d.scratch, bytes, func(p unsafe.Pointer) C.int {
		code := launch((*C.halognn_cuda_loss)(p), unsafe.Add(p, alignment))
		if code != 0 || !answer {
			return code
		}
		return C.gpu_download(d.c, C.HALOGNN_COMPUTE, (*C.char)(unsafe.Pointer(d.result)), p,
			C.int64_t(unsafe.Sizeof(*d.result)))
	})
	if !answer {
		return nil
	}
	must(kernel, C.gpu_sync(d.c, C.HALOGNN_COMPUTE))
	return d.result
}

// suspectBytes returns the size of the room for the lists of vertices that suspects have.
func suspectBytes(to *compute.QueuedLoss) (bytes int) {
	if to == nil {
		return 0
	}
	for _, s := range to.Suspects {
		bytes += len(s.Vertices)*4 + alignment
	}
	return bytes
}

// told returns a queued loss in the form in which kernels take it. It returns nil if to is nil. The
// call of the kernel copies it before it returns.
func (d *Device) told(to *compute.QueuedLoss) *C.halognn_cuda_queued_loss {
	if to == nil {
		return nil
	}
	compute.CheckQueuedLoss(to)
	told := d.queuedLoss
	*told = C.halognn_cuda_queued_loss{head: float(to.Head),
		places:  (*C.uint32_t)(unsafe.Pointer(float(to.Places))),
		skipped: float(to.Skipped), suspects: C.int(len(to.Suspects))}
	for i, x := range to.Extras {
		told.extras[i] = C.float(x)
	}
	for k, s := range to.Suspects {
		in := &told.of[k]
		in.x, in.known = matrix(s.X), C.int64_t(len(s.Vertices))
		in.rows, in.cols = size(s.X)
		in.vertices = (*C.int32_t)(onDevice(d, s.Vertices))
	}
	return told
}

// QueueDownload implements compute.Accelerator.
func (d *Device) QueueDownload(dst, src []float32, e compute.Event) {
	compute.CheckLengths("QueueDownload", len(dst), len(src))
	must("QueueDownload", C.gpu_download(d.c, C.HALOGNN_COMPUTE, bytesAt(dst),
		unsafe.Pointer(float(src)), C.int64_t(4*len(src))))
	must("QueueDownload", C.gpu_record(d.c, C.HALOGNN_COMPUTE, e.(*event).p))
}

// HasProbe implements compute.Accelerator.
func (d *Device) HasProbe() bool { return d.probe != nil }
