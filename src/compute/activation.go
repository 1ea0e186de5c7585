package compute

// ActivationKernels are activations and their gradients, with dropout in the same pass.
type ActivationKernels interface {
	// ReLU sets y = max(y, 0) in place (a NaN stays one, so that a diverged run shows) and then, if
	// p > 0, drops every element with probability p and scales the kept ones by 1/(1-p).
	// vertices[i] is the original id of row i's vertex.
	ReLU(y Matrix, p float32, key DropoutKey, vertices []int32)
	// ReLUBackward sets dy = dy/(1-p) where y > 0, else 0, in place; y is the output of ReLU.
	ReLUBackward(dy, y Matrix, p float32)
}

// CheckReLU checks the arguments of ReLU.
func CheckReLU(y Matrix, p float32, vertices []int32) Call {
	if p == 0 {
		checkRows("ReLU", y)
	} else {
		checkRows("ReLU", y, len(vertices))
	}
	return Call{Kernel: "ReLU", Bytes: 2 * y.bytes()}
}

// CheckReLUBackward checks the arguments of ReLUBackward.
func CheckReLUBackward(dy, y Matrix) Call {
	checkSame("ReLUBackward", dy, y)
	return Call{Kernel: "ReLUBackward", Bytes: 3 * y.bytes()}
}
