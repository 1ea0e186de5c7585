//go:build cgo

package cpu

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// engine is a library of matrix products.
type engine interface {
	// Sgemm sets c [m,n] = op(a) [m,k] op(b) [k,n] + beta c, on the calling thread. Matrices are
	// stored by rows with the given strides. If beta is 0, the old content of c is ignored.
	Sgemm(tA, tB blas.Transpose, m, n, k int, a []float32, lda int, b []float32, ldb int,
		beta float32, c []float32, ldc int)
}

// openEngine returns the named library, and a description with its version and kernels. If the name
// is empty, this is oneDNN if it is preferred on this machine and can be loaded. Otherwise it is
// OpenBLAS, and in builds without OpenBLAS plain Go.
func openEngine(name string) (engine, string, error) {
	name, err := gemmName(name)
	if err != nil {
		return nil, "", err
	}
	if name == GEMMGo {
		return plainGo{}, "gonum", nil
	}
	if name == GEMMOneDNN || name == "" && prefersOneDNN {
		loaded, err := loadOneDNN()
		if err == nil {
			return oneDNN{}, loaded, nil
		}
		if name == GEMMOneDNN {
			return nil, "", err
		}
	}
	e, linked, err := openBLASEngine()
	if err != nil && name == "" {
		return plainGo{}, "gonum (slow)", nil
	}
	return e, linked, err
}

// GEMM describes the library of matrix products that is used on this machine if Options.GEMM is
// empty, and how it multiplies bfloat16. If it is not the fastest library, GEMM says why.
func GEMM() string {
	e, name, err := openEngine("")
	if err != nil {
		return err.Error()
	}
	k, err := openLevel("")
	if err != nil {
		return err.Error()
	}
	_, _, products := bf16Products(e, mayUseOwn("", k))
	name += ", " + products
	if _, first := e.(oneDNN); !first && prefersOneDNN {
		if _, err := loadOneDNN(); err != nil {
			return name + " (" + err.Error() + ")"
		}
	}
	return name
}

// plainGo is the engine that uses gonum's Go code.
type plainGo struct{ of gonum.Implementation }

// Sgemm implements engine.
func (e plainGo) Sgemm(tA, tB blas.Transpose, m, n, k int, a []float32, lda int, b []float32,
	ldb int,
	beta float32, c []float32, ldc int) {
	e.of.Sgemm(tA, tB, m, n, k, 1, a, lda, b, ldb, beta, c, ldc)
}
