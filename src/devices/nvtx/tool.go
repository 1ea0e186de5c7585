//go:build cgo

package nvtx

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "nvtx.h"
*/
import "C"

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"
)

var (
	once     sync.Once
	failed   error
	attached atomic.Bool
	// string to *C.char; never freed, because a profiler may keep the names, which are few
	names sync.Map
)

func attach(path string) error {
	once.Do(func() { failed = load(path) })
	return failed
}

func load(path string) error {
	library := C.CString(path)
	defer C.free(unsafe.Pointer(library))
	var text [512]C.char
	if C.halognn_nvtx_attach(library, &text[0], C.size_t(len(text))) != 0 {
		return errors.New(C.GoString(&text[0]))
	}
	attached.Store(true)
	return nil
}

// Start starts a range.
func Start(name string) Range {
	if !attached.Load() {
		return 0
	}
	text, known := names.Load(name)
	if !known {
		made := C.CString(name)
		if text, known = names.LoadOrStore(name, made); known {
			C.free(unsafe.Pointer(made))
		}
	}
	return Range(C.halognn_nvtx_start(text.(*C.char)))
}

// End ends the range.
func (r Range) End() {
	if r != 0 {
		C.halognn_nvtx_end(C.uint64_t(r))
	}
}
