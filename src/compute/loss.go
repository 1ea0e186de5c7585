package compute

import "fmt"

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

// CheckSoftmaxCrossEntropy checks the arguments of SoftmaxCrossEntropy.
func CheckSoftmaxCrossEntropy(dlogits, logits Matrix, labels []int32) Call {
	const kernel = "SoftmaxCrossEntropy"
	checkLoss(kernel, dlogits, logits)
	CheckLengths(kernel, logits.Rows, len(labels))
	for r, l := range labels {
		if l < 0 || int(l) >= logits.Cols {
			panic(fmt.Sprintf("compute: %s: label %d of row %d is not one of %d classes", kernel, l, r,
				logits.Cols))
		}
	}
	return Call{Kernel: kernel, Bytes: logits.bytes() + floatBytes*len(dlogits.Data) + 4*len(labels)}
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
