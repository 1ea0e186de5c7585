package task

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// Regression is the task of predicting numbers. A label has a float32 for each output. If the
// vertex has no label, all of them are NaN.
const Regression = "regression"

// The losses of numbers. Here e is the error, in units of the standard deviation of the training
// targets.
const (
	LossAuto     = "auto"  // the same as LossSquared
	LossSquared  = "mse"   // e^2
	LossAbsolute = "mae"   // |e|
	LossHuber    = "huber" // e^2/2 if |e| <= 1, otherwise |e| - 1/2, as in PyTorch's HuberLoss
)

var regression = Task{
	Name: Regression, Has: "numbers of vertices", Loss: "squared error",
	DType: "<f4", Wide: true, Numbers: true, File: "targets",
	Metrics: []*Metric{&rmse, &mae, &r2},

	Minibatch: func(dev compute.Device, dlogits, logits compute.Matrix, labels []byte,
		n int) Stats {
		return regressionLoss(Objective{})(dev, dlogits, logits, labels, n)
	},
	Changed: regressionLoss,
	Fault: func(label []byte, _ int) string {
		missing := 0
		for c, y := range npy.View[float32](label) {
			switch {
			case math.IsInf(float64(y), 0):
				return fmt.Sprintf(", number %d is %g; it must be finite", c, y)
			case y != y:
				missing++
			}
		}
		if n := len(label) / 4; missing > 0 && missing < n {
			return fmt.Sprintf(": %d of its %d numbers are NaN; a vertex must have all numbers "+
				"or none",
				missing, n)
		}
		return ""
	},
	Facts: func(outputs int) int { return outputs + 1 },
	Truth: func(label []byte, facts []float64) bool {
		y := npy.View[float32](label)
		if len(y) == 0 || y[0] != y[0] {
			return false
		}
		if facts != nil {
			for c, x := range y {
				facts[c] += float64(x)
				facts[len(y)] += float64(x) * float64(x)
			}
		}
		return true
	},
	Judge: func(t *Tally, z []float32, label []byte) {
		for c, y := range npy.View[float32](label) {
			t.Sums.miss(float64(z[c]) - float64(y))
		}
	},
	Predict:       func(label []byte, z []float32) { copy(label, mem.Bytes(z)) },
	Probabilities: func(y, z []float32) { copy(y, z) },
	Cells: func(line []string, label []byte, _ func(int) string) []string {
		for _, y := range npy.View[float32](label) {
			line = append(line, strconv.FormatFloat(float64(y), 'g', -1, 32))
		}
		return line
	},
}

// Indices of Sums in tasks of numbers. There is a term for each vertex and output.
const (
	squared = iota
	absolute
	judged
)

// miss adds the error e of one output to the sums. The error is in the unit of the targets.
func (s *Sums) miss(e float64) {
	s[squared] += e * e
	s[absolute] += math.Abs(e)
	s[judged]++
}

var (
	rmse = Metric{Name: "rmse", Doc: "root of the mean squared error of numbers", Less: true,
		Value: func(t *Tally) (float64, bool) {
			return math.Sqrt(t.Sums[squared] / max(1, t.Sums[judged])), t.Sums[judged] > 0
		}}
	mae = Metric{Name: "mae", Doc: "mean absolute error of numbers", Less: true,
		Value: func(t *Tally) (float64, bool) {
			return t.Sums[absolute] / max(1, t.Sums[judged]), t.Sums[judged] > 0
		}}
	// This is 1 - sum (z - y)^2 / sum (y - mean)^2, where mean is the mean of each output over the
	// judged vertices. It is r2_score of scikit-learn or, for several outputs, r2_score with
	// multioutput="variance_weighted".
	r2 = Metric{Name: "r2", Doc: "share of the variance of numbers that is explained",
		Value: func(t *Tally) (float64, bool) {
			v := variation(t)
			return 1 - t.Sums[squared]/v, v > 0
		},
		Without: func(t *Tally) string {
			if variation(t) <= 0 {
				return "all numbers equal"
			}
			return ""
		}}
)

// variation returns the sum, over outputs and vertices, of the squared distance of the target from
// the output's mean.
func variation(t *Tally) float64 {
	if len(t.Facts) == 0 {
		return 0 // a training step has no facts
	}
	c := len(t.Facts) - 1
	v := t.Facts[c]
	for _, sum := range t.Facts[:c] {
		v -= sum * sum / max(1, t.Labelled)
	}
	if v < 1e-12*t.Facts[c] { // all targets are equal, up to rounding
		return 0
	}
	return v
}

// Scale turns a model's outputs z into targets y = Mean + Std z, for each output. So the model
// itself learns targets of mean 0 and variance 1. If both fields are nil, targets are not scaled.
type Scale struct{ Mean, Std []float32 }

// Undo scales rows of outputs back to the unit of the targets, in place.
func (s Scale) Undo(z []float32) {
	for len(s.Mean) > 0 && len(z) > 0 {
		for c := range s.Mean {
			z[c] = s.target(c, z[c])
		}
		z = z[len(s.Mean):]
	}
}

func (s Scale) target(c int, z float32) float32 {
	return float32(float64(s.Mean[c]) + float64(s.Std[c])*float64(z))
}

// ScaleOf returns the mean and the standard deviation of each output over n training vertices. The
// argument `sums` has the sum of the targets of each output, and squares the sum of their squares.
// It is an error if all training vertices have the same target for an output, because this cannot
// be learned.
func ScaleOf(n float64, sums, squares []float64) (s Scale, err error) {
	for c, sum := range sums {
		mean := sum / max(1, n)
		variance := squares[c]/max(1, n) - mean*mean
		if n == 0 || variance <= 1e-12*mean*mean {
			return s, fmt.Errorf("target %d is %g for all %.0f training vertices: there is "+
				"nothing to learn; leave this target out, or train on other vertices", c, mean, n)
		}
		std := math.Sqrt(variance)
		if f := float32(std); f == 0 || math.IsInf(float64(f), 0) ||
			math.IsInf(float64(float32(mean)), 0) {
			return s, fmt.Errorf("target %d has mean %g and standard deviation %g, beyond "+
				"float32; scale the targets, for example by their unit", c, mean, std)
		}
		s.Mean, s.Std = append(s.Mean, float32(mean)), append(s.Std, float32(std))
	}
	return s, nil
}

// regressionLoss returns the loss function of regression, which is the mean over the C outputs:
//
//	sum_rc loss((z_rc - (y_rc - mean_c) / std_c)) / (globalSeeds C),
//
// It is computed on the host, whatever the device, because the outputs are a small part of a step.
// Rows are added in order.
func regressionLoss(o Objective) LossFunc {
	var host []float32
	return func(dev compute.Device, dlogits, logits compute.Matrix, labels []byte,
		globalSeeds int) (s Stats) {
		n, cols := len(logits.Data), logits.Cols
		host = slices.Grow(host[:0], n)[:n]
		dev.Download(host, logits.Data)
		scale := float64(share(globalSeeds * cols))
		for i, y := range npy.View[float32](labels) {
			mean, std := 0.0, 1.0
			if o.Scale.Mean != nil {
				mean, std = float64(o.Scale.Mean[i%cols]), float64(o.Scale.Std[i%cols])
			}
			e := float64(host[i]) - (float64(y)-mean)/std
			s.miss(e * std)
			loss, slope := o.errorLoss(e)
			s.Loss += loss
			host[i] = float32(slope * scale)
		}
		s.Loss *= scale
		if len(dlogits.Data) > 0 {
			dev.Upload(dlogits.Data, host)
		}
		return s
	}
}

// errorLoss returns the loss for an error e, and the derivative of this loss.
func (o *Objective) errorLoss(e float64) (loss, slope float64) {
	size := math.Abs(e)
	switch {
	case o.Loss == LossAbsolute:
		if e == 0 {
			return 0, 0
		}
		return size, math.Copysign(1, e)
	case o.Loss == LossHuber && size > 1:
		return size - 0.5, math.Copysign(1, e)
	case o.Loss == LossHuber:
		return e * e / 2, e
	}
	return e * e, 2 * e
}
