package task

import (
	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// The tasks in which links have labels: a class, or float32 numbers. A model's outputs are
// embeddings of vertices. The scores of a link are computed from the embeddings of its two ends,
// and are compared with the link's label. Links are not ranked.
const (
	LinkClasses = "link_classes"
	LinkNumbers = "link_numbers"
)

var (
	linkClasses = labelling(LinkClasses, "one class a link", &multiclass)
	linkNumbers = labelling(LinkNumbers, "numbers of links", &regression)
)

// labelling returns a task of links with labels. The labels are of the same kind as the labels of
// vertices in the task base.
func labelling(name, has string, base *Task) Task {
	t := *base
	t.Name, t.Has, t.Embeds = name, has, true
	t.Changed = func(o Objective) LossFunc {
		l := &labelLoss{rating: ratingBy(o), of: base.Minibatch, scratch: o.Scratch}
		o.Pairs, o.Scorer = Pairs{}, Scorer{}
		if !o.plain() {
			l.of = base.Changed(o)
		}
		return l.loss
	}
	t.Minibatch = func(dev compute.Device, dlogits, logits compute.Matrix, truth []byte,
		n int) Stats {
		return t.Changed(Objective{})(dev, dlogits, logits, truth, n)
	}
	return t
}

// labelLoss is the loss of links with labels. It uses the loss of a task of vertices, and passes
// the scores of links to it as outputs.
type labelLoss struct {
	rating
	of LossFunc
	// device memory of the size that ScorerScratch returns; its last elements have scores
	scratch []float32
}

// loss returns the loss of n links, divided by globalSeeds. The argument `truth` is laid out as
// sample.Links.Truth: first the pairs, then the labels of the links. There are no negatives.
func (l *labelLoss) loss(dev compute.Device, dlogits, logits compute.Matrix, truth []byte,
	globalSeeds int) (s Stats) {
	head := npy.View[int32](truth)
	if len(head) == 0 {
		return s
	}
	n := int(head[0])
	pairs, labels := head[2:][:2*n], truth[8+8*n:]
	l.begin(dev, logits, pairs)
	l.slope = append(l.slope, l.score...)
	outputs, width := l.outputs(), len(labels)/max(1, n)
	for rest := l.slope; len(rest) > 0; {
		m := min(len(rest)/outputs, labelChunk(outputs))
		y := l.onDevice(0, m, outputs)
		dy := l.onDevice(1, m, outputs)
		dev.Upload(y.Data, rest[:m*outputs])
		part := l.of(dev, dy, y, labels[:m*width], globalSeeds)
		dev.Download(rest[:m*outputs], dy.Data)
		s.Loss += part.Loss
		for i, x := range part.Sums {
			s.Sums[i] += x
		}
		rest, labels = rest[m*outputs:], labels[m*width:]
	}
	l.end(dev, dlogits, pairs)
	return s
}

// onDevice returns device memory for the scores of n links if index is 0. If index is 1, it returns
// memory for the gradient of the scores.
func (l *labelLoss) onDevice(index, n, outputs int) compute.Matrix {
	size := labelChunk(outputs) * outputs
	at := len(l.scratch) - (2-index)*size
	return compute.Matrix{Rows: n, Cols: outputs, Data: l.scratch[at:][:n*outputs]}
}
