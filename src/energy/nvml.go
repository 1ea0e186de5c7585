//go:build cgo

package energy

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "nvml.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

const millijoule = 1e-3

// openNVML returns the counters of some GPUs, and what gives the library back. A process opens it
// once at a time.
func openNVML(library string, ids []string) (all []counter, end func(), err error) {
	if library == "" {
		library = "libnvidia-ml.so.1"
	}
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if text := C.halognn_nvml_open(path); text != nil {
		return nil, nil, fmt.Errorf("%s: %s", library, C.GoString(text))
	}
	end = func() { C.halognn_nvml_close() }
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

// gpu returns the counter of one GPU.
func gpu(id string) (counter, error) {
	const digits = 32
	if len(id) != digits {
		return counter{}, fmt.Errorf("%q is no id of a GPU", id)
	}
	uuid := fmt.Sprintf("GPU-%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:])
	name := C.CString(uuid)
	defer C.free(unsafe.Pointer(name))
	var device unsafe.Pointer
	if text := C.halognn_nvml_find(name, &device); text != nil {
		return counter{}, fmt.Errorf("%s: %s", uuid, C.GoString(text))
	}
	return counter{name: uuid, unit: millijoule, read: func() (uint64, error) {
		var total C.ulonglong
		if text := C.halognn_nvml_millijoules(device, &total); text != nil {
			return 0, errors.New(C.GoString(text))
		}
		return uint64(total), nil
	}}, nil
}
