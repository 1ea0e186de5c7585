package compute

// DenseKernels are the linear maps of a layer with what follows them row by row, and their
// gradients: several kernels in as few passes over memory as a device can make. They give the bits
// of the kernels that they stand for (DenseInParts, DenseBackwardInParts).
type DenseKernels interface {
	// Dense sets y = then(x wᵀ + b + x2 w2ᵀ), added from left to right:  y [R,O].
	Dense(y Matrix, d Dense)
	// DenseBackward turns dy [R,O], the gradient with respect to y, the output of Dense, into that
	// with respect to the sum in place, and sets the gradients of weights and bias.
	DenseBackward(g DenseGradients, dy, y Matrix, d Dense)
}

// Dense are the arguments of a linear map.
type Dense struct {
	X, W   Matrix    // [R,F], [O,F]
	Bias   []float32 // [O]; nil: none
	X2, W2 Matrix    // [R,G], [O,G]; without columns: none
	Then   Epilogue
}

// DenseGradients are the outputs of DenseBackward: for each parameter of the Dense, of its shape.
type DenseGradients struct {
	W    Matrix
	Bias []float32
	W2   Matrix
}

// Epilogue is what follows a sum, row by row: y = f(y + add), with dropout. The zero value leaves y
// as it is.
type Epilogue struct {
	Add        Matrix // [R,O]; without columns: none
	Activation Activation
	P          float32 // and Key, Vertices: as for ReLU and ELU
	Key        DropoutKey
	Vertices   []int32
}

// Activation is one of the activations, or none.
type Activation uint8

// The activations.
const (
	NoActivation Activation = iota
	ActivateReLU
	ActivateELU
)

// Apply changes y as e says, a kernel for each step.
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

// Backward turns dy, the gradient with respect to y, the result of Apply, into that with respect to
// its input, which is that of Add too.
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
	d.Then.Apply(k, y)
}

// DenseBackwardInParts is the definition of DenseBackward.
func DenseBackwardInParts(k Kernels, g DenseGradients, dy, y Matrix, d Dense) {
	d.Then.Backward(k, dy, y)
	k.MatMulWeights(g.W, dy, d.X)
	if d.Bias != nil {
		k.ColumnSum(g.Bias, dy)
	}
	if d.X2.Cols > 0 {
		k.MatMulWeights(g.W2, dy, d.X2)
	}
}

// check panics unless the arguments fit y, and returns their bytes and flops, without y.
func (d *Dense) check(kernel string, y Matrix) (bytes, flops int) {
	checkProduct(kernel, y, d.X, d.W)
	bytes, flops = d.X.bytes()+d.W.bytes(), productFlops(y, d.X)
	if d.Bias != nil {
		checkColumns(kernel, y, len(d.Bias))
		bytes += floatBytes * len(d.Bias)
	}
	if d.X2.Cols > 0 {
		checkProduct(kernel, y, d.X2, d.W2)
		bytes, flops = bytes+d.X2.bytes()+d.W2.bytes(), flops+productFlops(y, d.X2)
	}
	if d.Then.Add.Cols > 0 {
		checkSame(kernel, y, d.Then.Add)
	}
	if d.Then.Activation != NoActivation {
		checkDropout(kernel, y, d.Then.P, d.Then.Vertices)
	}
	return bytes, flops
}

// CheckDense checks the arguments of Dense.
func CheckDense(y Matrix, d Dense) Call {
	bytes, flops := d.check("Dense", y)
	return Call{Kernel: "Dense", Bytes: bytes + d.Then.Add.bytes() + y.bytes(), Flops: flops}
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
	bytes += dy.bytes()
	if d.Then.Activation != NoActivation {
		checkSame(kernel, dy, y)
		bytes += dy.bytes() + y.bytes()
	}
	return Call{Kernel: kernel, Bytes: bytes, Flops: flops}
}
