package task

import (
	"fmt"
	"math"
	"strconv"

	"halognn/src/devices/compute"
)

// Multilabel is the task in which each vertex has any number of the classes. A label has a uint8
// for each class, which is 1 if the vertex has the class and otherwise 0.
const Multilabel = "multilabel"

var multilabel = Task{
	Name: Multilabel, Has: "several labels a vertex", Loss: "binary cross entropy",
	DType: "|u1", Wide: true, File: "targets",
	Metrics: []*Metric{&microF1},

	Minibatch: binaryCrossEntropy,
	Queued: func(dev compute.Accelerator, dlogits, logits compute.Matrix, labels []byte, n int,
		to *compute.QueuedLoss) {
		dev.QueueSigmoidBCE(dlogits, logits, labels, share(n*logits.Cols), to)
	},
	Fault: func(label []byte, _ int) string {
		for c, y := range label {
			if y > 1 {
				return fmt.Sprintf(", class %d is %d; it must be 0 or 1", c, y)
			}
		}
		return ""
	},
	Facts: one,
	Truth: func(label []byte, facts []float64) bool {
		if facts != nil {
			for _, is := range label {
				facts[positive] += float64(is)
			}
		}
		return true
	},
	Judge: func(t *Tally, z []float32, label []byte) {
		short := 0.0 // sum of |logit| over the classes whose logit has the wrong sign
		for c, x := range z {
			predicted, is := x > 0, label[c] != 0
			switch {
			case predicted && is:
				t.Sums[TruePositive]++
			case predicted:
				t.Sums[FalsePositive]++
			case is:
				t.Sums[FalseNegative]++
			}
			if predicted != is {
				short += math.Abs(float64(x))
			}
		}
		t.Shortfall += short / float64(len(z))
	},
	Predict: func(label []byte, z []float32) {
		for c, x := range z {
			label[c] = 0
			if x > 0 {
				label[c] = 1
			}
		}
	},
	Probabilities: func(y, z []float32) {
		for c, x := range z {
			y[c] = float32(1 / (1 + math.Exp(-float64(x))))
		}
	},
	Cells: func(line []string, label []byte, _ func(int) string) []string {
		for _, mark := range label {
			line = append(line, strconv.Itoa(int(mark)))
		}
		return line
	},
}

// binaryCrossEntropy returns the sigmoid cross-entropy of logits z and targets t, with rows r and
// columns c. It is the mean over the C classes:
//
//	sum_rc ( max(z,0) - z t + log(1 + exp(-|z|)) ) / (globalSeeds C)
//
// A class is predicted where its logit is above 0.
func binaryCrossEntropy(dev compute.Device, dlogits, logits compute.Matrix, labels []byte,
	globalSeeds int) Stats {
	loss, n := dev.SigmoidBCE(dlogits, logits, labels, share(globalSeeds*logits.Cols))
	return Stats{loss, Sums{TruePositive: float64(n[0]), FalsePositive: float64(n[1]),
		FalseNegative: float64(n[2])}}
}
