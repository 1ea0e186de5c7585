/* ReLU and keyed dropout in one pass. The dropout bits are computed where they are used, so no mask
 * is stored. */
#include "dropout.h"
#include "rounding.h"
#include "simd.h"

void LEVEL(relu)(float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

void LEVEL(relu_dropout)(float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale,
                         uint64_t key, const int32_t *vertices) {
    /* a 32-bit counter, so that the bits of a vector of columns are one vector */
    const uint32_t width = (uint32_t)cols;
    for (int64_t r = 0; r < rows; r++, y += cols) {
        const uint64_t state = dropout_row(key, vertices[r]);
        const uint32_t lo = (uint32_t)state, hi = (uint32_t)(state >> 32);
        for (uint32_t j = 0; j < width; j++) {
            const float kept = y[j] < 0 ? 0 : y[j] * scale;
            y[j] = dropout_bits(lo, hi, j) >= threshold ? kept : 0;
        }
    }
}

#define BEHIND_RELU(Y)                                \
    INDEPENDENT for (int64_t i = 0; i < n; i++) {     \
        const float scaled = dy[i] * scale;           \
        dy[i] = Y(y, i) > 0 ? scaled : 0;             \
    }

void LEVEL(relu_backward)(float *dy, int64_t n, halognn_matrix y, float scale) {
    if (y.bf16) {
        BEHIND_RELU(BF16_ELEMENT)
    } else {
        BEHIND_RELU(WIDE_ELEMENT)
    }
}
