//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"fmt"
	"unsafe"

	"halognn/src/compute"
)

// The sizes of scratch are worked out here and in the kernels, from the same number; and so are
// references to rows.
var (
	_ [compute.ChunkRows]struct{}  = [C.HALOGNN_CHUNK_ROWS]struct{}{}
	_ [compute.RefRowBits]struct{} = [C.HALOGNN_ROW_BITS]struct{}{}
)

// sent is a host array that a staging buffer has sent: kernels that are handed it find it on the
// device. Indices are checked when they are sent, on a goroutine that has the time.
type sent struct {
	host          unsafe.Pointer
	bytes         int
	offset        int   // in the staging buffer
	lowest, above int32 // all elements of an array of indices lie in [lowest, above)
}

// arrays makes room for the host arrays of one kernel call that have not been sent.
func (d *Device) arrays(bytes int) {
	const most = 4 // arrays of a call, each aligned
	if err := d.reserve(&d.loose, bytes+most*alignment, useInputs); err != nil {
		panic(err)
	}
	d.used = 0
}

// onDevice returns where a host array lies on the device: where the open staging buffer has put it
// or, copied now, among the loose ones. The copy waits: the array is the caller's again.
func onDevice[T int32 | int64 | uint8 | float32](d *Device, x []T) unsafe.Pointer {
	if len(x) == 0 {
		return nil
	}
	p, bytes := unsafe.Pointer(unsafe.SliceData(x)), len(x)*int(unsafe.Sizeof(x[0]))
	if s := d.open.find(p, bytes); s != nil {
		return unsafe.Add(d.open.room.p, s.offset)
	}
	to := unsafe.Add(d.loose.p, d.used)
	d.used += (bytes + alignment - 1) / alignment * alignment
	must("copying an array of a kernel", C.gpu_upload(d.c, C.HALOGNN_COMPUTE, to, (*C.char)(p), C.int64_t(bytes)))
	must("copying an array of a kernel", C.gpu_sync(d.c, C.HALOGNN_COMPUTE))
	return to
}

func (d *Device) indptr(x []int64) *C.int64_t { return (*C.int64_t)(onDevice(d, x)) }

// indices returns where the indices of segments lie on the device. It panics unless they name rows
// of a matrix of that many.
func (d *Device) indices(kernel string, s compute.Segments, rows int) *C.int32_t {
	x := s.Indices[:s.Indptr[s.Len()]]
	if len(x) == 0 {
		return nil
	}
	lowest, above := int32(0), int32(0)
	if known := d.open.find(unsafe.Pointer(unsafe.SliceData(x)), len(x)*4); known != nil {
		lowest, above = known.lowest, known.above
	} else {
		lowest, above = bounds(x)
	}
	if lowest < 0 || int(above) > rows {
		panic(fmt.Sprintf("compute: %s: indices lie in [%d,%d), but there are %d rows", kernel, lowest, above, rows))
	}
	return (*C.int32_t)(onDevice(d, x))
}

// bounds returns the range of indices.
func bounds(x []int32) (lowest, above int32) {
	for _, i := range x {
		lowest, above = min(lowest, i), max(above, i+1)
	}
	return lowest, above
}

// partial returns room for a sum of n floats of each chunk of rows.
func (d *Device) partial(rows, n int) *C.float {
	chunks := (rows + compute.ChunkRows - 1) / compute.ChunkRows
	if err := d.reserve(&d.scratch, max(1, chunks*n)*4, useScratch); err != nil {
		panic(err)
	}
	return (*C.float)(d.scratch.p)
}

// zero clears device memory.
func (d *Device) zero(x []float32) {
	if len(x) > 0 {
		must("zeroing", C.gpu_zero(d.c, C.HALOGNN_COMPUTE, unsafe.Pointer(float(x)), C.int64_t(4*len(x))))
	}
}

// Arguments as C takes them.

func float(x []float32) *C.float { return (*C.float)(unsafe.SliceData(x)) }

// bytesAt returns host memory.
func bytesAt(x []float32) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(x))) }

func size(m compute.Matrix) (rows, cols C.int64_t) { return C.int64_t(m.Rows), C.int64_t(m.Cols) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
