//go:build cgo

package cpu

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"halognn/src/compute"
)

// productRows returns the height of a tile of y = x wᵀ and of dx = dy w: lower where there are few rows to share. BLAS packs
// w anew for every tile, which takes about 32/productRows of its time.
func productRows(rows int) int {
	if rows < 8192 {
		return 256
	}
	return 512
}

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
	d.run(y.Rows, task{run: matMulTile, rowsPerTile: productRows(y.Rows), y: y, x: x, w: w, add: add})
}

func matMulTile(_ *Device, t *task, tile int) {
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, general(t.rows(t.x, tile)), general(t.w), beta(t.add), general(t.rows(t.y, tile)))
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	compute.CheckProduct("MatMulInput", dy, dx, w)
	d.run(dx.Rows, task{run: matMulInputTile, rowsPerTile: productRows(dx.Rows), dx: dx, y: dy, w: w, add: add})
}

func matMulInputTile(_ *Device, t *task, tile int) {
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, general(t.rows(t.y, tile)), general(t.w), beta(t.add), general(t.rows(t.dx, tile)))
}

const (
	// weightWave is how many chunks are in progress before their sums are added: what bounds the scratch memory, to 32 times dw.
	weightWave = 32
	// fewChunks is below how many chunks each is cut into columns of dw besides, so that there are tiles to share.
	fewChunks = 16
	// weightColumns is the width of such a tile.
	weightColumns = 128
)

// MatMulWeights implements compute.Device: dw = (rows 0..511) + (rows 512..1023) + ..., by waves of chunks.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	compute.CheckProduct("MatMulWeights", dy, x, dw)
	chunks, size := chunkCount(dy.Rows), dw.Rows*dw.Cols
	width := dw.Cols
	if chunks < fewChunks {
		width = min(width, weightColumns)
	}
	d.reservePartials(min(chunks, weightWave), size)
	clear(dw.Data[:size])
	for first := 0; first < chunks; first += weightWave {
		lo, hi := first*compute.ChunkRows, min((first+weightWave)*compute.ChunkRows, dy.Rows)
		wave := task{w: dw, y: dy.RowsAt(lo, hi), x: x.RowsAt(lo, hi), width: width}
		wave.run, wave.rowsPerTile = matMulWeightsTile, 1
		d.run(chunkCount(hi-lo)*((dw.Cols+width-1)/width), wave)
		wave.run, wave.rowsPerTile = addWeightsTile, tileElements/2
		d.run(size, wave)
	}
}

// matMulWeightsTile computes columns of one chunk's sum.
func matMulWeightsTile(d *Device, t *task, tile int) {
	across := (t.w.Cols + t.width - 1) / t.width
	chunk, j := tile/across, tile%across*t.width
	lo := chunk * compute.ChunkRows
	hi, width := min(lo+compute.ChunkRows, t.y.Rows), min(t.width, t.w.Cols-j)
	sum := compute.Matrix{Rows: t.w.Rows, Cols: t.w.Cols, Data: d.partial[chunk*t.w.Rows*t.w.Cols:]}
	blas32.Gemm(blas.Trans, blas.NoTrans, 1, general(t.y.RowsAt(lo, hi)), columns(t.x.RowsAt(lo, hi), j, width), 0, columns(sum, j, width))
}

// addWeightsTile adds the sums of a wave's chunks, in order, to a range of dw.
func addWeightsTile(d *Device, t *task, tile int) {
	size := t.w.Rows * t.w.Cols
	lo, hi := t.bounds(size, tile)
	for c := range chunkCount(t.y.Rows) {
		d.kernels.addInto(t.w.Data[lo:hi], d.partial[c*size+lo:c*size+hi])
	}
}

// columns returns n columns of m, from column j, as BLAS sees them.
func columns(m compute.Matrix, j, n int) blas32.General {
	return blas32.General{Rows: m.Rows, Cols: n, Stride: m.Cols, Data: m.Data[j:]}
}
