package task

import (
	"halognn/src/compute"
	"halognn/src/npy"
)

// The tasks of what is known of each link: a class, or float32 numbers. Outputs of a model are
// embeddings, of which the score makes those of the task's labels; nothing is ranked.
const (
	LinkClasses = "link_classes"
	LinkNumbers = "link_numbers"
)

var (
	linkClasses = labelling(LinkClasses, "one class a link", &multiclass)
	linkNumbers = labelling(LinkNumbers, "numbers of links", &regression)
)

// labelling returns the task of links with the labels of another task.
func labelling(name, has string, of *Task) Task {
	t := *of
	t.Name, t.Has, t.Embeds = name, has, true
	t.Changed = func(o Objective) LossFunc {
		l := &labelLoss{rating: ratingBy(o), of: of.Minibatch, scratch: o.Scratch}
		o.Pairs, o.Scorer = Pairs{}, Scorer{}
		if !o.plain() {
			l.of = of.Changed(o)
		}
		return l.loss
	}
	t.Minibatch = func(dev compute.Device, dlogits, logits compute.Matrix, truth []byte, n int) Stats {
		return t.Changed(Objective{})(dev, dlogits, logits, truth, n)
	}
	return t
}

// labelLoss is the loss of links with labels: that of a task of vertices over the scores.
type labelLoss struct {
	rating
	of      LossFunc
	scratch []float32 // of ScorerScratch elements, its end for scores
}

// loss computes that of n links, divided by globalSeeds. truth is as sample.Links.Truth has it, with
// the labels of the links behind the pairs; there are no negatives.
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

// onDevice returns memory of the scores of n links, or of their gradient.
func (l *labelLoss) onDevice(which, n, outputs int) compute.Matrix {
	size := labelChunk(outputs) * outputs
	at := len(l.scratch) - (2-which)*size
	return compute.Matrix{Rows: n, Cols: outputs, Data: l.scratch[at:][:n*outputs]}
}
