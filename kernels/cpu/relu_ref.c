#include "dropout.h"
#include "kernels.h"
#include "rounding.h"

void relu_ref(float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

void relu_dropout_ref(float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale,
                      uint64_t key, const int32_t *vertices) {
    for (int64_t r = 0; r < rows; r++) {
        const uint64_t state = dropout_row(key, vertices[r]);
        for (int64_t j = 0; j < cols; j++, y++) {
            const int keep = dropout_bits((uint32_t)state, (uint32_t)(state >> 32),
                                          (uint32_t)j) >= threshold;
            *y = !keep || *y < 0 ? 0 : *y * scale;
        }
    }
}

void relu_backward_ref(float *dy, int64_t n, halognn_matrix y, float scale) {
    for (int64_t i = 0; i < n; i++)
        dy[i] = halognn_get(y, i) > 0 ? dy[i] * scale : 0;
}
