//go:build cgo && blas

package cpu

/*
#include <stdlib.h>

// Only OpenBLAS has these functions. They are weak, so that any library with CBLAS can be linked.
extern void openblas_set_num_threads(int n) __attribute__((weak));
extern char *openblas_get_config(void) __attribute__((weak));
extern char *openblas_get_corename(void) __attribute__((weak));
extern void gotoblas_dynamic_quit(void) __attribute__((weak));
extern void gotoblas_dynamic_init(void) __attribute__((weak));

static void blas_threads(int n) { if (openblas_set_num_threads) openblas_set_num_threads(n); }
static const char *blas_config(void) { return openblas_get_config ? openblas_get_config() : ""; }
static const char *blas_core(void) { return openblas_get_corename ? openblas_get_corename() : ""; }

// Makes an OpenBLAS with kernels for several processors choose its kernels again by
// OPENBLAS_CORETYPE, as it does when it is loaded.
static void blas_choose(const char *core) {
    if (!gotoblas_dynamic_quit || !gotoblas_dynamic_init) return;
    setenv("OPENBLAS_CORETYPE", core, 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
}
*/
import "C"

import (
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/netlib/blas/netlib"
)

// openBLAS is the engine that calls the linked BLAS.
type openBLAS struct{ of netlib.Implementation }

// Sgemm implements engine.
func (e openBLAS) Sgemm(tA, tB blas.Transpose, m, n, k int, a []float32, lda int, b []float32,
	ldb int,
	beta float32, c []float32, ldc int) {
	e.of.Sgemm(tA, tB, m, n, k, 1, a, lda, b, ldb, beta, c, ldc)
}

func openBLASEngine() (engine, string, error) {
	useBLAS()
	return openBLAS{}, blasName(), nil
}

// withAVX512 lists the names that OpenBLAS gives to its kernels with AVX-512.
var withAVX512 = []string{"SkylakeX", "Cooperlake", "SapphireRapids"}

// useBLAS prepares the linked BLAS. It sets BLAS to one thread, because the threads of the pool
// call it. If the processor has AVX-512 and the user has not chosen kernels, useBLAS chooses the
// AVX-512 kernels, because an OpenBLAS that is older than the processor would choose those for
// AVX2.
var useBLAS = sync.OnceFunc(func() {
	setBLASThreads(1)
	if os.Getenv("OPENBLAS_CORETYPE") == "" {
		raiseBLASCore()
	}
})

func raiseBLASCore() {
	_, err := openLevel("avx512")
	if err == nil && strings.HasPrefix(blasConfig(), "OpenBLAS") &&
		!slices.Contains(withAVX512, blasCore()) {
		chooseBLASCore("SKYLAKEX")
	}
}

// chooseBLASCore makes OpenBLAS use its kernels for the named processor, if it was built with
// kernels for several processors.
func chooseBLASCore(name string) {
	core := C.CString(name)
	C.blas_choose(core)
	C.free(unsafe.Pointer(core))
}

func setBLASThreads(n int) { C.blas_threads(C.int(n)) }

// blasConfig calls OpenBLAS only once, because OpenBLAS writes every answer into the same memory.
var blasConfig = sync.OnceValue(func() string { return C.GoString(C.blas_config()) })

func blasCore() string { return C.GoString(C.blas_core()) }

// BLAS describes the linked library of matrix products: how it was built, and which kernels it uses
// on this machine.
func BLAS() string {
	useBLAS()
	config := strings.Join(strings.Fields(blasConfig()), " ")
	if config == "" {
		return "a library with the CBLAS interface, which does not tell its name"
	}
	return config + ", kernels for " + blasCore()
}

// blasName returns the library's name, its version and the kernels that it uses, such as "OpenBLAS
// 0.3.21 SkylakeX".
func blasName() string {
	words := strings.Fields(blasConfig())
	if len(words) < 2 {
		return "BLAS"
	}
	return words[0] + " " + words[1] + " " + blasCore()
}
