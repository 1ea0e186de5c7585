//go:build cgo

package cpu

import "halognn/src/compute"

// Adam implements compute.Device.
func (d *Device) Adam(p, g, m, v []float32, o compute.AdamOptions) {
	compute.CheckLengths("Adam", len(p), len(g), len(m), len(v))
	d.run(len(p), task{run: adamTile, rowsPerTile: tileElements, param: p, grad: g, m: m, v: v, adam: o.Coefficients()})
}

func adamTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(len(t.param), tile)
	d.kernels.adam(t.param[lo:hi], t.grad[lo:hi], t.m[lo:hi], t.v[lo:hi], &t.adam)
}

// SGD implements compute.Device.
func (d *Device) SGD(p, g, buf []float32, o compute.SGDOptions) {
	compute.CheckLengths("SGD", len(p), len(g), len(buf))
	d.run(len(p), task{run: sgdTile, rowsPerTile: tileElements, param: p, grad: g, m: buf, sgd: o})
}

func sgdTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(len(t.param), tile)
	d.kernels.sgd(t.param[lo:hi], t.grad[lo:hi], t.m[lo:hi], t.sgd)
}
