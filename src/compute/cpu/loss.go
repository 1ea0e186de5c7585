//go:build cgo

package cpu

import "halognn/src/compute"

// chunkLoss is what one chunk of rows contributes to a loss.
type chunkLoss struct {
	loss   float64
	counts [3]int
}

// SoftmaxCrossEntropy implements compute.Device.
func (d *Device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32, scale float32) (loss float64, correct int) {
	compute.CheckLoss("SoftmaxCrossEntropy", dlogits, logits)
	compute.CheckLabels("SoftmaxCrossEntropy", logits, labels)
	loss, counts := d.loss(logits.Rows, task{run: softmaxTile, dx: dlogits, x: logits, labels: labels, scale: scale})
	return loss * float64(scale), counts[0]
}

func softmaxTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.x.Rows, tile)
	c := &d.losses[tile]
	c.loss, c.counts[0] = softmaxCrossEntropy(t.gradient(lo, hi), t.x.RowsAt(lo, hi), t.labels[lo:hi], t.scale)
}

// SigmoidBCE implements compute.Device.
func (d *Device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8, scale float32) (loss float64, counts [3]int) {
	compute.CheckLoss("SigmoidBCE", dlogits, logits)
	compute.CheckLengths("SigmoidBCE", logits.Rows*logits.Cols, len(targets))
	loss, counts = d.loss(logits.Rows, task{run: sigmoidTile, dx: dlogits, x: logits, targets: targets, scale: scale})
	return loss * float64(scale), counts
}

func sigmoidTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.x.Rows, tile)
	c := &d.losses[tile]
	c.loss, c.counts = sigmoidBCE(t.gradient(lo, hi), t.x.RowsAt(lo, hi), t.targets[lo*t.x.Cols:hi*t.x.Cols], t.scale)
}

// gradient returns rows of the gradient, or none if none is wanted.
func (t *task) gradient(lo, hi int) compute.Matrix {
	if t.dx.Data == nil {
		return compute.Matrix{}
	}
	return t.dx.RowsAt(lo, hi)
}

// loss runs a loss by chunks and adds what they contribute, in chunk order.
func (d *Device) loss(rows int, t task) (loss float64, counts [3]int) {
	chunks := chunkCount(rows)
	for len(d.losses) < chunks {
		d.losses = append(d.losses, chunkLoss{})
	}
	t.rowsPerTile = compute.ChunkRows
	d.run(rows, t)
	for _, c := range d.losses[:chunks] {
		loss += c.loss
		for i, n := range c.counts {
			counts[i] += n
		}
	}
	return loss, counts
}
