/* Declares the kernels of all SIMD levels. NAME_ref is the kernel of level scalar, plain code that
 * is easy to read. Processors without AVX2 run it, and the tests in cpu/test compare the other
 * levels with it. The reference for all devices is in Go, in compute/ref. */
#ifndef HALOGNN_KERNELS_H
#define HALOGNN_KERNELS_H

#ifdef __clang__ /* forbids fused multiply-adds; with -std=c11 GCC makes none */
#pragma STDC FP_CONTRACT OFF
#endif

#include <stddef.h>

#include "halognn_cpu.h"

#define EACH_CPU_KERNEL(name, params, args) \
    void name##_ref params;                 \
    void name##_avx2 params;                \
    void name##_avx512 params;
#define PRODUCT_KERNEL(name, params, args) \
    void name##_ref params;                \
    void name##_avx512bf16 params;
#include "halognn_kernels.def"

/* Returns the row to which an index of segment_rows refers. An index i that begins a group is given
 * as ~i. */
static inline int32_t source_of(int32_t index) { return index < 0 ? ~index : index; }

/* The reference to row i of a list of references that, if of is NULL, has the rows of the first
 * table in order. */
static inline uint64_t halognn_ref_at(const uint64_t *of, int32_t i) {
    return of != NULL ? of[i] : (uint64_t)i;
}

static inline const void *halognn_ref_row(const halognn_table *tables, uint64_t ref,
                                          int64_t row_bytes) {
    const uint64_t row = ref & (((uint64_t)1 << HALOGNN_REF_ROW_BITS) - 1);
    return (const char *)tables[ref >> HALOGNN_REF_ROW_BITS].base + (int64_t)row * row_bytes;
}

#endif
