package compute

import "fmt"

// LinearKernels are matrix products, biases, and their gradients. On a device with PairKernels,
// weights w may also be of bfloat16.
type LinearKernels interface {
	// MatMul sets y = x wᵀ. If add is true, it adds x wᵀ to y instead. Shapes: y [R,O], x [R,F] of
	// float32 or bfloat16, w [O,F].
	MatMul(y, x, w Matrix, add bool)
	// MatMulInput sets dx = dy w. If add is true, it adds dy w to dx instead. Shapes: dx [R,F], dy
	// [R,O] of float32 or bfloat16, w [O,F].
	MatMulInput(dx, dy, w Matrix, add bool)
	// MatMulWeights sets dw = dyᵀ x. Rows are summed in chunks, except on a GPU. Shapes: dw [O,F],
	// dy [R,O] and x [R,F], both of float32 or bfloat16.
	MatMulWeights(dw, dy, x Matrix)

	// AddBias adds b [O] to every row of y [R,O].
	AddBias(y Matrix, b []float32)
	// ColumnSum sets db [O] to the sum of the rows of dy [R,O], which are summed in chunks.
	ColumnSum(db []float32, dy Matrix)

	// AddScaled sets y = z + (1+scale[0]) x. Shapes: y, z and x [R,O], of float32 or bfloat16,
	// scale [1]. The matrix y may be z.
	AddScaled(y, z, x Matrix, scale []float32)
	// CopyColumns copies columns [from, from+n) of x to columns [at, at+n) of y. If add is true, it
	// adds them to these columns instead. Both matrices have R rows; x may be of float32 or
	// bfloat16.
	CopyColumns(y Matrix, at int, x Matrix, from, n int, add bool)
	// Transpose sets y = xᵀ. Shapes: y [O,R], x [R,O].
	Transpose(y, x Matrix)
	// Dot sets sum[0] to the sum of x[r,j]*y[r,j]. It first sums each column over the rows, in
	// chunks, and then adds the columns. The result may be incomplete before Device.Settle. Shapes:
	// x [R,O], y [R,O] of float32 or bfloat16, sum [1].
	Dot(sum []float32, x, y Matrix)
}

// CheckMatMul checks the arguments of MatMul.
func CheckMatMul(y, x, w Matrix, add bool) Call {
	checkProduct("MatMul", y, y, x, w)
	return Call{Kernel: "MatMul", Bytes: x.bytes() + w.bytes() + y.bytesWritten(add),
		Flops: productFlops(y, x)}
}

// CheckMatMulInput checks the arguments of MatMulInput.
func CheckMatMulInput(dx, dy, w Matrix, add bool) Call {
	checkProduct("MatMulInput", dx, dy, dx, w)
	return Call{Kernel: "MatMulInput", Bytes: dy.bytes() + w.bytes() + dx.bytesWritten(add),
		Flops: productFlops(dy, dx)}
}

// CheckMatMulWeights checks the arguments of MatMulWeights.
func CheckMatMulWeights(dw, dy, x Matrix) Call {
	checkProduct("MatMulWeights", dw, dy, x, dw)
	return Call{Kernel: "MatMulWeights", Bytes: dy.bytes() + x.bytes() + dw.bytes(),
		Flops: productFlops(dy, x)}
}

// productFlops returns the number of multiplications and additions in the product y [R,O] of x
// [R,F] and weights. The gradients of the product have the same number.
func productFlops(y, x Matrix) int { return 2 * x.Rows * x.Cols * y.Cols }

// CheckAddBias checks the arguments of AddBias.
func CheckAddBias(y Matrix, b []float32) Call {
	checkColumns("AddBias", y, len(b))
	return Call{Kernel: "AddBias", Bytes: 2*y.bytes() + floatBytes*len(b)}
}

// CheckColumnSum checks the arguments of ColumnSum.
func CheckColumnSum(db []float32, dy Matrix) Call {
	checkColumns("ColumnSum", dy, len(db))
	return Call{Kernel: "ColumnSum", Bytes: dy.bytes() + floatBytes*len(db)}
}

// CheckAddScaled checks the arguments of AddScaled.
func CheckAddScaled(y, z, x Matrix, scale []float32) Call {
	checkStored("AddScaled", y, z)
	checkStored("AddScaled", y, x)
	CheckLengths("AddScaled", 1, len(scale))
	return Call{Kernel: "AddScaled", Bytes: y.bytes() + z.bytes() + x.bytes()}
}

// CheckCopyColumns checks the arguments of CopyColumns.
func CheckCopyColumns(y Matrix, at int, x Matrix, from, n int, add bool) Call {
	checkRows("CopyColumns", y, x.Rows)
	if n < 0 || at < 0 || from < 0 || at+n > y.Cols || from+n > x.Cols || !x.stored() {
		panic(fmt.Sprintf("compute: CopyColumns: %d columns cannot be copied from column %d of %v "+
			"to column %d of %v", n, from, x, at, y))
	}
	part := Matrix{Rows: y.Rows, Cols: n}
	return Call{Kernel: "CopyColumns",
		Bytes: x.Elements().Size()*y.Rows*n + part.bytesWritten(add)}
}

// CheckTranspose checks the arguments of Transpose.
func CheckTranspose(y, x Matrix) Call {
	checkRows("Transpose", y, x.Cols)
	checkColumns("Transpose", y, x.Rows)
	checkRows("Transpose", x, y.Cols)
	return Call{Kernel: "Transpose", Bytes: x.bytes() + y.bytes()}
}

// CheckDot checks the arguments of Dot.
func CheckDot(sum []float32, x, y Matrix) Call {
	checkSame("Dot", x, x)
	checkStored("Dot", x, y)
	CheckLengths("Dot", 1, len(sum))
	return Call{Kernel: "Dot", Bytes: x.bytes() + y.bytes()}
}
