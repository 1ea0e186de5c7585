//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"unsafe"

	"gonum.org/v1/gonum/blas"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// bf16Engine is an engine that also multiplies factors of bfloat16. Sums are in float32.
type bf16Engine interface {
	engine
	// Bgemm does what Sgemm does, with factors of bfloat16.
	Bgemm(tA, tB blas.Transpose, m, n, k int, a []uint16, lda int, b []uint16, ldb int,
		beta float32, c []float32, ldc int)
}

// weights are the right factors of the products of a kernel: one matrix [rows,cols], or a matrix
// for each group.
type weights struct {
	data    []float32
	grouped bool
	// groups of rows that have a matrix each; not used if grouped is false
	of         compute.Groups
	rows, cols int
	t          blas.Transpose
}

// whole returns weights that are a single matrix. The factor is w or, if t is blas.Trans, wᵀ.
func whole(w compute.Matrix, t blas.Transpose) weights {
	return weights{data: w.Data, rows: w.Rows, cols: w.Cols, t: t}
}

// count returns the number of matrices.
func (w *weights) count() int {
	if !w.grouped {
		return 1
	}
	return len(w.of.Ends)
}

// groupMatrix returns the matrix of a group. It returns nil if the group has no rows.
func (w *weights) groupMatrix(group int) []float32 {
	at := 0
	if w.grouped {
		if lo, hi := w.of.Rows(group); lo == hi {
			return nil
		}
		at = group * w.of.Stride
	}
	return w.data[at:][:w.rows*w.cols]
}

// rounding rounds factors and multiplies them. Its tiles are those of float32 products. Weights are
// rounded once in a call of a kernel. Rows are rounded tile by tile, unless they are stored
// rounded, so that they are still in the cache when they are multiplied.
type rounding interface {
	// keep rounds and keeps weights of a kernel, under the index which.
	keep(which int, w weights)
	// product sets the tile out to the product of the argument in and the weights that keep has
	// kept under the index which, for a group. If add is true, it adds the product to out.
	product(out, in compute.Matrix, which, group int, add bool)
	// tileRows returns the rows of a tile of a product with the given number of rows.
	tileRows(rows int) int
	// chunk sets sum to leftᵀ right, for the columns [first,first+width) of right. If add is true,
	// it adds the product to sum. The argument `stride` is the number of elements from one row of
	// sum to the next. The factors have at most compute.ChunkRows rows.
	chunk(sum []float32, stride int, left, right compute.Matrix, first, width int, add bool)
	bytes() int64 // memory that the rounding uses
	free()
}

// bf16Products chooses what multiplies bfloat16 factors if the library is e, and returns its name.
// The C kernels of this package (own) are preferred if mayUseOwn is true, the machine has them, and
// oneDNN does not use AMX. If they are slower than products of float32 here, nothing is chosen. In
// other cases the library e (fast) is chosen, if it has instructions for bfloat16. If nothing is
// chosen, both results are nil.
func bf16Products(e engine, mayUseOwn bool) (own bf16Kernels, fast bf16Engine, name string) {
	fast, _ = e.(bf16Engine)
	if own = openBF16Kernels(); own != nil && mayUseOwn && (fast == nil || !oneDNNHasAMX()) {
		if C.halognn_products_pay() == 0 {
			return nil, nil, "bf16 products in float32"
		}
		return own, nil, "bf16 products by " + C.GoString(own.isa)
	}
	if fast != nil && oneDNNHasBF16() {
		return nil, fast, "bf16 products"
	}
	return nil, nil, slowly(compute.PrecisionBF16)
}

// mayUseOwn reports whether the C kernels of this package may multiply bfloat16: no library is
// named, and kernels may use AVX-512.
func mayUseOwn(gemm string, k level) bool {
	name, err := gemmName(gemm)
	return err == nil && name == "" && levelName(k) == "avx512"
}

func slowly(p compute.Precision) string { return string(p) + " products in float32 (slow)" }

// newRounding returns the rounding for a precision, and the name of what multiplies the rounded
// factors.
func newRounding(e engine, p compute.Precision, k level, threads int, mayUseOwn bool) (rounding,
	string) {
	name := slowly(p)
	if p == compute.PrecisionBF16 {
		var own bf16Kernels
		var fast bf16Engine
		switch own, fast, name = bf16Products(e, mayUseOwn); {
		case own != nil:
			return newPairs(own, k, threads), name
		case fast != nil:
			return roundingToBF16(fast, k, threads), name
		}
	}
	return roundingToFloats(e, p, k, threads), name
}

// roundingToBF16 returns a rounding for a library that multiplies bfloat16.
func roundingToBF16(e bf16Engine, k level, threads int) rounding {
	return &roundingTo[uint16]{
		round: func(dst []uint16, width, rows, cols int, x []float32, stride int) {
			C.halognn_to_bf16(k, halves(dst), C.int64_t(width), C.int64_t(rows),
				C.int64_t(cols), floats(x), C.int64_t(stride))
		},
		stored: func(_ *[]uint16, x compute.Matrix, first, _ int) ([]uint16, int) {
			return x.BF16[min(first, len(x.BF16)):], x.Cols
		},
		gemm: e.Bgemm, scratch: make([]scratchOf[uint16], threads)}
}

// roundingToFloats returns a rounding that stores rounded factors as float32. Its products have the
// bits that the precision defines. They take as long as products of float32, plus the time of the
// rounding.
func roundingToFloats(e engine, p compute.Precision, k level, threads int) rounding {
	dropped := C.int(p.Dropped())
	return &roundingTo[float32]{
		round: func(dst []float32, width, rows, cols int, x []float32, stride int) {
			C.halognn_round_factors(k, floats(dst), C.int64_t(width), C.int64_t(rows),
				C.int64_t(cols), floats(x), C.int64_t(stride), dropped)
		},
		stored: func(dst *[]float32, x compute.Matrix, first, width int) ([]float32, int) {
			*dst = mem.Grow(*dst, x.Rows*width)
			if len(*dst) > 0 {
				C.halognn_from_bf16(k, floats(*dst), C.int64_t(x.Rows), C.int64_t(width),
					halves(x.BF16[first:]), C.int64_t(x.Cols))
			}
			return *dst, width
		},
		turn: func(dst, w []float32, rows, cols int) {
			size := C.int64_t(rows * cols)
			C.halognn_transpose(k, floats(dst), C.int64_t(cols), C.int64_t(rows), floats(w),
				C.int64_t(cols))
			C.halognn_round_factors(k, floats(dst), size, 1, size, floats(dst), size, dropped)
		},
		gemm: e.Sgemm, scratch: make([]scratchOf[float32], threads)}
}

// roundingTo stores rounded factors as T, which is uint16 for bfloat16, or float32.
type roundingTo[T uint16 | float32] struct {
	round func(dst []T, width, rows, cols int, x []float32, stride int)
	// stored returns columns of a matrix of bfloat16 as T, and the number of elements from one row
	// to the next.
	stored func(dst *[]T, x compute.Matrix, first, width int) (columns []T, stride int)
	// turn sets dst to the rounded transpose of w [rows,cols]. A library multiplies this faster
	// than it multiplies and transposes w. It is nil if this rounding does not transpose.
	turn func(dst []T, w []float32, rows, cols int)
	gemm func(tA, tB blas.Transpose, m, n, k int, a []T, lda int, b []T, ldb int,
		beta float32, c []float32, ldc int)
	w       [2][]T
	kept    [2]keptWeights
	scratch []scratchOf[T] // [threads] scratch memory
}

// keptWeights are the matrices [rows,cols] that a rounding keeps under one index.
type keptWeights struct {
	rows, cols int
	t          blas.Transpose
}

// scratchOf is the scratch memory of a tile in progress.
type scratchOf[T uint16 | float32] struct {
	slot
	left, right []T
	out         []float32
	_           [64]byte // keeps threads on separate cache lines
}

// rounded returns columns of x, and the number of elements from one row to the next. Unless x is
// stored rounded, it rounds them into dst, which grows as needed.
func (r *roundingTo[T]) rounded(dst *[]T, x compute.Matrix, first, width int) (columns []T,
	stride int) {
	if x.BF16 != nil {
		return r.stored(dst, x, first, width)
	}
	*dst = mem.Grow(*dst, x.Rows*width)
	if len(*dst) > 0 {
		r.round(*dst, width, x.Rows, width, x.Data[first:], x.Cols)
	}
	return *dst, width
}

// fullWidth returns the number of columns computed for a product of cols columns. With bfloat16 a
// library takes more than twice as long for 47 columns as for 48, so narrow products are computed
// with additional columns. For wide products, copying the result would take more time than this
// saves.
func fullWidth(cols int) int {
	const narrow = 64
	if cols >= narrow {
		return cols
	}
	return (cols + vectorWidth - 1) / vectorWidth * vectorWidth
}

// keep stores weights. It adds columns of 0 to the factor, up to the number of columns that are
// computed.
func (r *roundingTo[T]) keep(which int, w weights) {
	rows, width, t := w.rows, w.cols, w.t
	turned := t == blas.Trans && r.turn != nil && fullWidth(rows) == rows
	switch {
	case turned:
		rows, width, t = width, rows, blas.NoTrans
	case t == blas.Trans:
		rows = fullWidth(rows)
	default:
		width = fullWidth(width)
	}
	size := rows * width
	to := mem.Grow(r.w[which], w.count()*size)
	clear(to)
	r.w[which], r.kept[which] = to, keptWeights{rows, width, t}
	for g := range w.count() {
		switch from := w.groupMatrix(g); {
		case len(from) == 0:
		case turned:
			r.turn(to[g*size:], from, w.rows, w.cols)
		default:
			r.round(to[g*size:], width, w.rows, w.cols, from, w.cols)
		}
	}
}

func (r *roundingTo[T]) tileRows(rows int) int { return libraryRows(rows) }

func (r *roundingTo[T]) product(out, in compute.Matrix, which, group int, add bool) {
	s, of := take[scratchOf[T]](r.scratch), &r.kept[which]
	defer s.release()
	w, n := r.w[which][group*of.rows*of.cols:], of.cols
	if of.t == blas.Trans {
		n = of.rows
	}
	x, stride := r.rounded(&s.left, in, 0, in.Cols)
	if n == out.Cols {
		r.gemm(blas.NoTrans, of.t, out.Rows, n, in.Cols, x, stride, w, of.cols, beta(add), out.Data,
			out.Cols)
		return
	}
	s.out = mem.Grow(s.out, out.Rows*n)
	for i := range out.Rows {
		if add {
			clear(s.out[i*n:][copy(s.out[i*n:], out.Row(i)):][:n-out.Cols])
		}
	}
	r.gemm(blas.NoTrans, of.t, out.Rows, n, in.Cols, x, stride, w, of.cols, beta(add), s.out, n)
	for i := range out.Rows {
		copy(out.Row(i), s.out[i*n:])
	}
}

func (r *roundingTo[T]) chunk(sum []float32, stride int, left, right compute.Matrix,
	first, width int, add bool) {
	s := take[scratchOf[T]](r.scratch)
	defer s.release()
	x, ofLeft := r.rounded(&s.left, left, 0, left.Cols)
	y, ofRight := r.rounded(&s.right, right, first, width)
	r.gemm(blas.Trans, blas.NoTrans, left.Cols, width, left.Rows, x, ofLeft, y, ofRight,
		beta(add), sum, stride)
}

func (r *roundingTo[T]) bytes() int64 {
	factors, floats := cap(r.w[0])+cap(r.w[1]), 0
	for i := range r.scratch {
		s := &r.scratch[i]
		factors += cap(s.left) + cap(s.right)
		floats += cap(s.out)
	}
	return int64(factors)*int64(unsafe.Sizeof(*new(T))) + int64(floats)*4
}

func (r *roundingTo[T]) free() {
	mem.Free(r.w[0])
	mem.Free(r.w[1])
	for i := range r.scratch {
		mem.Free(r.scratch[i].left)
		mem.Free(r.scratch[i].right)
		mem.Free(r.scratch[i].out)
	}
}
