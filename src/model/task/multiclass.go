package task

import (
	"encoding/binary"
	"fmt"
	"math"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// Multiclass is the task in which each vertex has one class. A label is an int32, which is -1 if
// the vertex has no class.
const Multiclass = "multiclass"

var multiclass = Task{
	Name: Multiclass, Has: "one class a vertex", Loss: "cross entropy",
	DType: "<i4", Column: "class", File: "labels",
	Metrics: []*Metric{&accuracy, &rocAUC},

	Minibatch: crossEntropy,
	Queued: func(dev compute.Accelerator, dlogits, logits compute.Matrix, labels []byte, n int,
		to *compute.QueuedLoss) {
		dev.QueueSoftmaxCrossEntropy(dlogits, logits, npy.View[int32](labels), share(n), to)
	},
	Changed: func(o Objective) LossFunc { return (&objective{Objective: o}).loss },
	Class:   class,
	Fault: func(label []byte, classes int) string {
		if y := class(label); y < -1 || int(y) >= classes {
			return fmt.Sprintf(" is %d; it must be in [0, %d), or -1 for none", y, classes)
		}
		return ""
	},
	Facts: one,
	Truth: func(label []byte, facts []float64) bool {
		y := class(label)
		if y == 1 && facts != nil {
			facts[positive]++
		}
		return y >= 0
	},
	Judge: func(t *Tally, z []float32, label []byte) {
		y, best := class(label), argmax(z)
		t.Shortfall += float64(z[best]) - float64(z[y])
		if best == y {
			t.Sums[TruePositive]++
		} else {
			t.Sums[FalsePositive]++
			t.Sums[FalseNegative]++
		}
	},
	Predict: func(label []byte, z []float32) { PutClass(label, argmax(z)) },
	Probabilities: func(y, z []float32) {
		most, sum := z[argmax(z)], 0.0
		for _, x := range z {
			sum += math.Exp(float64(x - most))
		}
		for c, x := range z {
			y[c] = float32(math.Exp(float64(x-most)) / sum)
		}
	},
	Cells: func(line []string, label []byte, name func(int) string) []string {
		return append(line, name(int(class(label))))
	},
}

func class(label []byte) int32 { return int32(binary.LittleEndian.Uint32(label)) }

// PutClass writes a class to label, in the form of this task.
func PutClass(label []byte, class int32) { binary.LittleEndian.PutUint32(label, uint32(class)) }

// crossEntropy returns the softmax cross-entropy of logits z with rows r and columns c:
//
//	sum_r ( log sum_c exp(z_rc) - z_r,label ) / globalSeeds
//
// A wrong class counts as one false positive and one false negative.
func crossEntropy(dev compute.Device, dlogits, logits compute.Matrix, labels []byte,
	globalSeeds int) Stats {
	loss, correct := dev.SoftmaxCrossEntropy(dlogits, logits, npy.View[int32](labels),
		share(globalSeeds))
	return Stats{loss, rightOf(correct, logits.Rows)}
}

// rightOf returns the Sums of n vertices with labels. The argument `correct` is the number of
// vertices whose class was predicted.
func rightOf(correct, n int) Sums {
	wrong := float64(n - correct)
	return Sums{TruePositive: float64(correct), FalsePositive: wrong, FalseNegative: wrong}
}
