//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"gonum.org/v1/gonum/blas"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// groupProduct computes y = x w_gᵀ or dx = dy w_g for each group g. It does so in tiles of rows;
// all rows of a tile belong to the same group.
type groupProduct struct {
	out, in compute.Matrix
	w       []float32
	t       blas.Transpose // blas.Trans if weights are transposed
	stride  int            // number of elements in a row of the weights
	g       compute.Groups
	bias    []float32 // [groups] biases to add; nil if there are none
}

// groupTile is a range of rows of one group. It stores its sum of products in the partial sums,
// beginning at an index (`at`). If this index is below 0, the tile is the whole group, and its sum
// is the result.
type groupTile struct{ group, lo, hi, at int }

// GroupMatMul implements compute.Device.
func (d *Device) GroupMatMul(y, x compute.Matrix, w []float32, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupMatMul(y, x, w, g)).Done()
	d.groupProduct(groupProduct{y, x, w, blas.Trans, x.Cols, g, nil})
}

// GroupMatMulInput implements compute.Device.
func (d *Device) GroupMatMulInput(dx, dy compute.Matrix, w []float32, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupMatMulInput(dx, dy, w, g)).Done()
	d.groupProduct(groupProduct{dx, dy, w, blas.NoTrans, dx.Cols, g, nil})
}

// GroupDense implements compute.Device.
func (d *Device) GroupDense(y, x compute.Matrix, w, b []float32, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupDense(y, x, w, b, g)).Done()
	d.groupProduct(groupProduct{y, x, w, blas.Trans, x.Cols, g, b})
}

func (d *Device) groupProduct(p groupProduct) {
	d.multiplies(p.in)
	if d.rounding != nil {
		rows := p.out.Cols
		if p.t == blas.NoTrans {
			rows = p.in.Cols
		}
		d.rounding.keep(0, weights{p.w, true, p.g, rows, p.stride, p.t})
	}
	d.cutGroups(p.g, d.productRows(p.out.Rows), 0)
	run(d, len(d.groupTiles), 1, p)
}

func (a *groupProduct) tile(d *Device, i, _ int) {
	t := d.groupTiles[i]
	out, in, first := a.out.RowsAt(t.lo, t.hi), a.in.RowsAt(t.lo, t.hi), t.group*a.g.Stride
	if d.rounding != nil {
		d.rounding.product(out, in, 0, t.group, false)
	} else {
		d.gemm.Sgemm(blas.NoTrans, a.t, out.Rows, out.Cols, in.Cols, in.Data, in.Cols, a.w[first:],
			a.stride, 0, out.Data, out.Cols)
	}
	if a.bias != nil {
		(&addBias{out, a.bias[t.group*out.Cols:]}).tile(d, 0, out.Rows)
	}
}

// A tile of GroupMatMulWeights adds at least groupChunks chunks of a group. There are at most
// groupPartials tiles in addition to the first tile of each group.
const (
	groupChunks   = 4
	groupPartials = 64
)

// groupSum sets dw_g = dyᵀ x and, unless db is nil, db_g to the sum of the columns of dy. A tile
// adds several chunks of rows of a group, in order. If a group has several tiles, the sums of the
// tiles are added afterwards, also in order.
type groupSum struct {
	dw, db []float32
	dy, x  compute.Matrix
	stride int
}

// GroupMatMulWeights implements compute.Device.
func (d *Device) GroupMatMulWeights(dw []float32, dy, x compute.Matrix, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupMatMulWeights(dw, dy, x, g)).Done()
	d.groupSum(groupSum{dw, nil, dy, x, g.Stride}, g)
}

// GroupDenseBackward implements compute.Device.
func (d *Device) GroupDenseBackward(dw, db []float32, dy, x compute.Matrix, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupDenseBackward(dw, db, dy, x, g)).Done()
	d.groupSum(groupSum{dw, db, dy, x, g.Stride}, g)
}

func (d *Device) groupSum(a groupSum, g compute.Groups) {
	d.multiplies(a.dy)
	d.multiplies(a.x)
	chunks, size := max(groupChunks, chunkCount(a.dy.Rows)/groupPartials), a.dy.Cols*a.x.Cols
	if a.db != nil {
		size += a.dy.Cols
	}
	partials := d.cutGroups(g, chunks*compute.ChunkRows, size)
	d.partial = mem.Grow(d.partial, partials)
	for i := range g.Ends {
		if lo, hi := g.Rows(i); lo == hi {
			dw, db := a.sums(i)
			clear(dw)
			clear(db)
		}
	}
	run(d, len(d.groupTiles), 1, a)
	for _, t := range d.groupTiles {
		if t.at >= 0 {
			dw, db := a.sums(t.group)
			addInto(d.level, dw, d.partial[t.at:][:len(dw)])
			addInto(d.level, db, d.partial[t.at+len(dw):][:len(db)])
		}
	}
}

// sums returns the parts of dw and db that belong to a group.
func (a *groupSum) sums(group int) (dw, db []float32) {
	dw = a.dw[group*a.stride:][:a.dy.Cols*a.x.Cols]
	if a.db != nil {
		db = a.db[group*a.dy.Cols:][:a.dy.Cols]
	}
	return dw, db
}

func (a *groupSum) tile(d *Device, i, _ int) {
	t := d.groupTiles[i]
	sum, db := a.sums(t.group)
	if t.at >= 0 {
		n := len(sum)
		sum, db = d.partial[t.at:][:n], d.partial[t.at+n:][:len(db)]
	}
	for lo := t.lo; lo < t.hi; lo += compute.ChunkRows {
		dy, x := a.dy.RowsAt(lo, min(lo+compute.ChunkRows, t.hi)),
			a.x.RowsAt(lo, min(lo+compute.ChunkRows, t.hi))
		if d.rounding != nil {
			d.rounding.chunk(sum, x.Cols, dy, x, 0, x.Cols, lo > t.lo)
			continue
		}
		d.gemm.Sgemm(blas.Trans, blas.NoTrans, dy.Cols, x.Cols, dy.Rows, dy.Data, dy.Cols, x.Data,
			x.Cols, beta(lo > t.lo), sum, x.Cols)
	}
	if a.db != nil {
		dy := a.dy.RowsAt(t.lo, t.hi)
		rows, cols := size(dy)
		C.halognn_column_sum(d.level, floats(db), rows, cols, floats(dy.Data))
	}
}

// cutGroups divides every group into tiles of the given number of rows. It returns the total number
// of elements of the partial sums. The first tile of a group needs no partial sum. Every other tile
// has one of size elements.
func (d *Device) cutGroups(g compute.Groups, rows, size int) (elements int) {
	d.groupTiles = d.groupTiles[:0]
	for i := range g.Ends {
		lo, hi := g.Rows(i)
		for at := lo; at < hi; at += rows {
			t := groupTile{i, at, min(at+rows, hi), -1}
			if at > lo {
				t.at = elements
				elements += size
			}
			d.groupTiles = append(d.groupTiles, t)
		}
	}
	return elements
}
