// Package cpu implements compute.Device on the cores of one machine. Matrix products of float32 are
// computed by oneDNN, if it can be loaded at run time, or otherwise by the linked OpenBLAS.
// Everything else is computed by the C kernels of kernels/cpu, at the machine's SIMD level.
//
//	kernel call ──> tiles of rows ──> calling goroutine + pinned workers
//	                                  each tile: a C kernel or a single-threaded sgemm
//
//	y  [R,O] = x wᵀ         tiles of 192 to 512 rows
//	dw [O,F] = dyᵀ x,
//	sums over rows          one partial sum for each chunk of 512 rows; these are added in order
//	segments                tiles of segments; one accumulator for each output, edges in order
//
// With Options.Precision bf16 the factors of products are rounded. On AMD's processors with
// AVX512-BF16, C kernels multiply them. On processors with AMX, or if Options.GEMM names oneDNN,
// oneDNN multiplies them. In all other cases the rounded factors are multiplied as float32. This
// includes tf32, for which CPUs have no instructions.
//
// Tiles depend only on shapes, so the computed numbers do not depend on the number of threads. The
// package also finds the cores that the launcher has assigned to this process (AllowedCPUs) and
// divides them between training and preparation (PlanCores). In builds without cgo, the package has
// the same names, and its code is that of the plain Go backend.
package cpu

import (
	"fmt"
	"slices"

	"halognn/src/devices/compute"
)

// Options says how a device runs. The zero value uses every CPU the process may run on, unpinned.
type Options struct {
	// Number of threads that compute, including the caller's thread. If 0, it is the number of CPUs
	// in the field CPUs or, if that is empty, the number of CPUs that the process may run on.
	Threads int
	// Thread i is pinned to CPUs[i]. If CPUs is empty, no thread is pinned. Enter pins the caller's
	// thread.
	CPUs []int
	// Library of matrix products: onednn, openblas or go. If empty, it is the value of
	// HALOGNN_GEMM. If that is empty too, the best library is used.
	GEMM      string
	Precision compute.Precision // precision of the factors of products; empty means float32
	// SIMD level of the C kernels: scalar, avx2 or avx512. If empty, it is the value of
	// HALOGNN_SIMD. If that is empty too, the best level is used.
	SIMD string
}

// check sets fields that are not given to their defaults. It returns an error if options do not fit
// together.
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
		return fmt.Errorf("compute/cpu: the number of threads is %d; use 0 for one per CPU",
			o.Threads)
	case o.Threads == 0 && len(o.CPUs) > 0:
		o.Threads = len(o.CPUs)
	case o.Threads == 0:
		allowed, err := AllowedCPUs()
		if err != nil {
			return err
		}
		o.Threads = len(allowed)
	case len(o.CPUs) > 0 && len(o.CPUs) != o.Threads:
		return fmt.Errorf("compute/cpu: there are %d threads, but %d CPUs to pin them to; name "+
			"one CPU for each thread", o.Threads, len(o.CPUs))
	}
	return nil
}
