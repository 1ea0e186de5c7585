package compute

import (
	"fmt"
	"math"
)

// LossKernels are losses with their gradients. Their methods return when the result is on the host.
type LossKernels interface {
	// SoftmaxCrossEntropy returns the sum of the loss over rows, times scale. It also returns the
	// number of rows in which the label has the largest logit. If several logits are equally large,
	// the first counts as the largest. Unless dlogits.Data is nil, it sets dlogits to the gradient
	// of the returned loss. labels[i] must be in [0,C).
	SoftmaxCrossEntropy(dlogits, logits Matrix, labels []int32, scale float32) (loss float64,
		correct int)
	// SigmoidBCE is the loss for vertices with several labels: the sum of the binary cross-entropy
	// over all elements, times scale. The targets [R*C] must be 0 or 1. The result counts has the
	// numbers of true positives, false positives and false negatives, from which micro-F1 is
	// computed. A logit above 0 predicts 1.
	SigmoidBCE(dlogits, logits Matrix, targets []uint8, scale float32) (loss float64, counts [3]int)
}

// QueuedLoss has the device memory for a loss that the host does not wait for. It has memory for
// the result. If the result is not finite, it also gets the places of the first numbers that are
// not finite.
type QueuedLoss struct {
	// Head [4+len(Extras)] gets the loss times scale, followed by three counts and by the Extras,
	// which are numbers from the host. For SoftmaxCrossEntropy, the first count is the number of
	// rows that are predicted right, and the two others are both the number of rows that are
	// predicted wrong.
	Head, Extras []float32

	// If the loss is not finite, the kernel searches the matrices in Suspects, which are at most
	// MostSuspects, as they are when the kernel runs. It writes the places that it finds to Places
	// [PlacesLen]; later losses do not change these. Skipped [1] is also in the Bound of the
	// updates. If Skipped is not 0, the first bad loss was in an earlier step, on this or another
	// rank, and the kernel searches nothing.
	Suspects []Suspect
	Places   []float32
	Skipped  []float32
}

// MostSuspects is the largest number of arrays that a loss may search. LossExtras is the number of
// Extras in QueuedLoss. PlacesLen is the length of QueuedLoss.Places.
const (
	MostSuspects = 24
	LossExtras   = 12
	PlacesLen    = 1 + 2*MostSuspects
)

// Suspect is a matrix in device memory that may have numbers that are not finite. Vertices is a
// host array with the vertices of the first rows of the matrix.
type Suspect struct {
	X        Matrix
	Vertices []int32
}

// Place reads a copy of QueuedLoss.Places on the host. For suspect k it returns the first row that
// has a number that is not finite, and the vertex of this row. Row -1 means that there is no such
// row, and vertex -1 that the vertex is not known.
func Place(places []float32, k int) (row, vertex int) {
	of := places[1+2*k:]
	return int(math.Float32bits(of[0])) - 1, int(math.Float32bits(of[1])) - 1
}

// AnyPlace reports whether a loss was not finite, so that the device has searched the suspects.
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
			panic(fmt.Sprintf("compute: suspect %d of a queued loss, %v, lacks elements", k,
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

// checkLoss checks that the gradient of a loss has the shape of the logits, unless it is absent.
func checkLoss(kernel string, dlogits, logits Matrix) {
	if dlogits.Data == nil {
		checkRows(kernel, logits)
	} else {
		checkSame(kernel, dlogits, logits)
	}
}
