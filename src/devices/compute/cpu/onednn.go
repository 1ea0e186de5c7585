//go:build cgo

package cpu

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "onednn.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
)

// ErrNoOneDNN is wrapped by errors about an oneDNN that cannot be loaded or used.
var ErrNoOneDNN = errors.New("no usable oneDNN")

// oneDNNNames are the names that the system's loader looks for if HALOGNN_ONEDNN_LIB is not set.
var oneDNNNames = []string{"libdnnl.so.3", "libdnnl.so.2"}

// loadOneDNN loads the library on the first call. It returns the name of the library, such as
// "oneDNN 2.6.3 AVX-512".
var loadOneDNN = sync.OnceValues(func() (name string, err error) {
	names := oneDNNNames
	if path := os.Getenv("HALOGNN_ONEDNN_LIB"); path != "" {
		names = []string{path}
	}
	var wrong []string
	for _, name := range names {
		path := C.CString(name)
		text := C.halognn_onednn_load(path)
		if text != nil {
			wrong = append(wrong, C.GoString(text))
		}
		C.free(unsafe.Pointer(path))
		if text == nil {
			var major, minor, patch, avx512 C.int
			C.halognn_onednn_version(&major, &minor, &patch, &avx512)
			name := fmt.Sprintf("oneDNN %d.%d.%d", major, minor, patch)
			if avx512 != 0 {
				name += " AVX-512"
			}
			return name, nil
		}
	}
	return "", fmt.Errorf("compute/cpu: %w: %s; install libdnnl2, or name the library in "+
		"HALOGNN_ONEDNN_LIB, "+
		"or set compute.gemm to openblas", ErrNoOneDNN, strings.Join(wrong, "; "))
})

// oneDNN is the engine that uses oneDNN, which must have been loaded.
type oneDNN struct{}

func letter(t blas.Transpose) C.char {
	if t == blas.Trans {
		return 'T'
	}
	return 'N'
}

// Sgemm implements engine.
func (oneDNN) Sgemm(tA, tB blas.Transpose, m, n, k int, a []float32, lda int, b []float32, ldb int,
	beta float32, c []float32, ldc int) {
	status := C.halognn_onednn_sgemm(letter(tA), letter(tB), C.int64_t(m), C.int64_t(n),
		C.int64_t(k), floats(a), C.int64_t(lda), floats(b), C.int64_t(ldb), C.float(beta),
		floats(c), C.int64_t(ldc))
	succeeded(status, m, n, k)
}

// Bgemm implements bf16Engine.
func (oneDNN) Bgemm(tA, tB blas.Transpose, m, n, k int, a []uint16, lda int, b []uint16, ldb int,
	beta float32, c []float32, ldc int) {
	succeeded(C.halognn_onednn_bgemm(letter(tA), letter(tB), C.int64_t(m), C.int64_t(n),
		C.int64_t(k), halves(a), C.int64_t(lda), halves(b), C.int64_t(ldb), C.float(beta),
		floats(c), C.int64_t(ldc)), m, n, k)
}

// oneDNNHasBF16 reports whether Bgemm of the loaded library uses instructions of this processor for
// bfloat16.
func oneDNNHasBF16() bool { return C.halognn_onednn_has_bf16() != 0 }

// oneDNNHasAMX reports whether Bgemm of the loaded library uses AMX.
func oneDNNHasAMX() bool { return C.halognn_onednn_has_amx() != 0 }

// succeeded panics unless status is 0, which means success. The arguments are valid, so a failure
// means that the library had no memory for its buffers.
func succeeded(status C.int, m, n, k int) {
	if status != 0 {
		panic(fmt.Sprintf("compute/cpu: oneDNN's matrix product of %d x %d x %d gives status %d", m,
			n, k, int(status)))
	}
}
