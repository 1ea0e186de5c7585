//go:build cgo

package cpu

/*
// Only OpenBLAS has these; weak, so that any library with the CBLAS interface links.
extern void openblas_set_num_threads(int n) __attribute__((weak));
extern char *openblas_get_config(void) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));

static void blas_threads(int n) { if (openblas_set_num_threads) openblas_set_num_threads(n); }
static const char *blas_config(void) { return openblas_get_config ? openblas_get_config() : ""; }
static const char *blas_core(void) { return openblas_get_corename ? openblas_get_corename() : ""; }
*/
import "C"

import (
	"strings"
	"sync"

	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/netlib/blas/netlib"
)

// useBLAS makes the linked BLAS the engine of blas32. It is called from threads that tile the work
// already, so it must not start its own.
var useBLAS = sync.OnceFunc(func() {
	blas32.Use(netlib.Implementation{})
	setBLASThreads(1)
})

func setBLASThreads(n int) { C.blas_threads(C.int(n)) }

// blasConfig asks once: OpenBLAS writes the answer into one buffer, whoever asks.
var blasConfig = sync.OnceValue(func() string { return C.GoString(C.blas_config()) })

// BLAS describes the linked library of matrix products: what it was built as, and the kernels it
// chose for this machine.
func BLAS() string {
	config := strings.Join(strings.Fields(blasConfig()), " ")
	if config == "" {
		return "a library with the CBLAS interface, which does not tell its name"
	}
	return config + ", kernels for " + C.GoString(C.blas_core())
}

// blasName returns library, version and the kernels it chose, such as "OpenBLAS 0.3.21 SkylakeX".
func blasName() string {
	words := strings.Fields(blasConfig())
	if len(words) < 2 {
		return "BLAS"
	}
	return words[0] + " " + words[1] + " " + C.GoString(C.blas_core())
}
