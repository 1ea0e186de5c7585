//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/devices/compute"

// largeGroup is the number of rows above which cuBLAS multiplies a group: it is then faster, and
// takes longer than its launch. All smaller groups of a call are one launch. So the number of
// launches grows with the rows of a call, not with its groups.
const largeGroup = 1024

// inGroups reports a call to the probe. If there are small groups, it calls the function `small`
// once for all of them. Then it calls the function `large` for each large group.
func (d *Device) inGroups(call compute.Call, g compute.Groups,
	small func(ends *C.int32_t, groups, stride C.int64_t) C.int, large func(group, lo, hi int)) {
	defer d.probe.Start(call).Done()
	some := false
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		some = some || hi-lo <= largeGroup
	}
	if some {
		d.arrays(len(g.Ends) * 4)
		must(call.Kernel, small((*C.int32_t)(onDevice(d, g.Ends)), C.int64_t(len(g.Ends)),
			C.int64_t(g.Stride)))
	}
	for i := range g.Ends {
		if lo, hi := g.Rows(i); hi-lo > largeGroup {
			large(i, lo, hi)
		}
	}
}

// GroupMatMul implements compute.Device.
func (d *Device) GroupMatMul(y, x compute.Matrix, w []float32, g compute.Groups) {
	rows, f := size(x)
	o := C.int64_t(y.Cols)
	d.inGroups(compute.CheckGroupMatMul(y, x, w, g), g,
		func(ends *C.int32_t, groups, stride C.int64_t) C.int {
			return C.gpu_group_matmul(d.c, float(y.Data), matrix(x), float(w), rows, f, o, ends,
				groups, stride, largeGroup, d.dropped())
		},
		func(i, lo, hi int) {
			d.MatMul(y.RowsAt(lo, hi), x.RowsAt(lo, hi), g.Weights(w, i, y.Cols, x.Cols), false)
		})
}

// GroupMatMulInput implements compute.Device.
func (d *Device) GroupMatMulInput(dx, dy compute.Matrix, w []float32, g compute.Groups) {
	rows, f := size(dx)
	o := C.int64_t(dy.Cols)
	d.inGroups(compute.CheckGroupMatMulInput(dx, dy, w, g), g,
		func(ends *C.int32_t, groups, stride C.int64_t) C.int {
			return C.gpu_group_matmul_input(d.c, float(dx.Data), matrix(dy), float(w), rows, f,
				o, ends, groups, stride, largeGroup, d.dropped())
		},
		func(i, lo, hi int) {
			d.MatMulInput(dx.RowsAt(lo, hi), dy.RowsAt(lo, hi), g.Weights(w, i, dy.Cols, dx.Cols),
				false)
		})
}

// GroupMatMulWeights implements compute.Device.
func (d *Device) GroupMatMulWeights(dw []float32, dy, x compute.Matrix, g compute.Groups) {
	f, o := C.int64_t(x.Cols), C.int64_t(dy.Cols)
	d.inGroups(compute.CheckGroupMatMulWeights(dw, dy, x, g), g,
		func(ends *C.int32_t, groups, stride C.int64_t) C.int {
			return C.gpu_group_matmul_weights(d.c, float(dw), matrix(dy), matrix(x), f, o,
				ends, groups, stride, largeGroup, d.dropped())
		},
		func(i, lo, hi int) {
			d.MatMulWeights(g.Weights(dw, i, dy.Cols, x.Cols), dy.RowsAt(lo, hi), x.RowsAt(lo, hi))
		})
}

// GroupDense implements compute.Device.
func (d *Device) GroupDense(y, x compute.Matrix, w, b []float32, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupDense(y, x, w, b, g)).Done()
	d.GroupMatMul(y, x, w, g)
	for i := range g.Ends {
		if lo, hi := g.Rows(i); lo < hi {
			d.AddBias(y.RowsAt(lo, hi), b[i*y.Cols:][:y.Cols])
		}
	}
}

// GroupDenseBackward implements compute.Device.
func (d *Device) GroupDenseBackward(dw, db []float32, dy, x compute.Matrix, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupDenseBackward(dw, db, dy, x, g)).Done()
	d.GroupMatMulWeights(dw, dy, x, g)
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		d.ColumnSum(db[i*dy.Cols:][:dy.Cols], dy.RowsAt(lo, hi))
	}
}
