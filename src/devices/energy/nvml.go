//go:build cgo

package energy

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "nvml.h"
*/
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

const millijoule = 1e-3

// message is the error message of a function of nvml.h.
type message [256]C.char

func (m *message) err() error { return errors.New(C.GoString(&m[0])) }

// opened is true while a Meter of this process has the library open. Only one Meter can have it
// open, because there is only one table of the library's functions.
var opened atomic.Bool

// openNVML returns the counters of the given GPUs, and a function that closes the library.
func openNVML(library string, ids []string) (all []counter, end func(), err error) {
	if library == "" {
		library = "libnvidia-ml.so.1"
	}
	if !opened.CompareAndSwap(false, true) {
		return nil, nil, fmt.Errorf("%s is in use by another run of this process", library)
	}
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	var text message
	if C.halognn_nvml_open(path, &text[0], C.size_t(len(text))) != 0 {
		opened.Store(false)
		return nil, nil, fmt.Errorf("%s: %w", library, text.err())
	}
	end = func() {
		C.halognn_nvml_close()
		opened.Store(false)
	}
	for _, id := range ids {
		c, err := gpu(id)
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("%s: %w", library, err)
		}
		all = append(all, c)
	}
	return all, end, nil
}

// digits is the number of hexadecimal digits in a GPU's id.
const digits = 32

// gpu returns the counter of one GPU.
func gpu(id string) (counter, error) {
	if _, err := hex.DecodeString(id); err != nil || len(id) != digits {
		return counter{}, fmt.Errorf("%q is no id of a GPU; an id has %d hexadecimal digits", id,
			digits)
	}
	uuid := fmt.Sprintf("GPU-%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:])
	name := C.CString(uuid)
	defer C.free(unsafe.Pointer(name))
	var device unsafe.Pointer
	var text message
	if C.halognn_nvml_find(name, &device, &text[0], C.size_t(len(text))) != 0 {
		return counter{}, fmt.Errorf("%s: %w", uuid, text.err())
	}
	return counter{name: uuid, unit: millijoule, read: func() (uint64, error) {
		var total C.ulonglong
		if C.halognn_nvml_millijoules(device, &total, &text[0], C.size_t(len(text))) != 0 {
			return 0, text.err()
		}
		return uint64(total), nil
	}}, nil
}
