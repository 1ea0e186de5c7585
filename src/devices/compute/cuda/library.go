//go:build cgo

package cuda

/*
#cgo CFLAGS: -I${SRCDIR}/../../../../kernels/include
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "library.h"
*/
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	_ "halognn/kernels" // halognn_cuda.h
)

// libraryName is the file name of the library. Find returns this name, for the system's loader, if
// it does not find the file itself.
const libraryName = "libhalognn_cuda.so"

// Find returns the path of the library. That is the value of HALOGNN_CUDA_LIB, if it is set.
// Otherwise it is a file in ../lib, ../build or ., seen from the directory of the program. If there
// is none, it is the bare file name, which the loader looks up in LD_LIBRARY_PATH and in the
// system's directories.
func Find() string {
	if path := os.Getenv("HALOGNN_CUDA_LIB"); path != "" {
		return path
	}
	if program, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(program); err == nil {
			program = real
		}
		for _, dir := range []string{"../lib", "../build", "."} {
			path := filepath.Join(filepath.Dir(program), dir, libraryName)
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	return libraryName
}

var loading struct {
	sync.Mutex
	path string
}

// load loads the library, unless it is loaded already. A process can load only one library, so a
// call with another path fails.
func load(path string) error {
	loading.Lock()
	defer loading.Unlock()
	if loading.path != "" {
		if loading.path != path {
			return fmt.Errorf("compute/cuda: %s is loaded already, not %s", loading.path, path)
		}
		return nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if text := C.halognn_gpu_load(name); text != nil {
		return fmt.Errorf("compute/cuda: %w: %s; build it with `make cuda` where nvcc is, or "+
			"name it in HALOGNN_CUDA_LIB, or set compute.device to cpu",
			ErrNoLibrary, C.GoString(text))
	}
	loading.path = path
	return nil
}

// failure converts an error code of the library to an error. The text `what` says what has failed.
func failure(what string, code C.int) error {
	if code == 0 {
		return nil
	}
	text := C.GoString(C.gpu_error(code))
	if C.gpu_is_out_of_memory(code) != 0 {
		return fmt.Errorf("compute/cuda: %s: %w: %s; is another process using the device?", what,
			ErrMemory, text)
	}
	return fmt.Errorf("compute/cuda: %s: %s", what, text)
}

// pinning converts the error code of a call that pins host memory to an error. The driver has no
// code for too little host memory, so pinning assumes this as the reason.
func pinning(what string, bytes int, code C.int) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("compute/cuda: pinning %s of host memory for %s: %s; pinned memory "+
		"counts towards the job's memory limit, if it has one: ask for more by --mem, or lower "+
		"pipeline.depth, sample.batch or sample.fanouts", mega(bytes), what,
		C.GoString(C.gpu_error(code)))
}

// Devices returns how many devices this process sees.
func Devices() (int, error) {
	if err := load(Find()); err != nil {
		return 0, err
	}
	var n C.int
	return int(n), failure("counting devices", C.gpu_count(&n))
}

// BLAS returns the version and the path of the cuBLAS that a device would use. If there is none,
// the error gives the reason.
func BLAS() (string, error) {
	if err := load(Find()); err != nil {
		return "", err
	}
	runtime.LockOSThread() // the library keeps the text for each thread
	defer runtime.UnlockOSThread()
	var found C.int
	text := C.GoString(C.gpu_blas(&found))
	if found == 0 {
		return "", errors.New(text)
	}
	return text, nil
}

// Choose makes the device of a local rank the current one of the calling thread. Call it before MPI
// starts, on the thread that will start MPI, because a CUDA-aware MPI uses the current device.
func Choose(localRank int) (*Choice, error) {
	devices, err := Devices()
	if err != nil {
		return nil, err
	}
	number, err := choose(-1, devices, localRank)
	if err != nil {
		return nil, err
	}
	var uuid [16]C.uchar
	var free C.int64_t
	if err := failure(fmt.Sprintf("choosing device %d", number),
		C.gpu_choose(C.int(number), &uuid[0], &free)); err != nil {
		return nil, err
	}
	return &Choice{number, devices,
		hex.EncodeToString(C.GoBytes(unsafe.Pointer(&uuid[0]), C.int(len(uuid)))), int(free)}, nil
}

// leaks returns the number of objects in an emulated library that have not been freed. For a real
// library it returns -1. For tests.
func leaks() int { return int(C.halognn_gpu_leaks()) }

// refusePinning makes the next n calls that pin host memory fail in an emulated library. For tests.
func refusePinning(n int) { C.halognn_gpu_emulated_refuse(C.int(n)) }

// schedule sets when an emulated library runs queued work. Seed 0 means as late as possible. Other
// seeds mean random times. For tests.
func schedule(seed uint64) { C.halognn_gpu_emulated_seed(C.uint64_t(seed)) }

// Launches returns, by name, how often work was put on the streams of all emulated devices since
// the last call: kernels as FILE/KERNEL, products of cuBLAS, copies and zeros. It also has the
// number of calls in which the host waited, and the number of allocations. It returns nil if the
// library is not emulated. Only one goroutine may call it. For tests.
func Launches() map[string]int {
	text := C.halognn_gpu_emulated_launches()
	if text == nil {
		return nil
	}
	counts := make(map[string]int)
	for line := range strings.Lines(C.GoString(text)) {
		at := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(strings.TrimSpace(line[at:]))
		if err != nil {
			panic(err)
		}
		counts[line[:at]] = n
	}
	return counts
}
