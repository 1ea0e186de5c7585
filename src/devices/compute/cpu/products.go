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

// bf16Kernels are C kernels that multiply factors of bfloat16.
type bf16Kernels = *C.halognn_products

// openBF16Kernels returns the kernels for this machine, or nil if it has none.
func openBF16Kernels() bf16Kernels { return C.halognn_products_open(0) }

// pairs multiplies factors of bfloat16 that are stored as pairs of rows (kernels/cpu/products.c).
// It packs the weights once in each call of a kernel. A library would pack them again for every
// tile.
type pairs struct {
	of      bf16Kernels
	level   level
	w       [2][]uint32
	size    [2]int   // rows and columns of one matrix of weights
	turning []uint16 // weights before their transposes are packed
	scratch []pairScratch
}

// pairScratch is the scratch memory of a tile in progress.
type pairScratch struct {
	slot
	left, right []uint32
	rows        []uint16 // rounded copies of rows that are not stored in bfloat16
	_           [64]byte // so that the scratch memory of two threads is not on the same cache line
}

func newPairs(of bf16Kernels, k level, threads int) rounding {
	return &pairs{of: of, level: k, scratch: make([]pairScratch, threads)}
}

const columnPanel = C.HALOGNN_COLUMN_PANEL

// upTo returns the smallest multiple of m that is at least n.
func upTo(m, n int) int { return (n + m - 1) / m * m }

// pairsIn returns the number of words that a factor takes if it is stored as pairs, in panels of
// columns. A word is a pair: the elements of two rows in one column.
func pairsIn(rows, cols, panel int) int { return (rows + 1) / 2 * upTo(panel, cols) }

func words(x []uint32) *C.uint32_t { return (*C.uint32_t)(unsafe.SliceData(x)) }

func (r *pairs) keep(which int, w weights) {
	rows, cols := w.rows, w.cols // rows and columns of the factor, which may be the transpose of w
	if w.t == blas.Trans {
		rows, cols = cols, rows
	}
	size := pairsIn(rows, cols, columnPanel)
	r.size[which], r.w[which] = size, mem.Grow(r.w[which], w.count()*size)
	for g := range w.count() {
		from, to := w.groupMatrix(g), r.w[which][g*size:][:size]
		switch {
		case len(from) == 0:
		case w.t == blas.Trans:
			r.pairColumns(to, from, w.rows, w.cols)
		default:
			m := compute.Matrix{Rows: w.rows, Cols: w.cols, Data: from}
			r.pairRows(to, columnPanel, m, m.Cols)
		}
	}
}

// pairRows writes the pairs of x to the array to. The argument `stride` is the number of elements
// from one row of x to the next.
func (r *pairs) pairRows(to []uint32, panel int, x compute.Matrix, stride int) {
	rows, cols := size(x)
	C.halognn_pair_rows(r.of, words(to), C.int64_t(panel), rows, cols, read(x), C.int64_t(stride))
}

// pairColumns writes the pairs of wᵀ to the array to. It first rounds w to bfloat16. After that,
// two neighbours in a row of w are already a pair of wᵀ in one word. So it only has to transpose
// words, in one panel after the other.
func (r *pairs) pairColumns(to []uint32, w []float32, rows, cols int) {
	width := upTo(2, cols)
	r.turning = mem.Grow(r.turning, upTo(columnPanel, rows)*width)
	C.halognn_to_bf16(r.level, halves(r.turning), C.int64_t(width), C.int64_t(rows),
		C.int64_t(cols), floats(w), C.int64_t(cols))
	clear(r.turning[rows*width:])
	panel := columnPanel * width / 2 // words of one panel
	for at := 0; at < len(to); at += panel {
		C.halognn_transpose(r.level, (*C.float)(unsafe.Pointer(&to[at])), C.int64_t(width/2),
			columnPanel, (*C.float)(unsafe.Pointer(&r.turning[2*at])), C.int64_t(width/2))
	}
}

// tileRows returns the number of rows in a tile. This number of rows stays in the second-level
// cache, together with a panel of weights, until the epilogue is applied.
func (r *pairs) tileRows(int) int { return 192 }

func (r *pairs) product(out, in compute.Matrix, which, group int, add bool) {
	x := in.BF16
	if x == nil {
		s := take[pairScratch](r.scratch)
		defer s.release()
		s.rows = mem.Grow(s.rows, in.Rows*in.Cols)
		x = s.rows
		n := C.int64_t(in.Rows * in.Cols)
		C.halognn_to_bf16(r.level, halves(x), n, 1, n, floats(in.Data), n)
	}
	w := r.w[which][group*r.size[which]:]
	rows, cols := size(out)
	C.halognn_product_of_rows(r.of, floats(out.Data), cols, rows, cols, C.int64_t(in.Cols),
		halves(x), words(w), cBool(add))
}

func (r *pairs) chunk(sum []float32, stride int, left, right compute.Matrix, first, width int,
	add bool) {
	s := take[pairScratch](r.scratch)
	defer s.release()
	columns := compute.Matrix{Rows: right.Rows, Cols: width}
	if right.BF16 != nil {
		columns.BF16 = right.BF16[min(first, len(right.BF16)):]
	} else {
		columns.Data = right.Data[min(first, len(right.Data)):]
	}
	s.left = mem.Grow(s.left, pairsIn(left.Rows, left.Cols, 1))
	s.right = mem.Grow(s.right, pairsIn(left.Rows, width, columnPanel))
	if left.Cols > 0 {
		r.pairRows(s.left, left.Cols, left, left.Cols)
	}
	r.pairRows(s.right, columnPanel, columns, right.Cols)
	C.halognn_product_of_pairs(r.of, floats(sum), C.int64_t(stride), C.int64_t(left.Cols),
		C.int64_t(width), C.int64_t(left.Rows), words(s.left), words(s.right), cBool(add))
}

func (r *pairs) bytes() int64 {
	pairs, halves := cap(r.w[0])+cap(r.w[1]), cap(r.turning)
	for i := range r.scratch {
		s := &r.scratch[i]
		pairs += cap(s.left) + cap(s.right)
		halves += cap(s.rows)
	}
	return 4*int64(pairs) + 2*int64(halves)
}

func (r *pairs) free() {
	mem.Free(r.w[0])
	mem.Free(r.w[1])
	mem.Free(r.turning)
	for i := range r.scratch {
		mem.Free(r.scratch[i].left)
		mem.Free(r.scratch[i].right)
		mem.Free(r.scratch[i].rows)
	}
}
