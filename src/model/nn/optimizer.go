package nn

import (
	"errors"
	"fmt"

	"halognn/src/devices/compute"
)

// The optimisers.
const (
	SGD   = "sgd"   // stochastic gradient descent with Polyak's momentum; no dampening, no Nesterov
	Adam  = "adam"  // Kingma and Ba, ICLR 2015; weight decay is added to the gradient
	AdamW = "adamw" // Loshchilov and Hutter, ICLR 2019; weight decay shrinks the weights themselves
)

// OptimizerOptions are the settings of an optimiser. The zero value is not useful: start from
// DefaultOptimizer. Decay applies to every parameter, biases and norms too, as in PyTorch.
type OptimizerOptions struct {
	Kind         string  // adam, adamw or sgd
	Momentum     float64 // momentum of SGD, in [0, 1); 0: none
	Beta1, Beta2 float64 // Adam, AdamW: share of the moments that a step keeps, in [0, 1); 0: none
	Eps          float64 // Adam and AdamW, > 0: keeps steps finite if all gradients were 0
	// Added to gradients in SGD and Adam, and applied to weights in AdamW; 0 for none.
	WeightDecay float64
}

// DefaultOptimizer returns the default settings of an optimiser: no weight decay, momentum 0.9 for
// SGD, and for Adam betas 0.9 and 0.999 and eps 1e-8.
func DefaultOptimizer(kind string) OptimizerOptions {
	return OptimizerOptions{Kind: kind, Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
}

// Check returns all errors in o, joined into one.
func (o OptimizerOptions) Check() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	unit := func(x float64) bool { return x >= 0 && x < 1 }
	fault(o.Kind != SGD && o.Kind != Adam && o.Kind != AdamW,
		"optimizer %q is not one of: %s, %s, %s", o.Kind, SGD, Adam, AdamW)
	fault(!unit(o.Momentum), "momentum is %g; it must lie in [0,1)", o.Momentum)
	fault(!unit(o.Beta1) || !unit(o.Beta2), "betas are %g and %g; they must lie in [0,1)", o.Beta1,
		o.Beta2)
	fault(o.Kind != SGD && !(o.Eps > 0), "eps is %g; it must be above 0", o.Eps)
	fault(!(o.WeightDecay >= 0), "weight decay is %g; it must be 0 or more", o.WeightDecay)
	return errors.Join(faults...)
}

// Optimizer updates the parameters of one model. Ranks that get the same gradients keep
// bit-identical parameters.
type Optimizer struct {
	options OptimizerOptions
	dev     compute.Device
	params  *Params
	slots   []Slot
	steps   int
}

// Slot is an array of an optimiser's state. It has one number for each number in Params.Values, in
// the same layout, in device memory.
type Slot struct {
	Name string // "momentum", "m" or "v"
	Data []float32
}

// NewOptimizer allocates the state of an optimiser. For SGD this is one array of the size of
// p.Values, and for Adam and AdamW it is two.
func NewOptimizer(dev compute.Device, p *Params, o OptimizerOptions) (*Optimizer, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	names := []string{"m", "v"}
	if o.Kind == SGD {
		names = []string{"momentum"}
	}
	opt := &Optimizer{options: o, dev: dev, params: p}
	for _, name := range names {
		data, err := dev.Alloc(p.Len())
		if err != nil {
			opt.Close()
			return nil, fmt.Errorf("optimizer state: %w", err)
		}
		opt.slots = append(opt.slots, Slot{Name: name, Data: data})
	}
	return opt, nil
}

// Close frees the memory of the state.
func (o *Optimizer) Close() {
	for _, s := range o.slots {
		o.dev.Free(s.Data)
	}
	o.slots = nil
}

// Update makes one step with learning rate lr along the gradients in Params.Grads, and moves the
// running values of batch norms. It takes O(parameters) time, in one kernel.
func (o *Optimizer) Update(lr float64) {
	o.params.moveStatistics()
	o.update(lr, compute.Bound{})
}

// UpdateWithin does what Update does, if QueuesLoss returned true for the model. In this case the
// host has not read the loss, which is in the header of the gradients. The device makes the update
// only if this loss is finite and at most limit. If it has skipped an update, it skips all later
// ones too. Steps counts skipped updates too.
func (o *Optimizer) UpdateWithin(lr, limit float64) {
	o.update(lr, compute.Bound{Loss: o.params.Grads[:1], Skipped: o.params.skipped(), Limit: limit})
}

func (o *Optimizer) update(lr float64, within compute.Bound) {
	o.steps++
	p, g := o.params.Weights(), o.params.Grads[o.params.first:]
	slot := func(i int) []float32 { return o.slots[i].Data[o.params.first:] }
	if o.options.Kind == SGD {
		o.dev.SGD(p, g, slot(0), compute.SGDOptions{
			LR: lr, Momentum: o.options.Momentum, WeightDecay: o.options.WeightDecay, Step: o.steps,
			Within: within})
		return
	}
	o.dev.Adam(p, g, slot(0), slot(1), compute.AdamOptions{
		LR: lr, Beta1: o.options.Beta1, Beta2: o.options.Beta2, Eps: o.options.Eps,
		WeightDecay: o.options.WeightDecay,
		Decoupled:   o.options.Kind == AdamW, Step: o.steps, Within: within})
}

// Steps returns the number of updates made so far. This number and the arrays in Slots are the
// complete state of the optimiser. SetSteps restores the number on a restart.
func (o *Optimizer) Steps() int     { return o.steps }
func (o *Optimizer) SetSteps(n int) { o.steps = n }

// Slots returns the state, which Params.Tensors can save and Params.SetTensors restore.
func (o *Optimizer) Slots() []Slot { return o.slots }
