//go:build cgo

package cpu

/*
#cgo CFLAGS: -I${SRCDIR}/../../../kernels/include
#cgo LDFLAGS: -L${SRCDIR}/../../../build -lhalognn_cpu -lm
#cgo noescape halognn_check_refs
#cgo nocallback halognn_check_refs
#cgo noescape halognn_check_ids
#cgo nocallback halognn_check_ids
#cgo noescape halognn_gather_rows
#cgo nocallback halognn_gather_rows
#cgo noescape halognn_slice_rows
#cgo nocallback halognn_slice_rows
#cgo noescape halognn_segment_mean_rows
#cgo nocallback halognn_segment_mean_rows
#cgo noescape halognn_segment_mean
#cgo nocallback halognn_segment_mean
#cgo noescape halognn_segment_sum
#cgo nocallback halognn_segment_sum
#cgo noescape halognn_segment_mean_backward
#cgo nocallback halognn_segment_mean_backward
#cgo noescape halognn_add_bias
#cgo nocallback halognn_add_bias
#cgo noescape halognn_column_sum
#cgo nocallback halognn_column_sum
#cgo noescape halognn_add_into
#cgo nocallback halognn_add_into
#cgo noescape halognn_relu
#cgo nocallback halognn_relu
#cgo noescape halognn_relu_dropout
#cgo nocallback halognn_relu_dropout
#cgo noescape halognn_relu_backward
#cgo nocallback halognn_relu_backward
#cgo noescape halognn_layer_norm
#cgo nocallback halognn_layer_norm
#cgo noescape halognn_layer_norm_backward
#cgo nocallback halognn_layer_norm_backward
#cgo noescape halognn_softmax_ce
#cgo nocallback halognn_softmax_ce
#cgo noescape halognn_sigmoid_bce
#cgo nocallback halognn_sigmoid_bce
#cgo noescape halognn_adam
#cgo nocallback halognn_adam
#cgo noescape halognn_sgd
#cgo nocallback halognn_sgd
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

	"halognn/src/compute"
)

// kernels are the C kernels of one SIMD level (kernels/include/halognn_cpu.h), with Go's types. They trust their
// arguments: whoever calls them has checked shapes.
type kernels struct{ c *C.halognn_cpu }

// openKernels opens a level: "", "scalar", "avx2" or "avx512"; "" is what HALOGNN_SIMD names or else the best.
func openKernels(level string) (kernels, error) {
	if level == "" {
		level = os.Getenv("HALOGNN_SIMD")
	}
	name := C.CString(level)
	defer C.free(unsafe.Pointer(name))
	k := C.halognn_cpu_open(name)
	if k == nil {
		return kernels{}, fmt.Errorf("compute/cpu: SIMD level %q is unknown or this machine does not have it; levels are scalar, avx2, avx512; "+
			"unset HALOGNN_SIMD for the best one, %s", level, kernels{C.halognn_cpu_open(nil)}.level())
	}
	return kernels{k}, nil
}

// SIMD returns the level of the C kernels that an empty Options.SIMD chooses here.
func SIMD() (string, error) {
	k, err := openKernels("")
	if err != nil {
		return "", err
	}
	return k.level(), nil
}

func (k kernels) level() string { return C.GoString(k.c.level) }

// catchFaults makes a fault in a mapped file an address that the row kernels return, instead of the end of the process.
var catchFaults = sync.OnceValue(func() error {
	if errno := C.halognn_catch_faults(); errno != 0 {
		return fmt.Errorf("compute/cpu: handling SIGBUS: %w", syscall.Errno(errno))
	}
	return nil
})

func float(x []float32) *C.float                   { return (*C.float)(unsafe.SliceData(x)) }
func int32s(x []int32) *C.int32_t                  { return (*C.int32_t)(unsafe.SliceData(x)) }
func int64s(x []int64) *C.int64_t                  { return (*C.int64_t)(unsafe.SliceData(x)) }
func bytes(x []byte) *C.uint8_t                    { return (*C.uint8_t)(unsafe.SliceData(x)) }
func refs(x []compute.RowRef) *C.uint64_t          { return (*C.uint64_t)(unsafe.SliceData(x)) }
func size(m compute.Matrix) (rows, cols C.int64_t) { return C.int64_t(m.Rows), C.int64_t(m.Cols) }
func elements(m compute.Matrix) C.int64_t          { return C.int64_t(m.Rows) * C.int64_t(m.Cols) }
func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (k kernels) segmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	rows, cols := size(out)
	C.halognn_segment_mean(k.c, float(out.Data), rows, cols, int64s(s.Indptr), int32s(s.Indices), float(h.Data))
}

func (k kernels) segmentSum(out compute.Matrix, s compute.Segments, weights []float32, h compute.Matrix, add bool) {
	rows, cols := size(out)
	C.halognn_segment_sum(k.c, float(out.Data), rows, cols, int64s(s.Indptr), int32s(s.Indices), float(weights), float(h.Data), cBool(add))
}

// segmentMeanBackward works on the rows of dh that transposed describes; forward holds all destinations.
func (k kernels) segmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments, dout compute.Matrix, add bool) {
	rows, cols := size(dh)
	C.halognn_segment_mean_backward(k.c, float(dh.Data), rows, cols, int64s(transposed.Indptr), int32s(transposed.Indices),
		int64s(forward.Indptr), float(dout.Data), cBool(add))
}

func (k kernels) addBias(y compute.Matrix, b []float32) {
	rows, cols := size(y)
	C.halognn_add_bias(k.c, float(y.Data), rows, cols, float(b))
}

func (k kernels) columnSum(sum []float32, x compute.Matrix) {
	rows, cols := size(x)
	C.halognn_column_sum(k.c, float(sum), rows, cols, float(x.Data))
}

func (k kernels) addInto(sum, x []float32) {
	C.halognn_add_into(k.c, float(sum), C.int64_t(len(sum)), float(x))
}

func (k kernels) relu(y compute.Matrix) { C.halognn_relu(k.c, float(y.Data), elements(y)) }

func (k kernels) reluDropout(y compute.Matrix, threshold uint32, scale float32, key compute.DropoutKey, vertices []int32) {
	rows, cols := size(y)
	C.halognn_relu_dropout(k.c, float(y.Data), rows, cols, C.uint32_t(threshold), C.float(scale),
		C.uint64_t(key.K1)<<32|C.uint64_t(key.K0), int32s(vertices))
}

func (k kernels) reluBackward(dy, y compute.Matrix, scale float32) {
	C.halognn_relu_backward(k.c, float(dy.Data), elements(dy), float(y.Data), C.float(scale))
}

func (k kernels) layerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32) {
	rows, cols := size(x)
	C.halognn_layer_norm(k.c, float(y.Data), rows, cols, float(x.Data), float(gamma), float(beta), float(mean), float(rstd), C.float(eps))
}

func (k kernels) layerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix, gamma, mean, rstd []float32) {
	rows, cols := size(x)
	C.halognn_layer_norm_backward(k.c, float(dx.Data), float(dgamma), float(dbeta), rows, cols, float(dy.Data), float(x.Data),
		float(gamma), float(mean), float(rstd))
}

func softmaxCrossEntropy(dlogits, logits compute.Matrix, labels []int32, scale float32) (loss float64, correct int) {
	rows, cols := size(logits)
	var hits C.int64_t
	l := C.halognn_softmax_ce(float(dlogits.Data), rows, cols, float(logits.Data), int32s(labels), C.float(scale), &hits)
	return float64(l), int(hits)
}

func sigmoidBCE(dlogits, logits compute.Matrix, targets []uint8, scale float32) (loss float64, counts [3]int) {
	var c [3]C.int64_t
	l := C.halognn_sigmoid_bce(float(dlogits.Data), elements(logits), float(logits.Data), bytes(targets), C.float(scale), &c[0])
	return float64(l), [3]int{int(c[0]), int(c[1]), int(c[2])}
}

func (k kernels) adam(p, g, m, v []float32, c *compute.AdamCoefficients) {
	C.halognn_adam(k.c, float(p), float(m), float(v), C.int64_t(len(p)), float(g), C.float(c.L2), C.float(c.Decay), C.float(c.Beta1),
		C.float(c.OneMinusBeta1), C.float(c.Beta2), C.float(c.OneMinusBeta2), C.float(c.Step), C.float(c.Root), C.float(c.Eps))
}

func (k kernels) sgd(p, g, buf []float32, o compute.SGDOptions) {
	C.halognn_sgd(k.c, float(p), float(buf), C.int64_t(len(p)), float(g), C.float(o.WeightDecay), C.float(o.Momentum), C.float(o.LR),
		cBool(o.Step <= 1))
}

// checkIDs returns the position of the first id outside [0,limit), or -1.
func checkIDs(ids []int32, limit int) int {
	return int(C.halognn_check_ids(int32s(ids), C.int64_t(len(ids)), C.int64_t(limit)))
}

// checkRefs returns the position of the first reference that names no row, or -1.
func checkRefs(of []compute.RowRef, tables []C.halognn_table) int {
	return int(C.halognn_check_refs(refs(of), C.int64_t(len(of)), unsafe.SliceData(tables), C.int64_t(len(tables))))
}

// The three below return the address that could not be read, or 0.

func (k kernels) gatherRows(dst compute.Matrix, t compute.DType, tables []C.halognn_table, of []compute.RowRef) uintptr {
	rows, cols := size(dst)
	return uintptr(C.halognn_gather_rows(k.c, float(dst.Data), rows, cols, cBool(t == compute.Float16), unsafe.SliceData(tables), refs(of)))
}

func (k kernels) segmentMeanRows(out compute.Matrix, s compute.Segments, t compute.DType, tables []C.halognn_table, of []compute.RowRef) uintptr {
	rows, cols := size(out)
	return uintptr(C.halognn_segment_mean_rows(k.c, float(out.Data), rows, cols, int64s(s.Indptr), int32s(s.Indices),
		cBool(t == compute.Float16), unsafe.SliceData(tables), refs(of)))
}

func (k kernels) sliceRows(dst, table []byte, rowBytes int, ids []int32) uintptr {
	return uintptr(C.halognn_slice_rows(k.c, bytes(dst), C.int64_t(len(ids)), C.int64_t(rowBytes), bytes(table), int32s(ids)))
}
