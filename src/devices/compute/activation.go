package compute

import "fmt"

// ActivationKernels are activations and their gradients, with dropout in the same pass.
type ActivationKernels interface {
	// ReLU sets y = max(y, 0) in place. A NaN stays a NaN, so that a diverged run is noticed. Then,
	// if p > 0, it drops every element with probability p and multiplies the kept elements by
	// 1/(1-p). The argument `vertices` has, for each row, the id of its vertex in the dataset.
	ReLU(y Matrix, p float32, key DropoutKey, vertices []int32)
	// ReLUBackward sets dy = dy/(1-p) where y > 0, otherwise 0, in place. The argument y is the
	// output of ReLU. In ReLUBackward and ELUBackward, dy and y may
	// each be of float32 or bfloat16.
	ReLUBackward(dy, y Matrix, p float32)
	// ELU sets y = y > 0 ? y : exp(y)-1 in place. Then it drops elements as ReLU does.
	ELU(y Matrix, p float32, key DropoutKey, vertices []int32)
	// ELUBackward sets dy to the gradient with respect to ELU's input, in place. The argument y is
	// the output of ELU. The arguments p, key and vertices must be the same as for ELU. They are
	// needed to know which elements were dropped, because an element may also be 0 without being
	// dropped.
	ELUBackward(dy, y Matrix, p float32, key DropoutKey, vertices []int32)
}

// CheckReLU checks the arguments of ReLU.
func CheckReLU(y Matrix, p float32, vertices []int32) Call {
	checkRows("ReLU", y)
	checkDropout("ReLU", y, p, vertices)
	return Call{Kernel: "ReLU", Bytes: 2 * y.bytes()}
}

// checkDropout panics if p > 0 and there is not one vertex for each row.
func checkDropout(kernel string, y Matrix, p float32, vertices []int32) {
	if !y.stored() || p > 0 && len(vertices) != y.Rows {
		panic(fmt.Sprintf("compute: %s: matrix %v must have all its elements, and for dropout a "+
			"vertex for each row; %d vertices are given", kernel, y, len(vertices)))
	}
}

// CheckELU checks the arguments of ELU.
func CheckELU(y Matrix, p float32, vertices []int32) Call {
	checkRows("ELU", y)
	checkDropout("ELU", y, p, vertices)
	return Call{Kernel: "ELU", Bytes: 2 * y.bytes()}
}

// CheckELUBackward checks the arguments of ELUBackward.
func CheckELUBackward(dy, y Matrix, p float32, vertices []int32) Call {
	checkStored("ELUBackward", dy, y)
	checkDropout("ELUBackward", y, p, vertices)
	return Call{Kernel: "ELUBackward", Bytes: 2*dy.bytes() + y.bytes()}
}

// CheckReLUBackward checks the arguments of ReLUBackward.
func CheckReLUBackward(dy, y Matrix) Call {
	checkStored("ReLUBackward", dy, y)
	return Call{Kernel: "ReLUBackward", Bytes: 2*dy.bytes() + y.bytes()}
}
