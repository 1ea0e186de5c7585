/* Bias, column sums and sums of vectors: one pass over memory each. */
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

void LEVEL(add_scaled)(float *y, int64_t n, const float *z, const float *x, const float *scale) {
    const float s = 1 + *scale;
    INDEPENDENT for (int64_t i = 0; i < n; i++) y[i] = z[i] + s * x[i];
}

void LEVEL(copy_columns)(float *y, int64_t rows, int64_t cols, int64_t y_cols, const float *x,
                         int64_t x_cols, int add) {
    for (int64_t r = 0; r < rows; r++, y += y_cols, x += x_cols) {
        if (add) {
            INDEPENDENT for (int64_t j = 0; j < cols; j++) y[j] += x[j];
        } else {
            memcpy(y, x, (size_t)cols * sizeof *y);
        }
    }
}

// A block's lines of both matrices stay in the first cache.
void LEVEL(transpose)(float *y, int64_t rows, int64_t cols, const float *x, int64_t x_cols) {
    enum { block = 16 };
    for (int64_t j = 0; j < cols; j += block) {
        const int64_t n = cols - j < block ? cols - j : block;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < n; i++) y[r * cols + j + i] = x[(j + i) * x_cols + r];
    }
}

void LEVEL(column_dot)(float *sum, int64_t rows, int64_t cols, const float *x, const float *y) {
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) sum[j] += x[j] * y[j];
    }
}
