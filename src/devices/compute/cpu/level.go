//go:build cgo

package cpu

/*
#cgo CFLAGS: -I${SRCDIR}/../../../../kernels/include
#include <stdlib.h>
#include "halognn_cpu.h"
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	_ "halognn/kernels" // halognn_cpu.h
	"halognn/src/devices/compute"
)

// level is the table of C kernels of one SIMD level (kernels/include/halognn_cpu.h). The kernels do
// not check their arguments, so callers must have checked shapes.
type level = *C.halognn_cpu

// openLevel opens the level "scalar", "avx2" or "avx512". For "" it opens the level that
// HALOGNN_SIMD names or, if that is not set, the best one.
func openLevel(name string) (level, error) {
	if name == "" {
		name = os.Getenv("HALOGNN_SIMD")
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	k := C.halognn_cpu_open(text)
	if k == nil {
		return nil, fmt.Errorf("compute/cpu: SIMD level %q is unknown, or this machine does not "+
			"have it; choose scalar, avx2 or avx512, or unset HALOGNN_SIMD for the best one, %s",
			name, levelName(C.halognn_cpu_open(nil)))
	}
	return k, nil
}

func levelName(k level) string { return C.GoString(k.level) }

// SIMD returns the level of the C kernels that this machine uses if Options.SIMD is empty.
func SIMD() (string, error) {
	k, err := openLevel("")
	if err != nil {
		return "", err
	}
	return levelName(k), nil
}

// After catchFaults, a kernel that cannot read a row in a mapped file returns the address that it
// could not read. Before the call of catchFaults, such a read would end the process.
var catchFaults = sync.OnceValue(func() error {
	if errno := C.halognn_catch_faults(); errno != 0 {
		return fmt.Errorf("compute/cpu: handling SIGBUS: %w", syscall.Errno(errno))
	}
	return nil
})

// Conversions of arguments to C types.

func floats(x []float32) *C.float   { return (*C.float)(unsafe.SliceData(x)) }
func halves(x []uint16) *C.uint16_t { return (*C.uint16_t)(unsafe.SliceData(x)) }
func int32s(x []int32) *C.int32_t   { return (*C.int32_t)(unsafe.SliceData(x)) }
func int64s(x []int64) *C.int64_t   { return (*C.int64_t)(unsafe.SliceData(x)) }
func bytes(x []byte) *C.uint8_t     { return (*C.uint8_t)(unsafe.SliceData(x)) }

// The function read converts a matrix that a kernel reads. The function written converts a matrix
// that a kernel writes. Both accept float32 and bfloat16.
func read(m compute.Matrix) C.halognn_matrix {
	if m.BF16 != nil {
		return C.halognn_matrix{at: unsafe.Pointer(unsafe.SliceData(m.BF16)), bf16: 1}
	}
	return C.halognn_matrix{at: unsafe.Pointer(unsafe.SliceData(m.Data))}
}

func written(m compute.Matrix) C.halognn_result {
	if m.BF16 != nil {
		return C.halognn_result{at: unsafe.Pointer(unsafe.SliceData(m.BF16)), bf16: 1}
	}
	return C.halognn_result{at: unsafe.Pointer(unsafe.SliceData(m.Data))}
}

func size(m compute.Matrix) (rows, cols C.int64_t) { return C.int64_t(m.Rows), C.int64_t(m.Cols) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func checkIDs(ids []int32, limit int) int {
	return int(C.halognn_check_ids(int32s(ids), C.int64_t(len(ids)), C.int64_t(limit)))
}
