#include <string.h>

#include "kernels.h"
#include "rounding.h"

void add_bias_ref(float *y, int64_t rows, int64_t cols, const float *b) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            y[r * cols + j] += b[j];
}

void column_sum_ref(float *sum, int64_t rows, int64_t cols, const float *x) {
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += x[r * cols + j];
}

void add_into_ref(float *sum, int64_t n, const float *x) {
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

void add_scaled_ref(halognn_result y, int64_t n, halognn_matrix z, halognn_matrix x,
                    const float *scale) {
    for (int64_t i = 0; i < n; i++)
        halognn_put(y, i, halognn_get(z, i) + (1 + *scale) * halognn_get(x, i));
}

void copy_columns_ref(float *y, int64_t rows, int64_t cols, int64_t y_cols, halognn_matrix x,
                      int64_t x_cols, int add) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) {
            const float v = halognn_get(x, r * x_cols + j);
            y[r * y_cols + j] = add ? y[r * y_cols + j] + v : v;
        }
}

void transpose_ref(float *y, int64_t rows, int64_t cols, const float *x, int64_t x_cols) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            y[r * cols + j] = x[j * x_cols + r];
}

void column_dot_ref(float *sum, int64_t rows, int64_t cols, const float *x, halognn_matrix y) {
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            sum[j] += x[r * cols + j] * halognn_get(y, r * cols + j);
}
