package nn

import "halognn/src/compute"

// Stats are the loss and the counts of one minibatch, or one rank's share of them.
type Stats struct {
	Loss float64 // sum over seeds divided by the seeds of the global minibatch
	Counts
}

// CrossEntropy is the softmax cross-entropy of n rows of logits [n,C] with classes labels [n],
// summed and divided by globalSeeds:
//
//	sum_r ( log sum_c exp(z_rc) - z_r,label ) / globalSeeds
//
// dlogits [n,C] receives the gradient, unless it is an empty Matrix. A wrong class counts as one
// false positive and one false negative. No rows give zeros. Waits for the device.
func CrossEntropy(dev compute.Device, dlogits, logits compute.Matrix, labels []int32,
	globalSeeds int) Stats {
	loss, correct := dev.SoftmaxCrossEntropy(dlogits, logits, labels, share(globalSeeds))
	wrong := int64(logits.Rows - correct)
	return Stats{Loss: loss,
		Counts: Counts{TruePositive: int64(correct), FalsePositive: wrong, FalseNegative: wrong}}
}

// BinaryCrossEntropy is the mean over the C classes of the sigmoid cross-entropy with targets
// [n*C], 0 or 1, summed over rows and divided by globalSeeds:
//
//	sum_rc ( max(z,0) - z t + log(1 + exp(-|z|)) ) / (globalSeeds C)
//
// dlogits is as for CrossEntropy. A class is predicted where its logit is above 0. Waits for the
// device.
func BinaryCrossEntropy(dev compute.Device, dlogits, logits compute.Matrix, targets []uint8,
	globalSeeds int) Stats {
	loss, n := dev.SigmoidBCE(dlogits, logits, targets, share(globalSeeds*logits.Cols))
	return Stats{Loss: loss,
		Counts: Counts{TruePositive: int64(n[0]), FalsePositive: int64(n[1]),
			FalseNegative: int64(n[2])}}
}

// share is 1/n, or 0 for a global minibatch without seeds.
func share(n int) float32 {
	if n == 0 {
		return 0
	}
	return 1 / float32(n)
}
