package task

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// Objective says how the loss of a task is changed. The zero value changes nothing.
type Objective struct {
	// Weights[c] multiplies the terms of class c. If nil, all weights are 1. The loss is divided by
	// the number of seeds. PyTorch divides by the sum of the seeds' weights instead, but for that
	// ranks would have to exchange this sum.
	Weights []float64
	// Smoothing, in [0, 1), is the share of a vertex's target that is spread evenly over all
	// classes (Szegedy et al., CVPR 2016). With 0 nothing is spread.
	Smoothing float64
	// Loss is the loss of regression: LossAuto, LossSquared, LossAbsolute or LossHuber. "" means
	// LossAuto. The embedded Scale scales targets.
	Loss string
	Scale
	// Pairs says how links are scored, in tasks of links.
	Pairs Pairs
	Scorer
}

// plain reports whether o changes nothing.
func (o Objective) plain() bool {
	return o.Weights == nil && o.Smoothing == 0 && o.usual() && o.Mean == nil &&
		o.Pairs == Pairs{}
}

func (o Objective) usual() bool { return o.Loss == "" || o.Loss == LossAuto }

// check returns all errors in o, for the task t with the given number of classes, joined into one.
func (o Objective) check(t *Task, classes int) error {
	var faults []error
	if t.Class == nil && (o.Weights != nil || o.Smoothing != 0) {
		faults = append(faults,
			fmt.Errorf("class weights and label smoothing are for tasks of one class a vertex, "+
				"not for %s; set train.class_weights=none and train.label_smoothing=0", t.Has))
	}
	if !t.Numbers && !o.usual() {
		faults = append(faults,
			fmt.Errorf("train.loss %s is for regression, and the graph has %s; use auto", o.Loss,
				t.Has))
	}
	if t.Class != nil && o.Weights != nil && len(o.Weights) != classes {
		faults = append(faults,
			fmt.Errorf("train.class_weights has %d weights for %d classes; give one for each, or "+
				"balanced", len(o.Weights), classes))
	}
	for class, w := range o.Weights {
		if !(w >= 0) || math.IsInf(w, 0) {
			faults = append(faults, fmt.Errorf(
				"train.class_weights: class %d has %g; it must be 0 or more", class, w))
		}
	}
	if !(o.Smoothing >= 0 && o.Smoothing < 1) {
		faults = append(faults, fmt.Errorf("train.label_smoothing is %g; it must be "+
			"at least 0 and below 1",
			o.Smoothing))
	}
	return errors.Join(faults...)
}

// LossWith returns the task's loss, changed by an objective. If the objective has errors, it
// returns all of them.
func (t *Task) LossWith(o Objective, classes int) (LossFunc, error) {
	if o.plain() && !t.Embeds {
		return t.Minibatch, nil
	}
	if err := o.check(t, classes); err != nil {
		return nil, err
	}
	return t.Changed(o), nil
}

// objective computes the loss on the host, whatever the device. The logits [seeds, classes] are a
// small part of a step, so a plain loop on the host is fast enough for all devices.
type objective struct {
	Objective
	host []float32 // logits, then their gradient
}

// loss returns a cross-entropy as crossEntropy does. But instead of one class, a vertex has a
// target t_c for each class c. If T is the sum of these targets, the loss is
//
//	sum_r ( T log sum_c exp(z_rc) - sum_c t_c z_rc ) / globalSeeds
//	t_c = weight_c ((1 - smoothing) [c = label] + smoothing / C)
//
// It sets dlogits to the gradient (T softmax(z) - t) / globalSeeds. Rows are added in order, so the
// result does not depend on the number of threads. It takes O(rows C) time and rows*C floats of
// host memory. Waits for the device.
func (o *objective) loss(
	dev compute.Device, dlogits, logits compute.Matrix, truth []byte, globalSeeds int,
) Stats {
	labels, n, scale := npy.View[int32](truth), len(logits.Data), float64(share(globalSeeds))
	o.host = slices.Grow(o.host[:0], n)
	host := compute.Matrix{Rows: logits.Rows, Cols: logits.Cols, Data: o.host[:n]}
	dev.Download(host.Data, logits.Data)
	sum, correct := 0.0, 0
	for r := range host.Rows {
		z := host.Row(r)
		row, best := o.row(z, labels[r], scale)
		sum += row
		if best == labels[r] {
			correct++
		}
	}
	dev.Upload(dlogits.Data, host.Data)
	return Stats{sum * scale, rightOf(correct, logits.Rows)}
}

// row returns the loss of one row of logits, and the index of its largest logit. The argument z has
// the logits; row overwrites them with the gradient, multiplied by scale.
func (o *objective) row(z []float32, label int32, scale float64) (loss float64, best int32) {
	best = argmax(z)
	largest, total, targets, fit := float64(z[best]), 0.0, 0.0, 0.0
	for c, x := range z {
		t := o.target(c, int(label), len(z))
		total += math.Exp(float64(x) - largest)
		targets += t
		fit += t * (float64(x) - largest)
	}
	for c, x := range z {
		p := math.Exp(float64(x)-largest) / total
		z[c] = float32((targets*p - o.target(c, int(label), len(z))) * scale)
	}
	return targets*math.Log(total) - fit, best
}

func (o *objective) target(class, label, classes int) float64 {
	t := o.Smoothing / float64(classes)
	if class == label {
		t += 1 - o.Smoothing
	}
	if o.Weights != nil {
		t *= o.Weights[class]
	}
	return t
}
