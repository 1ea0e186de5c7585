package compute

// NormKernels are normalisations, each with an epilogue, and their gradients. An output y may be of
// bfloat16 if Epilogue.Rounded is set.
type NormKernels interface {
	// LayerNorm sets y = epilogue((x-mean)/sqrt(variance+eps)*gamma+beta) with the mean and the
	// biased variance of each row. It writes mean and rstd [R], which LayerNormBackward reads. The
	// matrix y may be x only if LayerNormBackward is not called.
	LayerNorm(y, x Matrix, gamma, beta, mean, rstd []float32, eps float32, epilogue Epilogue)
	// LayerNormBackward backpropagates dy, the gradient with respect to y, through the epilogue. It
	// does so in place if dy is of float32; a dy of bfloat16 is not changed. From the
	// backpropagated dy it computes dx, and dgamma and dbeta, which are summed over rows in chunks.
	// The matrix dx may be dy or x.
	LayerNormBackward(dx Matrix, dgamma, dbeta []float32, dy, x Matrix, gamma, mean, rstd []float32,
		y Matrix, epilogue Epilogue)

	// ColumnMoments computes the mean [C] and the biased variance [C] of the columns of x, both
	// summed over rows in chunks. If there are no rows, they are 0.
	ColumnMoments(mean, variance []float32, x Matrix)
	// BatchNorm sets y = epilogue((x-mean)/sqrt(variance+eps)*gamma+beta) with the given mean and
	// variance of each column. The matrix y may be x.
	BatchNorm(y, x Matrix, gamma, beta, mean, variance []float32, eps float32, epilogue Epilogue)
	// BatchNormBackward backpropagates dy, the gradient with respect to y, through the epilogue. It
	// does so in place if dy is of float32; a dy of bfloat16 is not changed. From the
	// backpropagated dy it computes dx, and dgamma and dbeta, which are summed over rows in chunks.
	// The arguments mean and variance must be the moments of x. The matrix dx may be dy or x.
	BatchNormBackward(dx Matrix, dgamma, dbeta []float32, dy, x Matrix, gamma, mean,
		variance []float32, eps float32, y Matrix, epilogue Epilogue)
}

// CheckColumnMoments checks the arguments of ColumnMoments.
func CheckColumnMoments(mean, variance []float32, x Matrix) Call {
	checkColumns("ColumnMoments", x, len(mean), len(variance))
	return Call{Kernel: "ColumnMoments", Bytes: 2*x.bytes() + 2*floatBytes*x.Cols}
}

// CheckBatchNorm checks the arguments of BatchNorm.
func CheckBatchNorm(y, x Matrix, gamma, beta, mean, variance []float32, epilogue Epilogue) Call {
	checkStored("BatchNorm", y, x)
	checkColumns("BatchNorm", x, len(gamma), len(beta), len(mean), len(variance))
	return Call{Kernel: "BatchNorm",
		Bytes: epilogue.check("BatchNorm", y) + x.bytes() + y.bytes() + 4*floatBytes*x.Cols}
}

// CheckBatchNormBackward checks the arguments of BatchNormBackward.
func CheckBatchNormBackward(dx Matrix, dgamma, dbeta []float32, dy, x Matrix,
	gamma, mean, variance []float32, y Matrix, epilogue Epilogue) Call {
	const kernel = "BatchNormBackward"
	checkStored(kernel, dx, dy)
	checkSame(kernel, dx, x)
	checkColumns(kernel, x, len(gamma), len(dgamma), len(dbeta), len(mean), len(variance))
	return Call{Kernel: kernel,
		Bytes: epilogue.checkBackward(kernel, dy, y) + 3*x.bytes() + 2*dy.bytes() +
			5*floatBytes*x.Cols}
}

// CheckLayerNorm checks the arguments of LayerNorm.
func CheckLayerNorm(y, x Matrix, gamma, beta, mean, rstd []float32, epilogue Epilogue) Call {
	checkStored("LayerNorm", y, x)
	checkColumns("LayerNorm", x, len(gamma), len(beta))
	checkRows("LayerNorm", x, len(mean), len(rstd))
	return Call{Kernel: "LayerNorm",
		Bytes: epilogue.check("LayerNorm", y) + x.bytes() + y.bytes() + 2*floatBytes*x.Rows}
}

// CheckLayerNormBackward checks the arguments of LayerNormBackward.
func CheckLayerNormBackward(dx Matrix, dgamma, dbeta []float32, dy, x Matrix,
	gamma, mean, rstd []float32, y Matrix, epilogue Epilogue) Call {
	const kernel = "LayerNormBackward"
	checkStored(kernel, dx, dy)
	checkSame(kernel, dx, x)
	checkColumns(kernel, x, len(gamma), len(dgamma), len(dbeta))
	checkRows(kernel, x, len(mean), len(rstd))
	return Call{Kernel: kernel,
		Bytes: epilogue.checkBackward(kernel, dy, y) + 2*x.bytes() + dy.bytes() +
			2*floatBytes*x.Rows}
}
