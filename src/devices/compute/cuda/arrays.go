//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"halognn/src/devices/compute"
)

// Go and the kernels use the same constants to compute the size of scratch memory and the
// references to rows.
var (
	_ [compute.ChunkRows]struct{}  = [C.HALOGNN_CHUNK_ROWS]struct{}{}
	_ [compute.RefRowBits]struct{} = [C.HALOGNN_ROW_BITS]struct{}{}
)

// sent is a host array that a staging buffer has copied to the device. If a kernel is called with
// the array, it reads the copy. Indices are checked when they are sent, because the goroutines that
// prepare minibatches have time for it.
type sent struct {
	host          unsafe.Pointer
	bytes         int
	offset        int   // offset in the staging buffer
	lowest, above int32 // all elements of an array of indices lie in [lowest, above)
}

// complete reports whether the open staging buffer has all arrays that kernels of the step will
// read.
func (b *stagingBuffer) complete() bool { return b != nil && !b.madeInStep }

// arrays makes room for the host arrays of one call of a kernel, as the open staging buffer may not
// have them.
func (d *Device) arrays(bytes int) {
	if d.open.complete() {
		return
	}
	const most = 5 // the largest number of arrays that a call has; each is aligned
	if err := d.reserve(&d.loose, bytes+most*alignment, useInputs); err != nil {
		panic(err)
	}
	d.used = 0
}

// onDevice returns the device address of an array. An array that the device has drawn is there
// already. If the open staging buffer has sent the array, the address is that of the copy. If it
// has not, but has sent all of a minibatch, onDevice panics. Otherwise, or if no buffer is open, as
// in tests, onDevice copies the array to the device and waits for the copy.
func onDevice[T int32 | int64 | uint8 | float32](d *Device, x []T) unsafe.Pointer {
	if len(x) == 0 {
		return nil
	}
	p, bytes := unsafe.Pointer(unsafe.SliceData(x)), len(x)*int(unsafe.Sizeof(x[0]))
	if d.open != nil && d.open.drawn.has(p) {
		return p
	}
	if s := d.open.find(p, bytes); s != nil {
		return unsafe.Add(d.open.device.p, s.offset)
	}
	if d.open.complete() {
		panic(fmt.Sprintf("compute/cuda: a kernel is given %d bytes of host memory that were not "+
			"sent with the minibatch; this is a bug in halognn", bytes))
	}
	to := unsafe.Add(d.loose.p, d.used)
	d.used += (bytes + alignment - 1) / alignment * alignment
	must("copying an array of a kernel",
		C.gpu_upload(d.c, C.HALOGNN_COMPUTE, to, (*C.char)(p), C.int64_t(bytes)))
	must("copying an array of a kernel", C.gpu_sync(d.c, C.HALOGNN_COMPUTE))
	runtime.KeepAlive(p) // the array must live until it has been read
	return to
}

func (d *Device) indptr(x []int64) *C.int64_t { return (*C.int64_t)(onDevice(d, x)) }

// indices returns the device address of the indices of segments. It panics if an index is not in
// [0,rows).
func (d *Device) indices(kernel string, s compute.Segments, rows int) *C.int32_t {
	if s.Above > 0 {
		if int(s.Above) > rows {
			panic(fmt.Sprintf("compute: %s: indices lie below %d, but there are %d rows", kernel,
				s.Above, rows))
		}
		return (*C.int32_t)(onDevice(d, s.Indices))
	}
	x, from := s.Indices[:s.Indptr[s.Len()]], s.Indptr[0]
	if len(x) == 0 {
		return nil
	}
	lowest, above := int32(0), int32(0)
	known := d.open.find(unsafe.Pointer(unsafe.SliceData(x)), len(x)*4)
	if known != nil && from == 0 {
		lowest, above = known.lowest, known.above
	} else { // indices before these belong to other segments
		lowest, above = bounds(x[from:])
	}
	if lowest < 0 || int(above) > rows {
		panic(fmt.Sprintf("compute: %s: indices lie in [%d,%d), but there are %d rows", kernel,
			lowest, above, rows))
	}
	return (*C.int32_t)(onDevice(d, x))
}

// bounds returns the smallest index, and the largest index plus 1.
func bounds(x []int32) (lowest, above int32) {
	for _, i := range x {
		lowest, above = min(lowest, i), max(above, i+1)
	}
	return lowest, above
}

// scratchOf is scratch memory on the device that lend passes to one launch at a time. Launches run
// in the order in which they are queued, so the next launch may use the same memory. If a larger
// block replaces this memory, only work that is queued later can get the old block.
type scratchOf struct {
	buffer
	lent bool
}

// lend calls the function `launch` with scratch memory of the given number of bytes. It panics if
// launch calls lend for the same memory, because both launches would overwrite each other's data.
func (d *Device) lend(kernel string, s *scratchOf, bytes int, launch func(unsafe.Pointer) C.int) {
	if s.lent {
		panic("compute/cuda: " + kernel + ": one launch borrows its scratch twice; this is a bug " +
			"in halognn")
	}
	if err := d.reserve(&s.buffer, max(1, bytes), useScratch); err != nil {
		panic(err)
	}
	s.lent = true
	defer func() { s.lent = false }()
	must(kernel, launch(s.p))
}

// lendSums lends room for partial sums. It has n floats for each chunk of rows.
func (d *Device) lendSums(kernel string, rows, n int, launch func(*C.float) C.int) {
	chunks := (rows + compute.ChunkRows - 1) / compute.ChunkRows
	d.lend(kernel, &d.scratch, chunks*n*4, func(p unsafe.Pointer) C.int {
		return launch((*C.float)(p))
	})
}

// zero clears a matrix.
func (d *Device) zero(m compute.Matrix) {
	if n := m.Rows * m.Cols; n > 0 {
		must("zeroing", C.gpu_zero(d.c, C.HALOGNN_COMPUTE, matrix(m).of,
			C.int64_t(n*m.Elements().Size())))
	}
}

// Conversions of arguments to C types.

func float(x []float32) *C.float { return (*C.float)(unsafe.SliceData(x)) }

// matrix returns a matrix of float32 or bfloat16 as a C value.
func matrix(m compute.Matrix) C.halognn_cuda_matrix {
	if m.BF16 != nil {
		return C.halognn_cuda_matrix{of: unsafe.Pointer(unsafe.SliceData(m.BF16)), bf16: 1}
	}
	return C.halognn_cuda_matrix{of: unsafe.Pointer(float(m.Data))}
}

// bytesAt returns the address of host memory as C bytes.
func bytesAt(x []float32) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(x))) }

func size(m compute.Matrix) (rows, cols C.int64_t) { return C.int64_t(m.Rows), C.int64_t(m.Cols) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
