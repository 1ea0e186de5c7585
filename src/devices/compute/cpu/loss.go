//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import "halognn/src/devices/compute"

// chunkLoss is what one chunk of rows contributes to a loss.
type chunkLoss struct {
	loss   C.double
	counts [3]C.int64_t
}

type softmaxCrossEntropy struct {
	dlogits, logits compute.Matrix
	labels          []int32
	scale           float32
}

// SoftmaxCrossEntropy implements compute.Device.
func (d *Device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32,
	scale float32) (loss float64, correct int) {
	defer d.probe.Start(compute.CheckSoftmaxCrossEntropy(dlogits, logits, labels)).Done()
	d.reserveLosses(logits.Rows)
	run(d, logits.Rows, compute.ChunkRows, softmaxCrossEntropy{dlogits, logits, labels, scale})
	loss, counts := d.addLosses(logits.Rows)
	return loss * float64(scale), counts[0]
}

func (a *softmaxCrossEntropy) tile(d *Device, lo, hi int) {
	z, c := a.logits.RowsAt(lo, hi), &d.losses[lo/compute.ChunkRows]
	rows, cols := size(z)
	c.loss = C.halognn_softmax_ce(floats(gradient(a.dlogits, lo, hi)), rows, cols, floats(z.Data),
		int32s(a.labels[lo:hi]), C.float(a.scale), &c.counts[0])
}

type sigmoidBCE struct {
	dlogits, logits compute.Matrix
	targets         []uint8
	scale           float32
}

// SigmoidBCE implements compute.Device.
func (d *Device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8,
	scale float32) (loss float64, counts [3]int) {
	defer d.probe.Start(compute.CheckSigmoidBCE(dlogits, logits, targets)).Done()
	d.reserveLosses(logits.Rows)
	run(d, logits.Rows, compute.ChunkRows, sigmoidBCE{dlogits, logits, targets, scale})
	loss, counts = d.addLosses(logits.Rows)
	return loss * float64(scale), counts
}

func (a *sigmoidBCE) tile(d *Device, lo, hi int) {
	z, c := a.logits.RowsAt(lo, hi).Data, &d.losses[lo/compute.ChunkRows]
	c.loss = C.halognn_sigmoid_bce(floats(gradient(a.dlogits, lo, hi)), C.int64_t(len(z)),
		floats(z), bytes(a.targets[lo*a.logits.Cols:hi*a.logits.Cols]), C.float(a.scale),
		&c.counts[0])
}

// gradient returns rows [lo,hi) of the gradient. It returns nil if no gradient is wanted.
func gradient(dlogits compute.Matrix, lo, hi int) []float32 {
	if dlogits.Data == nil {
		return nil
	}
	return dlogits.RowsAt(lo, hi).Data
}

// reserveLosses makes room for the contribution of every chunk, and clears it.
func (d *Device) reserveLosses(rows int) {
	for len(d.losses) < chunkCount(rows) {
		d.losses = append(d.losses, chunkLoss{})
	}
	clear(d.losses)
}

// addLosses adds the contributions of the chunks, in chunk order.
func (d *Device) addLosses(rows int) (loss float64, counts [3]int) {
	for _, c := range d.losses[:chunkCount(rows)] {
		loss += float64(c.loss)
		for i, n := range c.counts {
			counts[i] += int(n)
		}
	}
	return loss, counts
}
