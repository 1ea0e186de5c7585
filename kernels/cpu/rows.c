/* Bias, sums of columns and sums of vectors. Each takes one pass over memory. */
#include "rounding.h"
#include "simd.h"

void LEVEL(add_bias)(float *y, int64_t rows, int64_t cols, const float *b) {
    for (int64_t r = 0; r < rows; r++, y += cols) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) y[j] += b[j];
    }
}

void LEVEL(column_sum)(float *sum, int64_t rows, int64_t cols, const float *x) {
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t r = 0; r < rows; r++, x += cols) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) sum[j] += x[j];
    }
}

void LEVEL(add_into)(float *sum, int64_t n, const float *x) {
    INDEPENDENT for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

void LEVEL(copy_columns)(float *y, int64_t rows, int64_t cols, int64_t y_cols, halognn_matrix x,
                         int64_t x_cols, int add) {
    for (int64_t at = 0; at < rows * x_cols; at += x_cols, y += y_cols) {
        if (x.bf16 && add) {
            INDEPENDENT for (int64_t j = 0; j < cols; j++) y[j] += BF16_ELEMENT(x, at + j);
        } else if (x.bf16) {
            INDEPENDENT for (int64_t j = 0; j < cols; j++) y[j] = BF16_ELEMENT(x, at + j);
        } else if (add) {
            INDEPENDENT for (int64_t j = 0; j < cols; j++) y[j] += WIDE_ELEMENT(x, at + j);
        } else {
            memcpy(y, (const float *)x.at + at, (size_t)cols * sizeof *y);
        }
    }
}

/* A block of sums stays in the first-level cache until it is stored, either as it is or rounded. */
#define ADD_SCALED(Z, X) \
    INDEPENDENT for (int64_t i = 0; i < n; i++) to[i] = Z(z, at + i) + s * X(x, at + i);

void LEVEL(add_scaled)(halognn_result y, int64_t all, halognn_matrix z, halognn_matrix x,
                       const float *scale) {
    enum { block = 2048 };
    const float s = 1 + *scale;
    float part[block];
    for (int64_t at = 0; at < all; at += block) {
        const int64_t n = all - at < block ? all - at : block;
        float *const to = y.bf16 ? part : (float *)y.at + at;
        if (z.bf16 && x.bf16) {
            ADD_SCALED(BF16_ELEMENT, BF16_ELEMENT)
        } else if (x.bf16) {
            ADD_SCALED(WIDE_ELEMENT, BF16_ELEMENT)
        } else if (z.bf16) {
            ADD_SCALED(BF16_ELEMENT, WIDE_ELEMENT)
        } else {
            ADD_SCALED(WIDE_ELEMENT, WIDE_ELEMENT)
        }
        uint16_t *const rounded = (uint16_t *)y.at + at;
        for (int64_t i = 0; y.bf16 && i < n; i++) rounded[i] = halognn_bf16(part[i]);
    }
}

// For each block, the cache lines of both matrices stay in the first-level cache.
void LEVEL(transpose)(float *y, int64_t rows, int64_t cols, const float *x, int64_t x_cols) {
    enum { block = 16 };
    for (int64_t j = 0; j < cols; j += block) {
        const int64_t n = cols - j < block ? cols - j : block;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < n; i++) y[r * cols + j + i] = x[(j + i) * x_cols + r];
    }
}

void LEVEL(column_dot)(float *sum, int64_t rows, int64_t cols, const float *x, halognn_matrix y) {
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t at = 0; at < rows * cols; at += cols) {
        if (y.bf16) {
            INDEPENDENT for (int64_t j = 0; j < cols; j++)
                sum[j] += x[at + j] * BF16_ELEMENT(y, at + j);
        } else {
            INDEPENDENT for (int64_t j = 0; j < cols; j++)
                sum[j] += x[at + j] * WIDE_ELEMENT(y, at + j);
        }
    }
}
