//go:build cgo

package cpu

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"halognn/src/compute"
)

// productRows is the height of a tile of y = x wᵀ and of dx = dy w. BLAS packs w anew for every tile, which takes about
// 32/productRows of its time.
const productRows = 512

// general returns m as BLAS sees it.
func general(m compute.Matrix) blas32.General {
	return blas32.General{Rows: m.Rows, Cols: m.Cols, Stride: max(1, m.Cols), Data: m.Data}
}

func beta(add bool) float32 {
	if add {
		return 1
	}
	return 0
}

// MatMul implements compute.Device.
func (d *Device) MatMul(y, x, w compute.Matrix, add bool) {
	compute.CheckProduct("MatMul", y, x, w)
	d.run(y.Rows, task{run: matMulTile, rowsPerTile: productRows, y: y, x: x, w: w, add: add})
}

func matMulTile(_ *Device, t *task, tile int) {
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, general(t.rows(t.x, tile)), general(t.w), beta(t.add), general(t.rows(t.y, tile)))
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	compute.CheckProduct("MatMulInput", dy, dx, w)
	d.run(dx.Rows, task{run: matMulInputTile, rowsPerTile: productRows, dx: dx, y: dy, w: w, add: add})
}

func matMulInputTile(_ *Device, t *task, tile int) {
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, general(t.rows(t.y, tile)), general(t.w), beta(t.add), general(t.rows(t.dx, tile)))
}

// weightTile is the largest height and width of a tile of dw.
const weightTile = 128

// MatMulWeights implements compute.Device. Chunks are added by BLAS itself, to what it has summed so far.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	compute.CheckProduct("MatMulWeights", dy, x, dw)
	across := (dw.Cols + weightTile - 1) / weightTile
	down := (dw.Rows + weightTile - 1) / weightTile
	d.run(down*across, task{run: matMulWeightsTile, rowsPerTile: 1, w: dw, y: dy, x: x})
}

func matMulWeightsTile(_ *Device, t *task, tile int) {
	across := (t.w.Cols + weightTile - 1) / weightTile
	o, f := tile/across*weightTile, tile%across*weightTile
	outs, features := min(weightTile, t.w.Rows-o), min(weightTile, t.w.Cols-f)
	dw := columns(t.w.RowsAt(o, o+outs), f, features)
	if t.y.Rows == 0 {
		for r := range outs {
			clear(dw.Data[r*dw.Stride:][:features])
		}
	}
	for lo := 0; lo < t.y.Rows; lo += compute.ChunkRows {
		hi := min(lo+compute.ChunkRows, t.y.Rows)
		blas32.Gemm(blas.Trans, blas.NoTrans, 1, columns(t.y.RowsAt(lo, hi), o, outs), columns(t.x.RowsAt(lo, hi), f, features),
			beta(lo > 0), dw)
	}
}

// columns returns n columns of m, from column j, as BLAS sees them.
func columns(m compute.Matrix, j, n int) blas32.General {
	return blas32.General{Rows: m.Rows, Cols: n, Stride: m.Cols, Data: m.Data[j:]}
}
