//go:build cgo

package cpu

import "halognn/src/compute"

// dense computes a Dense tile by tile, so that the epilogue finds the tile's rows in the cache.
type dense struct {
	first, second product // second without columns: none
	bias          []float32
	epilogue      epilogue
}

// Dense implements compute.Device.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	call := dense{first: d.forward(0, y, a.X, a.W, false), bias: a.Bias,
		epilogue: epilogueOf(y, a.Epilogue)}
	if a.X2.Cols > 0 {
		call.second = d.forward(1, y, a.X2, a.W2, true)
	}
	run(d, y.Rows, productRows(y.Rows), call)
}

func (a *dense) tile(d *Device, lo, hi int) {
	a.first.tile(d, lo, hi)
	y := a.first.out
	if a.bias != nil {
		(&addBias{y, a.bias}).tile(d, lo, hi)
	}
	if a.second.in.Cols > 0 {
		a.second.tile(d, lo, hi)
	}
	a.epilogue.tile(d, lo, hi)
}

// epilogue applies a compute.Epilogue while the tile's rows are in the cache.
type epilogue struct {
	y, add     compute.Matrix
	activation activation
}

func epilogueOf(y compute.Matrix, e compute.Epilogue) epilogue {
	return epilogue{y, e.Add, activationOf(y, e)}
}

func (a *epilogue) tile(d *Device, lo, hi int) {
	if a.add.Cols > 0 {
		(&copyColumns{a.y, a.add, 0, 0, a.y.Cols, true}).tile(d, lo, hi)
	}
	if a.activation.kind != compute.NoActivation {
		a.activation.tile(d, lo, hi)
	}
}

// DenseBackward implements compute.Device.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	behind := activationBackward{activationOf(y, a.Epilogue), dy}
	call := chunkSums{rows: dy.Rows, behind: behind, dy: dy}
	if a.Bias != nil {
		call.bias = g.Bias
	}
	call.product(d, g.W, dy, a.X)
	if a.X2.Cols > 0 {
		call.product(d, g.W2, dy, a.X2)
	}
	call.run(d)
}

// Finish implements compute.Device.
func (d *Device) Finish(y compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, b, epilogue)).Done()
	run(d, y.Rows, streamRows(y.Cols), finish{addBias{y, b}, epilogueOf(y, epilogue)})
}

type finish struct {
	bias     addBias
	epilogue epilogue
}

func (a *finish) tile(d *Device, lo, hi int) {
	a.bias.tile(d, lo, hi)
	a.epilogue.tile(d, lo, hi)
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	compute.FinishBackwardInParts(d, db, dy, y, epilogue)
}

// activationOf returns the activation of an epilogue, on y.
func activationOf(y compute.Matrix, e compute.Epilogue) activation {
	if e.Activation == compute.NoActivation {
		return activation{}
	}
	return newActivation(e.Activation, y, e.P, e.Key, e.Vertices)
}
