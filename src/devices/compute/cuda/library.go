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

// libraryName is the file name of the library, which Find looks for last through the system's
// loader.
const libraryName = "libhalognn_cuda.so"

// Find returns the path of the library: the value of HALOGNN_CUDA_LIB, or else a file beside the
// program (../lib, ../build, .), or else the bare name, which the loader looks up in
// LD_LIBRARY_PATH and the system's directories.
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

// load loads the library. A process loads only one, once.
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

// failure converts a code to an error.
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

// pinning converts the code of a call that pins host memory to an error. It assumes too little host
// memory, for which the driver has no code of its own.
func pinning(what string, bytes int, code C.int) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("compute/cuda: pinning %s of host memory for %s: %s; where the job has a "+
		"limit of memory (--mem), it counts: ask for more, or lower "+
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

// BLAS returns the version and the path of the cuBLAS that a device would take, or why there is
// none.
func BLAS() (string, error) {
	if err := load(Find()); err != nil {
		return "", err
	}
	runtime.LockOSThread() // the text belongs to this thread
	defer runtime.UnlockOSThread()
	var found C.int
	text := C.GoString(C.gpu_blas(&found))
	if found == 0 {
		return "", errors.New(text)
	}
	return text, nil
}

// Choose makes the device of a local rank the current one of the calling thread. Call it on the
// thread that starts MPI, before starting MPI: a CUDA-aware MPI uses the current device.
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

// leaks returns the number of unfreed objects in an emulated library; -1 for a real one. For tests.
func leaks() int { return int(C.halognn_gpu_leaks()) }

// refusePinning makes the next n calls that pin host memory fail in an emulated library. For tests.
func refusePinning(n int) { C.halognn_gpu_emulated_refuse(C.int(n)) }

// schedule sets when queued work of an emulated library runs: 0 for as late as possible, other
// seeds for random times. For tests.
func schedule(seed uint64) { C.halognn_gpu_emulated_seed(C.uint64_t(seed)) }

// Launches returns, by name, how often work was put on the streams of all emulated devices since
// the last call: kernels as FILE/KERNEL, products of cuBLAS, copies and zeros. It also counts calls
// in which the host waited, and allocations. It returns nil if the library is not emulated. Only
// one goroutine may call it. For tests.
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
