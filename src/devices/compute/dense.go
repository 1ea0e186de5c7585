package compute

import (
	"fmt"
	"unsafe"
)

// DenseKernels are the linear maps of a layer, each with its epilogue, and their gradients: several
// kernels in as few passes over memory and as few launches as a device can make. They give the bits
// of the kernels that they replace (the functions that end in InParts), except that cuBLAS may add
// the terms of two products made together in another order.
type DenseKernels interface {
	// Dense sets y = epilogue(x wᵀ + b + x2 w2ᵀ), added from left to right:  y [R,O]. Here and
	// below y may be of bfloat16 where the epilogue rounds.
	Dense(y Matrix, d Dense)
	// DenseBackward backpropagates dy [R,O], the gradient with respect to the output y of Dense,
	// through the epilogue in place, and sets the gradients of weights and bias (see
	// Device.Settle). A dy of bfloat16 becomes rounded, as a factor is, after its rows are summed.
	DenseBackward(g DenseGradients, dy, y Matrix, d Dense)
	// DenseInput sets dx = dy w, and completes it:  dx [R,F], dy [R,O], of either type, w [O,F].
	DenseInput(dx, dy, w Matrix, c Completion)
	// Round sets y = x, rounded to the type in which the device's Precision stores rows: y of
	// either type, x of float32. y may be x.
	Round(y, x Matrix)
	// Finish sets y = epilogue(x + b):  y, x [R,O], b [O]. y may be x.
	Finish(y, x Matrix, b []float32, epilogue Epilogue)
	// FinishBackward backpropagates dy, the gradient with respect to the output y of Finish,
	// through the epilogue in place, and sets db to the sum of the resulting rows, in chunks.
	FinishBackward(db []float32, dy, y Matrix, epilogue Epilogue)
}

// Dense are the arguments of a linear map.
type Dense struct {
	X, W Matrix    // [R,F], of either type, [O,F]
	Bias []float32 // [O]; nil if there is none
	// [R,G], of either type, [O,G]; without columns if there is no second product
	X2, W2   Matrix
	Epilogue Epilogue
}

// DenseGradients are the outputs of DenseBackward: for each parameter of the Dense, of its shape.
type DenseGradients struct {
	W    Matrix
	Bias []float32
	W2   Matrix
}

// Epilogue is what a kernel does to its result row by row while it is in the cache: y = f(y + add),
// with dropout. The zero value leaves y as it is.
type Epilogue struct {
	Add        Matrix // [R,O], of either type; without columns if nothing is added
	Activation Activation
	P          float32 // P, Key and Vertices are as for ReLU and ELU
	Key        DropoutKey
	Vertices   []int32
	Rounded    bool // y is then rounded to the type in which the device's Precision stores rows
}

// Completion turns the sums of a kernel into complete rows: y = round(y + own), in one pass. The
// zero value leaves y as it is.
type Completion struct {
	// [O,C], of either type, O <= R: rows to add to the first rows of y; without columns if there
	// are none
	Own Matrix
	// [1] for SegmentSumCompleted only: own is multiplied by 1+Scale[0]; nil: by 1
	Scale   []float32
	Rounded bool // all rows are then rounded, as by an Epilogue
}

// Apply completes y, of float32, with one kernel for each step.
func (c Completion) Apply(k Kernels, y Matrix) {
	first := y.RowsAt(0, c.Own.Rows)
	switch {
	case c.Own.Cols == 0:
	case c.Scale != nil:
		k.AddScaled(first, first, c.Own, c.Scale)
	default:
		k.CopyColumns(first, 0, c.Own, 0, y.Cols, true)
	}
	if c.Rounded {
		k.Round(y, y)
	}
}

// check panics unless c fits the first rows of y, and returns the bytes of what is added.
func (c *Completion) check(kernel string, y Matrix) (bytes int) {
	if y.BF16 != nil && !c.Rounded {
		panic(fmt.Sprintf("compute: %s: the result %v is stored in bfloat16, so Rounded must "+
			"be set", kernel, y))
	}
	if c.Own.Cols == 0 {
		return 0
	}
	if c.Own.Rows > y.Rows {
		panic(fmt.Sprintf("compute: %s: the rows to add, %v, are more than those of %v", kernel,
			c.Own, y))
	}
	checkStored(kernel, y.RowsAt(0, c.Own.Rows), c.Own)
	if c.Scale != nil && (len(c.Scale) != 1 || kernel != "SegmentSumCompleted") {
		panic(fmt.Sprintf("compute: %s: %d scales for the added rows; want one", kernel,
			len(c.Scale)))
	}
	return c.Own.bytes()
}

// Activation is one of the activations, or none.
type Activation uint8

// The activations.
const (
	NoActivation Activation = iota
	ActivateReLU
	ActivateELU
)

// Apply changes y, of float32, as e says, with one kernel for each step, but does not round it.
func (e Epilogue) Apply(k Kernels, y Matrix) {
	if e.Add.Cols > 0 {
		k.CopyColumns(y, 0, e.Add, 0, y.Cols, true)
	}
	switch e.Activation {
	case ActivateReLU:
		k.ReLU(y, e.P, e.Key, e.Vertices)
	case ActivateELU:
		k.ELU(y, e.P, e.Key, e.Vertices)
	}
}

// Backward turns dy from the gradient with respect to Apply's result into that with respect to
// Apply's input, which is also the gradient with respect to e.Add.
func (e Epilogue) Backward(k Kernels, dy, y Matrix) {
	switch e.Activation {
	case ActivateReLU:
		k.ReLUBackward(dy, y, e.P)
	case ActivateELU:
		k.ELUBackward(dy, y, e.P, e.Key, e.Vertices)
	}
}

// DenseInParts is the definition of Dense: a kernel for each step.
func DenseInParts(k Kernels, y Matrix, d Dense) {
	k.MatMul(y, d.X, d.W, false)
	if d.Bias != nil {
		k.AddBias(y, d.Bias)
	}
	if d.X2.Cols > 0 {
		k.MatMul(y, d.X2, d.W2, true)
	}
	d.Epilogue.Apply(k, y)
}

// DenseBackwardInParts is the definition of DenseBackward.
func DenseBackwardInParts(k Kernels, g DenseGradients, dy, y Matrix, d Dense) {
	d.Epilogue.Backward(k, dy, y)
	k.MatMulWeights(g.W, dy, d.X)
	if d.Bias != nil {
		k.ColumnSum(g.Bias, dy)
	}
	if d.X2.Cols > 0 {
		k.MatMulWeights(g.W2, dy, d.X2)
	}
}

// FinishInParts is the definition of Finish.
func FinishInParts(k Kernels, y, x Matrix, b []float32, epilogue Epilogue) {
	if unsafe.SliceData(y.Data) != unsafe.SliceData(x.Data) {
		k.CopyColumns(y, 0, x, 0, x.Cols, false)
	}
	k.AddBias(y, b)
	epilogue.Apply(k, y)
}

// FinishBackwardInParts is the definition of FinishBackward.
func FinishBackwardInParts(k Kernels, db []float32, dy, y Matrix, epilogue Epilogue) {
	epilogue.Backward(k, dy, y)
	k.ColumnSum(db, dy)
}

// check panics unless e fits y, and returns the bytes of what is added.
func (e *Epilogue) check(kernel string, y Matrix) (bytes int) {
	if e.Add.Cols > 0 {
		checkStored(kernel, y, e.Add)
	}
	if y.BF16 != nil && !e.Rounded {
		panic(fmt.Sprintf("compute: %s: the result %v is stored in bfloat16, so Rounded must "+
			"be set", kernel, y))
	}
	if e.Activation != NoActivation {
		checkDropout(kernel, y, e.P, e.Vertices)
	}
	return e.Add.bytes()
}

// checkBackward panics unless e fits dy and y, and returns the bytes that Backward moves.
func (e *Epilogue) checkBackward(kernel string, dy, y Matrix) (bytes int) {
	e.check(kernel, dy)
	if e.Activation == NoActivation {
		return 0
	}
	checkStored(kernel, dy, y)
	return dy.bytes() + y.bytes()
}

// CheckFinish checks the arguments of Finish.
func CheckFinish(y, x Matrix, b []float32, epilogue Epilogue) Call {
	checkColumns("Finish", x, len(b))
	checkStored("Finish", y, x)
	return Call{Kernel: "Finish",
		Bytes: epilogue.check("Finish", y) + x.bytes() + y.bytes() + floatBytes*len(b)}
}

// CheckFinishBackward checks the arguments of FinishBackward.
func CheckFinishBackward(db []float32, dy, y Matrix, epilogue Epilogue) Call {
	const kernel = "FinishBackward"
	checkColumns(kernel, dy, len(db))
	return Call{Kernel: kernel,
		Bytes: epilogue.checkBackward(kernel, dy, y) + dy.bytes() + floatBytes*len(db)}
}

// check panics unless the arguments fit y, and returns their bytes and flops, without y.
func (d *Dense) check(kernel string, y Matrix) (bytes, flops int) {
	checkProduct(kernel, Matrix{}, y, d.X, d.W)
	bytes, flops = d.X.bytes()+d.W.bytes(), productFlops(y, d.X)
	if d.Bias != nil {
		checkStoredColumns(kernel, y, len(d.Bias))
		bytes += floatBytes * len(d.Bias)
	}
	if d.X2.Cols > 0 {
		checkProduct(kernel, Matrix{}, y, d.X2, d.W2)
		bytes, flops = bytes+d.X2.bytes()+d.W2.bytes(), flops+productFlops(y, d.X2)
	}
	return bytes, flops
}

// CheckDense checks the arguments of Dense.
func CheckDense(y Matrix, d Dense) Call {
	bytes, flops := d.check("Dense", y)
	return Call{Kernel: "Dense", Flops: flops,
		Bytes: bytes + d.Epilogue.check("Dense", y) + y.bytes()}
}

// CheckDenseInput checks the arguments of DenseInput.
func CheckDenseInput(dx, dy, w Matrix, c Completion) Call {
	const kernel = "DenseInput"
	checkProduct(kernel, Matrix{}, dy, dx, w)
	return Call{Kernel: kernel, Bytes: dy.bytes() + w.bytes() + c.check(kernel, dx) + dx.bytes(),
		Flops: productFlops(dy, dx)}
}

// CheckRound checks the arguments of Round.
func CheckRound(y, x Matrix) Call {
	checkStored("Round", y, x)
	checkColumns("Round", x)
	return Call{Kernel: "Round", Bytes: x.bytes() + y.bytes()}
}

// CheckDenseBackward checks the arguments of DenseBackward.
func CheckDenseBackward(g DenseGradients, dy, y Matrix, d Dense) Call {
	const kernel = "DenseBackward"
	bytes, flops := d.check(kernel, dy)
	checkSame(kernel, g.W, d.W)
	if d.Bias != nil {
		CheckLengths(kernel, len(d.Bias), len(g.Bias))
	}
	if d.X2.Cols > 0 {
		checkSame(kernel, g.W2, d.W2)
	}
	bytes += dy.bytes() + d.Epilogue.checkBackward(kernel, dy, y)
	return Call{Kernel: kernel, Bytes: bytes, Flops: flops}
}
