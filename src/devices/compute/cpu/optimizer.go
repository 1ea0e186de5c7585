//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import "halognn/src/devices/compute"

type adam struct {
	p, g, m, v []float32
	c          compute.AdamCoefficients
}

// Adam implements compute.Device.
func (d *Device) Adam(p, g, m, v []float32, o compute.AdamOptions) {
	defer d.probe.Start(compute.CheckAdam(p, g, m, v)).Done()
	if !o.Within.Allows() {
		return
	}
	run(d, len(p), tileElements, adam{p, g, m, v, o.Coefficients()})
}

func (a *adam) tile(d *Device, lo, hi int) {
	c := &a.c
	C.halognn_adam(d.level, floats(a.p[lo:hi]), floats(a.m[lo:hi]), floats(a.v[lo:hi]),
		C.int64_t(hi-lo), floats(a.g[lo:hi]), C.float(c.L2), C.float(c.Decay), C.float(c.Beta1),
		C.float(c.OneMinusBeta1), C.float(c.Beta2), C.float(c.OneMinusBeta2), C.float(c.Step),
		C.float(c.Root), C.float(c.Eps))
}

// SparseAdam implements compute.Host.
func (h *Host) SparseAdam(p, m, v compute.Matrix, of compute.RowGradients,
	o compute.SparseAdamOptions) {
	compute.CheckSparseAdam(p, m, v, of)
	C.halognn_sparse_adam(h.level, floats(p.Data), floats(m.Data), floats(v.Data),
		C.int64_t(len(of.Rows)), C.int64_t(p.Cols), int32s(of.Rows), int32s(of.Indptr),
		int32s(of.Indices), floats(of.Gradients.Data), C.float(o.First), C.float(o.Second),
		C.float(o.Decay), C.float(o.Step), C.float(o.Eps))
}

type sgd struct {
	p, g, buf []float32
	o         compute.SGDOptions
}

// SGD implements compute.Device.
func (d *Device) SGD(p, g, buf []float32, o compute.SGDOptions) {
	defer d.probe.Start(compute.CheckSGD(p, g, buf)).Done()
	if !o.Within.Allows() {
		return
	}
	run(d, len(p), tileElements, sgd{p, g, buf, o})
}

func (a *sgd) tile(d *Device, lo, hi int) {
	C.halognn_sgd(d.level, floats(a.p[lo:hi]), floats(a.buf[lo:hi]), C.int64_t(hi-lo),
		floats(a.g[lo:hi]), C.float(a.o.WeightDecay), C.float(a.o.Momentum), C.float(a.o.LR),
		cBool(a.o.Step <= 1))
}
