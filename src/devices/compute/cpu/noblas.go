//go:build cgo && !blas

package cpu

import "errors"

func openBLASEngine() (engine, string, error) {
	return nil, "", errors.New("compute/cpu: this program was built without OpenBLAS; install " +
		"libopenblas-dev and run make build, or set compute.gemm to onednn or go")
}

// BLAS describes the linked library of matrix products.
func BLAS() string { return "none (built without the tag blas)" }
