// Package cpu is the compute backend for the cores of one machine: matrix products of float32 by
// oneDNN, which is loaded at run time, or else by the linked OpenBLAS; everything else by the C
// kernels of kernels/cpu, at the machine's SIMD level.
//
//	kernel call ──> tiles of rows ──> calling goroutine + pinned workers
//	                                  each tile: a C kernel or a single-threaded sgemm
//
//	y  [R,O] = x wᵀ         tiles of 192 to 512 rows
//	dw [O,F] = dyᵀ x,
//	sums over rows          one partial sum a chunk of 512 rows, then the partials in chunk order
//	segments                tiles of segments; one accumulator an output, edges in order
//
// With Options.Precision bf16 the factors of products are rounded. C kernels multiply them with the
// AVX512-BF16 of AMD's processors, oneDNN with AMX or where it is named. Elsewhere, and with tf32,
// for which a CPU has no instructions, the rounded factors are multiplied as float32.
//
// Tiles depend on shapes alone, so numbers do not depend on the number of threads. The package also
// finds the cores that the launcher has assigned to this process (AllowedCPUs) and divides them
// between training and preparation (PlanCores). Without cgo it is the plain Go backend under the
// same names.
package cpu

import (
	"fmt"
	"slices"

	"halognn/src/devices/compute"
)

// Options says how a device runs. The zero value uses every CPU the process may run on, unpinned.
type Options struct {
	// number of threads that compute, including the caller. 0: one for each of CPUs or, if CPUs is
	// empty, for each CPU that the process may run on
	Threads int
	// pin thread i to CPUs[i]; empty: do not pin. The caller's own thread is pinned by Enter
	CPUs []int
	// library of products: onednn, openblas, go; empty: HALOGNN_GEMM, or else the best
	GEMM      string
	Precision compute.Precision // precision of the factors of products; empty: float32
	// level of the C kernels: scalar, avx2, avx512; empty: HALOGNN_SIMD, or else the best
	SIMD string
}

// check fills in the default and returns an error for options that do not fit.
func (o *Options) check() error {
	o.CPUs = slices.Clone(o.CPUs)
	if o.Precision == "" {
		o.Precision = compute.PrecisionFloat32
	}
	switch {
	case !o.Precision.Known():
		return fmt.Errorf("compute/cpu: precision %s of products is unknown; there are %s",
			o.Precision, compute.Precisions())
	case o.Threads < 0:
		return fmt.Errorf("compute/cpu: %d threads; use 0 for one per CPU", o.Threads)
	case o.Threads == 0 && len(o.CPUs) > 0:
		o.Threads = len(o.CPUs)
	case o.Threads == 0:
		allowed, err := AllowedCPUs()
		if err != nil {
			return err
		}
		o.Threads = len(allowed)
	case len(o.CPUs) > 0 && len(o.CPUs) != o.Threads:
		return fmt.Errorf("compute/cpu: %d threads but %d CPUs to pin them to; name one for each "+
			"thread", o.Threads, len(o.CPUs))
	}
	return nil
}
