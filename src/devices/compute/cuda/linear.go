//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// MatMul implements compute.Device.
func (d *Device) MatMul(y, x, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
	r, f := size(x)
	d.lendFactors("MatMul", x, w, func(rounded unsafe.Pointer) C.int {
		return C.gpu_matmul(d.c, float(y.Data), matrix(x), matrix(w), r, f, C.int64_t(w.Rows),
			cBool(add), rounded, d.dropped())
	})
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMulInput(dx, dy, w, add)).Done()
	r, f := size(dx)
	d.lendFactors("MatMulInput", dy, w, func(rounded unsafe.Pointer) C.int {
		return C.gpu_matmul_input(d.c, float(dx.Data), matrix(dy), matrix(w), r, f,
			C.int64_t(w.Rows), cBool(add), rounded, d.dropped())
	})
}

// MatMulWeights implements compute.Device.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckMatMulWeights(dw, dy, x)).Done()
	d.weights("MatMulWeights", dw, nil, dy, x)
}

// weights sets dw = dyᵀ x. Unless db is nil, the next Settle sets db to the sum of the rows of dy.
func (d *Device) weights(kernel string, dw compute.Matrix, db []float32, dy, x compute.Matrix) {
	r, f := size(x)
	var left *C.float
	if len(db) > 0 {
		left = d.left(x.Rows, len(db))
	}
	d.lendFactors(kernel, dy, x, func(rounded unsafe.Pointer) C.int {
		return C.gpu_matmul_weights(d.c, float(dw.Data), float(db), matrix(dy), matrix(x), r, f,
			C.int64_t(dw.Rows), left, rounded, d.dropped())
	})
}

// Settle implements compute.Device. In one launch it computes all sums that earlier calls left to
// it.
func (d *Device) Settle() {
	if d.leftCalls == 0 {
		return
	}
	defer d.probe.Start(compute.Call{Kernel: "Settle"}).Done()
	d.leftBytes, d.leftCalls = 0, 0
	must("Settle", C.gpu_settle(d.c))
}

// left returns room for sums of n floats for each chunk of rows. It stays reserved until Settle.
func (d *Device) left(rows, n int) *C.float {
	const most = 4 // the largest number of calls whose sums one launch makes
	if d.leftCalls == most {
		d.Settle()
	}
	chunks := (rows + compute.ChunkRows - 1) / compute.ChunkRows
	d.leftCalls++
	at := d.leftBytes
	d.leftBytes += (max(1, chunks*n)*4 + alignment - 1) / alignment * alignment
	if d.leftBytes > d.sums.bytes { // the memory is too small, which happens in the first steps
		all := d.leftBytes
		d.Settle()
		if err := d.reserve(&d.sums, all, useScratch); err != nil {
			panic(err)
		}
		at, d.leftBytes, d.leftCalls = 0, all-at, 1
	}
	return (*C.float)(unsafe.Add(d.sums.p, at))
}

// lendFactors lends room for rounded copies of the factors of a product. If the factors need no
// rounded copies, it passes nil to launch.
func (d *Device) lendFactors(kernel string, a, b compute.Matrix,
	launch func(unsafe.Pointer) C.int) {
	const align = C.HALOGNN_FACTOR_ALIGN
	n := 0
	for _, m := range [2]compute.Matrix{a, b} {
		if m.BF16 == nil {
			n += (m.Rows*m.Cols + align - 1) / align * align
		}
	}
	if n *= d.precision.FactorBytes(); n == 0 {
		must(kernel, launch(nil))
		return
	}
	d.lend(kernel, &d.rounded, n, launch)
}

// dropped returns the number of low bits that rounding removes from a factor.
func (d *Device) dropped() C.int { return C.int(d.precision.Dropped()) }

// AddBias implements compute.Device.
func (d *Device) AddBias(y compute.Matrix, b []float32) {
	defer d.probe.Start(compute.CheckAddBias(y, b)).Done()
	d.epilogue("AddBias", y, y, b, compute.Epilogue{})
}

// ColumnSum implements compute.Device.
func (d *Device) ColumnSum(db []float32, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckColumnSum(db, dy)).Done()
	rows, cols := size(dy)
	d.lendSums("ColumnSum", dy.Rows, dy.Cols, func(partial *C.float) C.int {
		return C.gpu_column_sum(d.c, float(db), rows, cols, float(dy.Data), partial)
	})
}

// AddScaled implements compute.Device.
func (d *Device) AddScaled(y, z, x compute.Matrix, scale []float32) {
	defer d.probe.Start(compute.CheckAddScaled(y, z, x, scale)).Done()
	must("AddScaled", C.gpu_add_scaled(d.c, matrix(y), C.int64_t(y.Rows*y.Cols),
		matrix(z), matrix(x), float(scale)))
}

// CopyColumns implements compute.Device.
func (d *Device) CopyColumns(y compute.Matrix, at int, x compute.Matrix, from, n int, add bool) {
	defer d.probe.Start(compute.CheckCopyColumns(y, at, x, from, n, add)).Done()
	if y.Rows == 0 || n == 0 {
		return
	}
	source := matrix(x)
	source.of = unsafe.Add(source.of, from*x.Elements().Size())
	must("CopyColumns", C.gpu_copy_columns(d.c, float(y.Data[at:]), C.int64_t(y.Rows), C.int64_t(n),
		C.int64_t(y.Cols), source, C.int64_t(x.Cols), cBool(add)))
}

// Transpose implements compute.Device.
func (d *Device) Transpose(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckTranspose(y, x)).Done()
	rows, cols := size(y)
	must("Transpose", C.gpu_transpose(d.c, float(y.Data), rows, cols, float(x.Data),
		C.int64_t(x.Cols)))
}

// Dot implements compute.Device.
func (d *Device) Dot(sum []float32, x, y compute.Matrix) {
	defer d.probe.Start(compute.CheckDot(sum, x, y)).Done()
	rows, cols := size(x)
	must("Dot", C.gpu_dot(d.c, float(sum), rows, cols, matrix(x), matrix(y),
		d.left(x.Rows+compute.ChunkRows, x.Cols)))
}
