/* The table of kernels that each SIMD level fills, and the names of its functions. */
#ifndef HALOGNN_KERNELS_H
#define HALOGNN_KERNELS_H

#include <stddef.h>

#include "halognn_cpu.h"

/* name, parameters: every kernel that exists once per level */
#define HALOGNN_EACH_KERNEL(X)                                                                                         \
    X(gather_rows, (float *dst, int64_t n, int64_t cols, int half, const halognn_table *tables, const uint64_t *of))   \
    X(slice_rows, (uint8_t *dst, int64_t n, int64_t row_bytes, const uint8_t *table, const int32_t *ids))              \
    X(segment_mean, (float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,        \
                     const float *h))                                                                                  \
    X(segment_mean_rows, (float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,   \
                          int half, const halognn_table *tables, const uint64_t *of))                                  \
    X(segment_sum, (float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,         \
                    const float *weights, const float *h, int add))                                                    \
    X(segment_mean_backward, (float *dh, int64_t segments, int64_t cols, const int64_t *t_indptr,                      \
                              const int32_t *t_indices, const int64_t *indptr, const float *dout, int add))            \
    X(add_bias, (float *y, int64_t rows, int64_t cols, const float *b))                                                \
    X(column_sum, (float *sum, int64_t rows, int64_t cols, const float *x))                                            \
    X(add_into, (float *sum, int64_t n, const float *x))                                                               \
    X(relu, (float *y, int64_t n))                                                                                     \
    X(relu_dropout, (float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,              \
                     const int32_t *vertices))                                                                         \
    X(relu_backward, (float *dy, int64_t n, const float *y, float scale))                                              \
    X(layer_norm, (float *y, int64_t rows, int64_t cols, const float *x, const float *gamma, const float *beta,        \
                   float *mean, float *rstd, float eps))                                                               \
    X(layer_norm_backward, (float *dx, float *dgamma, float *dbeta, int64_t rows, int64_t cols, const float *dy,       \
                            const float *x, const float *gamma, const float *mean, const float *rstd))                 \
    X(adam, (float *p, float *m, float *v, int64_t n, const float *g, float l2, float decay, float beta1,              \
             float one_minus_beta1, float beta2, float one_minus_beta2, float step, float root, float eps))            \
    X(sgd, (float *p, float *buf, int64_t n, const float *g, float l2, float momentum, float lr, int first))

struct halognn_cpu {
    const char *level;
#define X(name, params) void(*name) params;
    HALOGNN_EACH_KERNEL(X)
#undef X
};

/* Kernels of a level are named kernel_level; the vector sources are compiled once per level, with that level's -m flags
 * and HALOGNN_LEVEL set to its name. */
#define X(name, params)                                                                                                \
    void name##_ref params;                                                                                            \
    void name##_avx2 params;                                                                                           \
    void name##_avx512 params;
HALOGNN_EACH_KERNEL(X)
#undef X

#define HALOGNN_PASTE2(name, level) name##_##level
#define HALOGNN_PASTE(name, level) HALOGNN_PASTE2(name, level)
#define LEVEL(name) HALOGNN_PASTE(name, HALOGNN_LEVEL)

static inline const void *halognn_ref_row(const halognn_table *tables, uint64_t ref, int64_t row_bytes) {
    const uint64_t row = ref & (((uint64_t)1 << HALOGNN_REF_ROW_BITS) - 1);
    return (const char *)tables[ref >> HALOGNN_REF_ROW_BITS].base + (int64_t)row * row_bytes;
}

#endif
