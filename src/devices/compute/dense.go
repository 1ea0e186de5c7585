package compute

import (
	"fmt"
	"unsafe"
)

// DenseKernels are the linear maps of a layer, each with its epilogue, and their gradients. Each
// kernel does the work of several simpler kernels, with as few passes over memory and as few
// launches as the device allows. The result has the same bits as with the simpler kernels.
// Functions such as DenseInParts call the simpler kernels and so define the result.
type DenseKernels interface {
	// Dense sets y [R,O] to epilogue(x wᵀ + b + x2 w2ᵀ). The terms are added from left to right. In
	// this interface, an output y may be of bfloat16 if Epilogue.Rounded is set.
	Dense(y Matrix, d Dense)
	// DenseBackward backpropagates dy [R,O], the gradient with respect to the output y of Dense,
	// through the epilogue in place, and computes the gradients of weights and bias (see
	// Device.Settle). If dy is of bfloat16, the backpropagated rows are summed before they are
	// rounded.
	DenseBackward(g DenseGradients, dy, y Matrix, d Dense)
	// DenseInput sets dx = dy w, and completes dx as c says. Shapes: dx [R,F] and dy [R,O], of
	// float32 or bfloat16, and w [O,F].
	DenseInput(dx, dy, w Matrix, c Completion)
	// Round sets y to x, rounded to the type in which the device stores rows. The matrix y may be
	// of float32 or bfloat16, and may be x. The matrix x is of float32.
	Round(y, x Matrix)
	// Finish sets y = epilogue(x + b). Shapes: x and y [R,O], b [O]. The matrix y may be x.
	Finish(y, x Matrix, b []float32, epilogue Epilogue)
	// FinishBackward backpropagates dy, the gradient with respect to the output y of Finish,
	// through the epilogue in place. It sets db to the sum of the backpropagated rows, which are
	// summed in chunks.
	FinishBackward(db []float32, dy, y Matrix, epilogue Epilogue)
}

// Dense are the arguments of a linear map.
type Dense struct {
	X, W Matrix    // X [R,F] of float32 or bfloat16, W [O,F]
	Bias []float32 // [O]; nil if there is none
	// X2 [R,G] of float32 or bfloat16, W2 [O,G]. They have no columns if there is no second
	// product.
	X2, W2   Matrix
	Epilogue Epilogue
}

// DenseGradients are the outputs of DenseBackward. There is a gradient for each parameter of the
// Dense, with the parameter's shape.
type DenseGradients struct {
	W    Matrix
	Bias []float32
	W2   Matrix
}

// Epilogue says what a kernel does to each row of its result while the row is in the cache. It
// computes y = f(y + add), where f is an activation with dropout. The zero value leaves y as it is.
type Epilogue struct {
	// [R,O] rows to add, of float32 or bfloat16; it has no columns if nothing is added
	Add        Matrix
	Activation Activation
	P          float32 // P, Key and Vertices are the arguments of ReLU and ELU
	Key        DropoutKey
	Vertices   []int32
	// whether y is rounded afterwards to the type in which the device stores rows
	Rounded bool
}

// Completion says how a kernel completes the rows of its result, in the same pass: y =
// back(round(y + own)). The zero value leaves y as it is.
type Completion struct {
	// [O,C] Rows of float32 or bfloat16 that are added to the first O rows of y. O is at most R.
	// Own has no columns if nothing is added.
	Own Matrix
	// [1] Own is multiplied by 1+Scale[0]. If Scale is nil, Own is not multiplied. Only
	// SegmentSumCompleted supports it.
	Scale   []float32
	Rounded bool // whether all rows are rounded afterwards, as with Epilogue.Rounded
	// [R,C] of float32 or bfloat16: if it has columns, the rows y are a gradient with respect to
	// Of, the result of the epilogue Back, and then go back through it (Epilogue.Backward). Only
	// for gradients of reductions, from float32.
	Of   Matrix
	Back Epilogue
}

// Apply completes y, which must be of float32. It calls a kernel for each step.
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
	c.GoBack(k, y)
}

// GoBack takes the complete rows y, of either type, back through c.Back, if c.Of is given. It is a
// pass of its own.
func (c *Completion) GoBack(k Kernels, y Matrix) {
	if c.Of.Cols > 0 {
		c.Back.Backward(k, y, c.Of)
	}
}

// check panics unless c.Own fits the first rows of y. It returns the bytes of the rows that are
// added.
func (c *Completion) check(kernel string, y Matrix) (bytes int) {
	if y.BF16 != nil && !c.Rounded {
		panic(fmt.Sprintf("compute: %s: the result %v is stored in bfloat16, so Rounded must "+
			"be set", kernel, y))
	}
	if c.Of.Cols > 0 {
		if kernel == "DenseInput" {
			panic("compute: DenseInput takes no rows back through an epilogue")
		}
		checkStored(kernel, y, c.Of)
		c.Back.check(kernel, y)
		bytes = c.Of.bytes()
	}
	if c.Own.Cols == 0 {
		return bytes
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
	return bytes + c.Own.bytes()
}

// Activation is an activation function, or none.
type Activation uint8

// The activations.
const (
	NoActivation Activation = iota
	ActivateReLU
	ActivateELU
)

// Apply changes y, which must be of float32, as e says. It calls a kernel for each step. It does
// not round y.
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

// Backward turns dy, the gradient with respect to Apply's result, into the gradient with respect to
// Apply's input. This is also the gradient with respect to e.Add.
func (e Epilogue) Backward(k Kernels, dy, y Matrix) {
	switch e.Activation {
	case ActivateReLU:
		k.ReLUBackward(dy, y, e.P)
	case ActivateELU:
		k.ELUBackward(dy, y, e.P, e.Key, e.Vertices)
	}
}

// DenseInParts defines what Dense computes. It calls a kernel for each step.
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

// DenseBackwardInParts defines what DenseBackward computes. It calls a kernel for each step.
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

// FinishInParts defines what Finish computes. It calls a kernel for each step.
func FinishInParts(k Kernels, y, x Matrix, b []float32, epilogue Epilogue) {
	if unsafe.SliceData(y.Data) != unsafe.SliceData(x.Data) {
		k.CopyColumns(y, 0, x, 0, x.Cols, false)
	}
	k.AddBias(y, b)
	epilogue.Apply(k, y)
}

// FinishBackwardInParts defines what FinishBackward computes. It calls a kernel for each step.
func FinishBackwardInParts(k Kernels, db []float32, dy, y Matrix, epilogue Epilogue) {
	epilogue.Backward(k, dy, y)
	k.ColumnSum(db, dy)
}

// check panics unless the rows and vertices of e fit y. It returns the bytes of the rows that are
// added.
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

// checkBackward panics unless e, dy and y fit. It returns the bytes that Backward reads and writes.
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

// check panics unless the arguments fit y. It returns the bytes of the arguments without y, and the
// operations of the products.
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
	checkStored(kernel, g.W, d.W)
	checkColumns(kernel, g.W)
	if d.Bias != nil {
		CheckLengths(kernel, len(d.Bias), len(g.Bias))
	}
	if d.X2.Cols > 0 {
		checkSame(kernel, g.W2, d.W2)
	}
	bytes += dy.bytes() + d.Epilogue.checkBackward(kernel, dy, y)
	return Call{Kernel: kernel, Bytes: bytes, Flops: flops}
}
