#include "dropout.h"
#include "exp.h"
#include "kernels.h"
#include "rounding.h"

static int kept(uint32_t threshold, uint64_t key, int32_t vertex, int64_t column) {
    const uint64_t state = dropout_row(key, vertex);
    return dropout_bits((uint32_t)state, (uint32_t)(state >> 32), (uint32_t)column) >= threshold;
}

void elu_ref(float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,
             const int32_t *vertices) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++, y++) {
            *y = (*y > 0 ? *y : halognn_exp(*y) - 1.0f) * scale;
            if (threshold > 0 && !kept(threshold, key, vertices[r], j))
                *y = 0;
        }
}

void elu_backward_ref(float *dy, int64_t rows, int64_t cols, halognn_matrix y, uint32_t threshold,
                      float scale, uint64_t key, const int32_t *vertices) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++, dy++) {
            const float above = halognn_get(y, r * cols + j);
            *dy *= above > 0 ? scale : above + scale;
            if (threshold > 0 && !kept(threshold, key, vertices[r], j))
                *dy = 0;
        }
}
