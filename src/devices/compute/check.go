package compute

import (
	"fmt"
	"slices"
)

// The Check functions of kernels call the functions of this file. Every backend calls the Check
// function of a kernel first, so a wrong shape panics with the same text on every device. These
// functions allocate memory only when they panic.

func (m Matrix) String() string {
	if m.BF16 != nil {
		return fmt.Sprintf("[%d,%d] in %d elements of bfloat16", m.Rows, m.Cols, len(m.BF16))
	}
	return fmt.Sprintf("[%d,%d] in %d elements", m.Rows, m.Cols, len(m.Data))
}

// holds reports whether m is a matrix of float32 and its slice has all elements.
func (m Matrix) holds() bool { return m.Rows >= 0 && m.Cols >= 0 && len(m.Data) >= m.Rows*m.Cols }

// stored reports whether m is a matrix of float32 or bfloat16 and its slice has all elements.
func (m Matrix) stored() bool {
	return m.holds() || m.Rows >= 0 && m.Cols >= 0 && len(m.BF16) >= m.Rows*m.Cols
}

// checkProduct checks that the shapes of y [R,O], x [R,F] and w [O,F] of a product y = x wᵀ fit.
// The matrices may also be their gradients. The matrix that the kernel writes (`written`) must be
// of float32.
func checkProduct(kernel string, written, y, x, w Matrix) {
	if !written.holds() || !y.stored() || !x.stored() || !w.stored() || y.Rows != x.Rows ||
		y.Cols != w.Rows || x.Cols != w.Cols {
		panic(fmt.Sprintf("compute: %s: the matrices must have the shapes [R,O], [R,F] and "+
			"[O,F], and all their elements; they are %v, %v and %v", kernel, y, x, w))
	}
}

func checkSame(kernel string, a, b Matrix) {
	checkStored(kernel, a, b)
	if !a.holds() || !b.holds() {
		panic(fmt.Sprintf("compute: %s: matrices %v and %v are not both of float32", kernel, a, b))
	}
}

// checkStored does what checkSame does, for matrices of float32 or bfloat16.
func checkStored(kernel string, a, b Matrix) {
	if !a.stored() || !b.stored() || a.Rows != b.Rows || a.Cols != b.Cols {
		panic(fmt.Sprintf("compute: %s: matrices %v and %v differ in shape, or lack elements",
			kernel, a, b))
	}
}

// checkColumns checks that some vectors have an element for each column of m. The lengths of these
// vectors are given (`vectors`).
func checkColumns(kernel string, m Matrix, vectors ...int) {
	checkStoredColumns(kernel, m, vectors...)
	if !m.holds() {
		panic(fmt.Sprintf("compute: %s: matrix %v is not of float32", kernel, m))
	}
}

// checkStoredColumns does what checkColumns does, for a matrix of float32 or bfloat16.
func checkStoredColumns(kernel string, m Matrix, vectors ...int) {
	if !m.stored() || !allAre(m.Cols, vectors) {
		panic(fmt.Sprintf("compute: %s: vectors must have an element for each column of %v, "+
			"which must have all of its own; they have %v", kernel, m, slices.Clone(vectors)))
	}
}

// checkRows checks that some vectors have an element for each row of m. The lengths of these
// vectors are given (`vectors`).
func checkRows(kernel string, m Matrix, vectors ...int) {
	checkStoredRows(kernel, m, vectors...)
	if !m.holds() {
		panic(fmt.Sprintf("compute: %s: matrix %v is not of float32", kernel, m))
	}
}

// checkStoredRows does what checkRows does, for a matrix of float32 or bfloat16.
func checkStoredRows(kernel string, m Matrix, vectors ...int) {
	if !m.stored() || !allAre(m.Rows, vectors) {
		panic(fmt.Sprintf("compute: %s: vectors must have an element for each row of %v, "+
			"which must have all of its own; they have %v", kernel, m, slices.Clone(vectors)))
	}
}

// CheckLengths checks that all arrays have the length n. The lengths of these arrays are given
// (`others`).
func CheckLengths(kernel string, n int, others ...int) {
	if !allAre(n, others) {
		panic(fmt.Sprintf("compute: %s: arrays must be equally long, but have %d and %v "+
			"elements", kernel, n, slices.Clone(others)))
	}
}

func allAre(n int, lengths []int) bool {
	for _, l := range lengths {
		if l != n {
			return false
		}
	}
	return true
}
