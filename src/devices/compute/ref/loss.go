package ref

import (
	"math"

	"halognn/src/devices/compute"
)

// SoftmaxCrossEntropy implements compute.Device. The loss is log sum exp(z) - z[label]. The largest
// logit is subtracted before exp, so that nothing overflows. The gradient of the label's logit is p
// - 1. It is computed as minus the sum of the other probabilities, which stays precise if p is
// close to 1.
func (d *Device) SoftmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32,
	scale float32) (loss float64, correct int) {
	defer d.probe.Start(compute.CheckSoftmaxCrossEntropy(dlogits, logits, labels)).Done()
	chunks(logits.Rows, func(lo, hi int) {
		var sum float64
		for r := lo; r < hi; r++ {
			z, label := logits.Row(r), int(labels[r])
			top := 0
			for j, v := range z {
				if v > z[top] {
					top = j
				}
			}
			if top == label {
				correct++
			}
			largest := float64(z[top])
			var others float64
			for j, v := range z {
				if j != label {
					others += math.Exp(float64(v) - largest)
				}
			}
			total := others + math.Exp(float64(z[label])-largest)
			sum += math.Log(total) + largest - float64(z[label])
			if dlogits.Data == nil {
				continue
			}
			for j, v := range z {
				dlogits.Row(r)[j] = float32(math.Exp(float64(v)-largest) / total * float64(scale))
			}
			dlogits.Row(r)[label] = float32(-others / total * float64(scale))
		}
		loss += sum
	})
	return loss * float64(scale), correct
}

// SigmoidBCE implements compute.Device. The loss is max(z,0) - z*t + log(1 + exp(-|z|)). Its
// derivative is sigmoid(z) - t.
func (d *Device) SigmoidBCE(dlogits, logits compute.Matrix, targets []uint8,
	scale float32) (loss float64, counts [3]int) {
	defer d.probe.Start(compute.CheckSigmoidBCE(dlogits, logits, targets)).Done()
	chunks(logits.Rows, func(lo, hi int) {
		var sum float64
		for i := lo * logits.Cols; i < hi*logits.Cols; i++ {
			z, t := float64(logits.Data[i]), float64(targets[i])
			e := math.Exp(-math.Abs(z))
			sum += max(z, 0) - z*t + math.Log1p(e)
			if dlogits.Data != nil {
				dlogits.Data[i] = float32((sigmoid(z, e) - t) * float64(scale))
			}
			switch positive := z > 0; {
			case positive && targets[i] != 0:
				counts[0]++
			case positive:
				counts[1]++
			case targets[i] != 0:
				counts[2]++
			}
		}
		loss += sum
	})
	return loss * float64(scale), counts
}

// sigmoid returns 1/(1+exp(-z)). The argument e is exp(-|z|), which cannot overflow.
func sigmoid(z, e float64) float64 {
	if z > 0 {
		return 1 / (1 + e)
	}
	return e / (1 + e)
}
