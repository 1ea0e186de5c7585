//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"sync/atomic"
	"unsafe"

	"gonum.org/v1/gonum/blas"

	"halognn/src/compute"
	"halognn/src/mem"
)

// bf16Engine is an engine that also multiplies bfloat16 factors, summing in float32.
type bf16Engine interface {
	engine
	// Bgemm is Sgemm with bfloat16 factors.
	Bgemm(tA, tB blas.Transpose, m, n, k int, a []uint16, lda int, b []uint16, ldb int,
		beta float32, c []float32, ldc int)
}

// rounding rounds factors and multiplies them, in the tiles of the float32 products. Weights are
// rounded once a call; rows that are not stored so are rounded tile by tile, so that they are still in
// the cache when they are multiplied.
type rounding interface {
	// weights rounds w [rows,cols] into a matrix [rows+more, width] whose other elements are 0: the
	// which-th weights of a kernel.
	weights(which int, w compute.Matrix, more, width int)
	// product computes a tile of a product with those weights.
	product(out, in compute.Matrix, a product)
	// chunk sets sum, whose rows lie stride apart, to leftᵀ right, or if add adds it; it uses width
	// columns of right from first on.
	chunk(sum []float32, stride int, left, right compute.Matrix, first, width int, add bool)
	bytes() int64 // held
	free()
}

// ofBF16 returns the engine if it has instructions for bfloat16 on this machine, and the name of
// its products of factors of bfloat16.
func ofBF16(e engine) (fast bf16Engine, name string) {
	if fast, ok := e.(bf16Engine); ok && oneDNNHasBF16() {
		return fast, "bf16 products"
	}
	return nil, slowly(compute.PrecisionBF16)
}

func slowly(p compute.Precision) string { return string(p) + " products in float32 (slow)" }

// newRounding returns the rounding of an engine, and the name of its products. Without instructions
// for the precision it stores the rounded factors as float32: the products are as defined, but no
// faster than float32 ones.
func newRounding(e engine, p compute.Precision, k level, threads int) (rounding, string) {
	if e, name := ofBF16(e); e != nil && p == compute.PrecisionBF16 {
		return &roundingTo[uint16]{
			round: func(dst []uint16, width, rows, cols int, x []float32, stride int) {
				C.halognn_to_bf16(k, halves(dst), C.int64_t(width), C.int64_t(rows),
					C.int64_t(cols), floats(x), C.int64_t(stride))
			},
			stored: func(_ *[]uint16, x compute.Matrix, first, _ int) ([]uint16, int) {
				return x.BF16[min(first, len(x.BF16)):], x.Cols
			},
			gemm: e.Bgemm, scratch: make([]scratchOf[uint16], threads)}, name
	}
	dropped := C.int(p.Dropped())
	return &roundingTo[float32]{
		round: func(dst []float32, width, rows, cols int, x []float32, stride int) {
			C.halognn_round_factors(k, floats(dst), C.int64_t(width), C.int64_t(rows),
				C.int64_t(cols), floats(x), C.int64_t(stride), dropped)
		},
		stored: func(dst *[]float32, x compute.Matrix, first, width int) ([]float32, int) {
			*dst = mem.Grow(*dst, x.Rows*width)
			for i := range x.Rows {
				C.halognn_from_bf16(k, floats((*dst)[i*width:]), C.int64_t(width),
					halves(x.BF16[i*x.Cols+first:]))
			}
			return *dst, width
		},
		gemm: e.Sgemm, scratch: make([]scratchOf[float32], threads)}, slowly(p)
}

// roundingTo keeps rounded factors as bfloat16 or as float32.
type roundingTo[T uint16 | float32] struct {
	round func(dst []T, width, rows, cols int, x []float32, stride int)
	// stored returns columns of a matrix of bfloat16, and the distance of its rows
	stored func(dst *[]T, x compute.Matrix, first, width int) (columns []T, stride int)
	gemm   func(tA, tB blas.Transpose, m, n, k int, a []T, lda int, b []T, ldb int,
		beta float32, c []float32, ldc int)
	w       [2][]T
	scratch []scratchOf[T] // one for each thread
}

// scratchOf is the scratch memory of a tile in progress.
type scratchOf[T uint16 | float32] struct {
	taken       atomic.Bool
	left, right []T
	out         []float32
	_           [64]byte // keeps threads on separate cache lines
}

// take returns scratch that no other thread is using.
func (r *roundingTo[T]) take() *scratchOf[T] {
	for {
		for i := range r.scratch {
			if s := &r.scratch[i]; s.taken.CompareAndSwap(false, true) {
				return s
			}
		}
	}
}

// rounded returns columns of x, rounded into dst, which grows as needed, unless they are stored so,
// and the distance of its rows.
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

func (r *roundingTo[T]) weights(which int, w compute.Matrix, more, width int) {
	to := mem.Grow(r.w[which], (w.Rows+more)*width)
	r.w[which] = to
	clear(to[w.Rows*width:])
	if w.Rows*width > 0 {
		r.round(to, width, w.Rows, w.Cols, w.Data, w.Cols)
	}
}

func (r *roundingTo[T]) product(out, in compute.Matrix, a product) {
	s, w := r.take(), r.w[a.which][a.first:]
	defer s.taken.Store(false)
	x, of := r.rounded(&s.left, in, 0, in.Cols)
	if a.n == out.Cols {
		r.gemm(blas.NoTrans, a.t, out.Rows, a.n, in.Cols, x, of, w, a.stride, beta(a.add),
			out.Data, out.Cols)
		return
	}
	s.out = mem.Grow(s.out, out.Rows*a.n)
	for i := range out.Rows {
		if a.add {
			clear(s.out[i*a.n:][copy(s.out[i*a.n:], out.Row(i)):][:a.n-out.Cols])
		}
	}
	r.gemm(blas.NoTrans, a.t, out.Rows, a.n, in.Cols, x, of, w, a.stride, beta(a.add),
		s.out, a.n)
	for i := range out.Rows {
		copy(out.Row(i), s.out[i*a.n:])
	}
}

func (r *roundingTo[T]) chunk(sum []float32, stride int, left, right compute.Matrix,
	first, width int, add bool) {
	s := r.take()
	defer s.taken.Store(false)
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

// fullWidth returns the number of columns computed for a product of cols columns. With bfloat16 the
// library takes more than twice as long for 47 columns as for 48, so narrow products are widened;
// for wide ones the copy would cost more.
func fullWidth(cols int) int {
	const narrow = 64
	if cols >= narrow {
		return cols
	}
	return (cols + vectorWidth - 1) / vectorWidth * vectorWidth
}
