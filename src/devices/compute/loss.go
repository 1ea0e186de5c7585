package compute

import (
	"fmt"
	"math"
)

// LossKernels are losses with their gradients. They return when the result is on the host.
type LossKernels interface {
	// SoftmaxCrossEntropy returns the sum over rows of the loss times scale, and the number of rows
	// whose largest logit (first one on a tie) is the label; it sets dlogits to the gradient of
	// that loss unless dlogits.Data is nil. labels[i] in [0,C).
	SoftmaxCrossEntropy(dlogits, logits Matrix, labels []int32, scale float32) (loss float64,
		correct int)
	// SigmoidBCE is the multi-label loss: the sum over all elements of the binary cross-entropy
	// times scale. targets [R*C] are 0 or 1. counts are true positives, false positives and false
	// negatives of logit > 0, for micro-F1.
	SigmoidBCE(dlogits, logits Matrix, targets []uint8, scale float32) (loss float64, counts [3]int)
}

// QueuedLoss has the device memory of a loss that the host does not wait for: for its result and,
// if the result is not finite, for the places of the first numbers that are not.
type QueuedLoss struct {
	// Head [4+len(Extras)] receives the loss times scale and three counts, which for
	// SoftmaxCrossEntropy are rows: right, wrong, wrong. Then it receives Extras, from the host.
	Head, Extras []float32

	// Suspects are searched if the loss is not finite: at most MostSuspects, as they are when the
	// kernel runs. Places [PlacesLen] receives what is found; later losses do not change it.
	// Nothing is searched if Skipped [1], the one in the Bound of the updates, is not 0: then the
	// first bad loss was that of an earlier step, here or on another rank.
	Suspects []Suspect
	Places   []float32
	Skipped  []float32
}

// MostSuspects is how many arrays a loss may search, LossExtras how many numbers from the host
// follow it in Head, and PlacesLen the size of QueuedLoss.Places.
const (
	MostSuspects = 24
	LossExtras   = 12
	PlacesLen    = 1 + 2*MostSuspects
)

// Suspect is a matrix in device memory whose numbers may have stopped being finite. Vertices, a
// host array, names those of its first rows.
type Suspect struct {
	X        Matrix
	Vertices []int32
}

// Place reads Places on the host. For suspect k it returns the first row with a number that is not
// finite, or -1, and the vertex of the row, or -1.
func Place(places []float32, k int) (row, vertex int) {
	of := places[1+2*k:]
	return int(math.Float32bits(of[0])) - 1, int(math.Float32bits(of[1])) - 1
}

// AnyPlace reports whether a loss was not finite, so that the suspects were searched.
func AnyPlace(places []float32) bool { return math.Float32bits(places[0]) != 0 }

// CheckQueuedLoss checks the arrays of a QueuedLoss.
func CheckQueuedLoss(to *QueuedLoss) {
	if len(to.Head) != 4+len(to.Extras) || len(to.Extras) != LossExtras ||
		len(to.Suspects) > MostSuspects || len(to.Places) != PlacesLen || len(to.Skipped) != 1 {
		panic(fmt.Sprintf("compute: a queued loss cannot have %d numbers, %d extras, %d suspects, "+
			"%d places and %d flags", len(to.Head), len(to.Extras), len(to.Suspects),
			len(to.Places), len(to.Skipped)))
	}
	for k, s := range to.Suspects {
		if !s.X.stored() {
			panic(fmt.Sprintf("compute: suspect %d of a queued loss, %v, is not a whole matrix", k,
				s.X))
		}
	}
}

// CheckSoftmaxCrossEntropy checks the arguments of SoftmaxCrossEntropy.
func CheckSoftmaxCrossEntropy(dlogits, logits Matrix, labels []int32) Call {
	const kernel = "SoftmaxCrossEntropy"
	checkLoss(kernel, dlogits, logits)
	CheckLengths(kernel, logits.Rows, len(labels))
	for r, l := range labels {
		if l < 0 || int(l) >= logits.Cols {
			panic(fmt.Sprintf("compute: %s: label %d of row %d is not one of %d classes", kernel, l,
				r, logits.Cols))
		}
	}
	return Call{Kernel: kernel, Bytes: logits.bytes() + floatBytes*len(dlogits.Data) +
		4*len(labels)}
}

// CheckSigmoidBCE checks the arguments of SigmoidBCE.
func CheckSigmoidBCE(dlogits, logits Matrix, targets []uint8) Call {
	const kernel = "SigmoidBCE"
	checkLoss(kernel, dlogits, logits)
	CheckLengths(kernel, logits.Rows*logits.Cols, len(targets))
	return Call{Kernel: kernel, Bytes: logits.bytes() + floatBytes*len(dlogits.Data) + len(targets)}
}

// checkLoss checks that the gradient of a loss, if present, has the shape of the logits.
func checkLoss(kernel string, dlogits, logits Matrix) {
	if dlogits.Data == nil {
		checkRows(kernel, logits)
	} else {
		checkSame(kernel, dlogits, logits)
	}
}
