package compute

// NormKernels are normalizations and their gradients.
type NormKernels interface {
	// LayerNorm sets y = (x-mean)/sqrt(var+eps)*gamma+beta by rows, with the biased variance; mean
	// and rstd [R] are kept for backward. y may be x only if backward does not follow.
	LayerNorm(y, x Matrix, gamma, beta, mean, rstd []float32, eps float32)
	// LayerNormBackward sets dx, dgamma and dbeta; the latter two are summed over rows in chunks.
	// dx may be dy.
	LayerNormBackward(dx Matrix, dgamma, dbeta []float32, dy, x Matrix, gamma, mean, rstd []float32)
}

// CheckLayerNorm checks the arguments of LayerNorm.
func CheckLayerNorm(y, x Matrix, gamma, beta, mean, rstd []float32) Call {
	checkSame("LayerNorm", y, x)
	checkColumns("LayerNorm", x, len(gamma), len(beta))
	checkRows("LayerNorm", x, len(mean), len(rstd))
	return Call{Kernel: "LayerNorm", Bytes: 2*x.bytes() + 2*floatBytes*x.Rows}
}

// CheckLayerNormBackward checks the arguments of LayerNormBackward.
func CheckLayerNormBackward(dx Matrix, dgamma, dbeta []float32, dy, x Matrix,
	gamma, mean, rstd []float32) Call {
	checkSame("LayerNormBackward", dx, dy)
	checkSame("LayerNormBackward", dx, x)
	checkColumns("LayerNormBackward", x, len(gamma), len(dgamma), len(dbeta))
	checkRows("LayerNormBackward", x, len(mean), len(rstd))
	return Call{Kernel: "LayerNormBackward", Bytes: 3*x.bytes() + 2*floatBytes*x.Rows}
}
