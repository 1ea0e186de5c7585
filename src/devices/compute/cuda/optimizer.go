//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/devices/compute"

// Adam implements compute.Device.
func (d *Device) Adam(p, g, m, v []float32, o compute.AdamOptions) {
	defer d.probe.Start(compute.CheckAdam(p, g, m, v)).Done()
	c := o.Coefficients()
	must("Adam", C.gpu_adam(d.c, float(p), float(m), float(v), C.int64_t(len(p)), float(g),
		C.float(c.L2), C.float(c.Decay), C.float(c.Beta1), C.float(c.OneMinusBeta1),
		C.float(c.Beta2), C.float(c.OneMinusBeta2), C.float(c.Step), C.float(c.Root),
		C.float(c.Eps), bound(&o.Within)))
}

// SGD implements compute.Device.
func (d *Device) SGD(p, g, buf []float32, o compute.SGDOptions) {
	defer d.probe.Start(compute.CheckSGD(p, g, buf)).Done()
	must("SGD", C.gpu_sgd(d.c, float(p), float(buf), C.int64_t(len(p)), float(g),
		C.float(o.WeightDecay), C.float(o.Momentum), C.float(o.LR), cBool(o.Step <= 1),
		bound(&o.Within)))
}

// bound returns a bound as kernels take it.
func bound(b *compute.Bound) (to C.halognn_cuda_bound) {
	if b.Loss != nil {
		to.loss, to.skipped = float(b.Loss), float(b.Skipped)
		to.limit = C.double(b.Limit)
	}
	return to
}
