//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// largeWithoutTiles is the number of rows above which a group is multiplied alone, because its
// product then takes longer than its launch, if groups cannot be divided into tiles.
const largeWithoutTiles = 1024

// groupProduct is one call for products of groups of rows.
type groupProduct struct {
	call    compute.Call
	groups  compute.Groups
	o, f    int // the weights of a group are [o,f]
	factors [2]compute.Matrix
	result  []float32 // nil if each tile needs a sum of its own
}

// multiply reports a call to the probe. If there are groups that are not large, it calls the
// function `tiled` once for all of them. Then it calls the function `large` for each large group.
// The function `tiled` gets the groups, with room for what their tiles need, and room for rounded
// factors.
func (d *Device) multiply(p groupProduct, tiled func(C.halognn_cuda_groups, unsafe.Pointer) C.int,
	large func(group, lo, hi int)) {
	defer d.probe.Start(p.call).Done()
	to, some := d.tiles(&p)
	if some {
		d.arrays(len(p.groups.Ends) * 4)
		to.ends = (*C.int32_t)(onDevice(d, p.groups.Ends))
		d.lendTiles(&p, to, tiled)
	}
	for i := range p.groups.Ends {
		if lo, hi := p.groups.Rows(i); hi-lo > int(to.large) {
			large(i, lo, hi)
		}
	}
}

// tiles divides the groups that are not large into tiles. It also returns whether there are such
// groups.
func (d *Device) tiles(p *groupProduct) (to C.halognn_cuda_groups, some bool) {
	to = C.halognn_cuda_groups{count: C.int64_t(len(p.groups.Ends)),
		stride: C.int64_t(p.groups.Stride), large: largeWithoutTiles}
	switch {
	case !d.fitTiles(p):
	case compute.GroupTiles(p.groups.Ends) == 0:
		to.large = compute.GroupTile - 1
	case p.result == nil:
		to.large, to.sizes = compute.LargeGroup,
			[2]C.int64_t{compute.ChunkRows, compute.GroupTile}
	default:
		to.large, to.sizes = compute.LargeGroup, [2]C.int64_t{compute.GroupTile, 0}
	}
	for i := range p.groups.Ends {
		lo, hi := p.groups.Rows(i)
		left := C.int64_t(hi - lo)
		if left > to.large {
			continue
		}
		some = true
		for k, size := range to.sizes {
			if size > 0 {
				to.tiles[k] += left / size
				left %= size
			}
		}
		to.rest = max(to.rest, left)
	}
	return to, some
}

// fitTiles reports whether cuBLAS can multiply tiles. For tensor cores, all matrices must begin at
// multiples of 16 bytes. There must be columns, because cuBLAS takes no rows of length 0.
func (d *Device) fitTiles(p *groupProduct) bool {
	width := d.precision.TileColumns()
	fit := p.o > 0 && p.f > 0 &&
		p.o%width == 0 && p.f%width == 0 && p.groups.Stride%width == 0
	for _, of := range []unsafe.Pointer{matrix(p.factors[0]).of, matrix(p.factors[1]).of,
		unsafe.Pointer(float(p.result))} {
		fit = fit && (width == 1 || uintptr(of)%16 == 0)
	}
	return fit
}

// lendTiles lends room for the addresses and the sums of tiles, and for rounded factors. If there
// are no tiles, it lends nothing.
func (d *Device) lendTiles(p *groupProduct, to C.halognn_cuda_groups,
	launch func(C.halognn_cuda_groups, unsafe.Pointer) C.int) {
	tiles := int(to.tiles[0] + to.tiles[1])
	if tiles == 0 {
		must(p.call.Kernel, launch(to, nil))
		return
	}
	align := func(bytes int) int { return (bytes + alignment - 1) / alignment * alignment }
	first := align(3 * C.sizeof_uintptr_t * tiles)
	sums, bytes := first, first
	if p.result == nil {
		sums += align(2 * C.sizeof_int32_t * len(p.groups.Ends))
		bytes = sums + 4*tiles*p.o*p.f
	}
	d.lend(p.call.Kernel, &d.scratch, bytes, func(room unsafe.Pointer) C.int {
		to.at = (*unsafe.Pointer)(room)
		if p.result == nil {
			to.first, to.sums = (*C.int32_t)(unsafe.Add(room, first)),
				(*C.float)(unsafe.Add(room, sums))
		}
		d.lendFactors(p.call.Kernel, p.factors[0], p.factors[1],
			func(rounded unsafe.Pointer) C.int { return launch(to, rounded) })
		return 0
	})
}

// groupWeights returns the weights [o,f] of all groups, and what lies between them, as a row.
func groupWeights(w []float32, g compute.Groups, o, f int) compute.Matrix {
	if len(g.Ends) == 0 {
		return compute.Matrix{}
	}
	n := (len(g.Ends)-1)*g.Stride + o*f
	return compute.Matrix{Rows: 1, Cols: n, Data: w[:n]}
}

// GroupMatMul implements compute.Device.
func (d *Device) GroupMatMul(y, x compute.Matrix, w []float32, g compute.Groups) {
	rows, f := size(x)
	call := compute.CheckGroupMatMul(y, x, w, g)
	d.multiply(groupProduct{call, g, y.Cols, x.Cols,
		[2]compute.Matrix{groupWeights(w, g, y.Cols, x.Cols), x}, y.Data},
		func(of C.halognn_cuda_groups, rounded unsafe.Pointer) C.int {
			return C.gpu_group_matmul(d.c, float(y.Data), matrix(x), float(w), rows, f,
				C.int64_t(y.Cols), of, rounded, d.dropped())
		},
		func(i, lo, hi int) {
			d.MatMul(y.RowsAt(lo, hi), x.RowsAt(lo, hi), g.Weights(w, i, y.Cols, x.Cols), false)
		})
}

// GroupMatMulInput implements compute.Device.
func (d *Device) GroupMatMulInput(dx, dy compute.Matrix, w []float32, g compute.Groups) {
	rows, f := size(dx)
	call := compute.CheckGroupMatMulInput(dx, dy, w, g)
	d.multiply(groupProduct{call, g, dy.Cols, dx.Cols,
		[2]compute.Matrix{groupWeights(w, g, dy.Cols, dx.Cols), dy}, dx.Data},
		func(of C.halognn_cuda_groups, rounded unsafe.Pointer) C.int {
			return C.gpu_group_matmul_input(d.c, float(dx.Data), matrix(dy), float(w), rows, f,
				C.int64_t(dy.Cols), of, rounded, d.dropped())
		},
		func(i, lo, hi int) {
			d.MatMulInput(dx.RowsAt(lo, hi), dy.RowsAt(lo, hi), g.Weights(w, i, dy.Cols, dx.Cols),
				false)
		})
}

// GroupMatMulWeights implements compute.Device.
func (d *Device) GroupMatMulWeights(dw []float32, dy, x compute.Matrix, g compute.Groups) {
	rows, f := size(x)
	call := compute.CheckGroupMatMulWeights(dw, dy, x, g)
	d.multiply(groupProduct{call, g, dy.Cols, x.Cols, [2]compute.Matrix{dy, x}, nil},
		func(of C.halognn_cuda_groups, rounded unsafe.Pointer) C.int {
			return C.gpu_group_matmul_weights(d.c, float(dw), matrix(dy), matrix(x), rows, f,
				C.int64_t(dy.Cols), of, rounded, d.dropped())
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
