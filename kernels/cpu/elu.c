/* ELU and keyed dropout in one pass. The dropout bits are computed where they are used, so no mask
 * is stored. */
#include "dropout.h"
#include "exp.h"
#include "rounding.h"
#include "simd.h"

void LEVEL(elu)(float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,
                const int32_t *vertices) {
    /* A 32-bit counter, so that the bits of a vector of columns are one vector. */
    const uint32_t width = (uint32_t)cols;
    for (int64_t r = 0; r < rows; r++, y += cols) {
        for (uint32_t j = 0; j < width; j++) {
            const float below = halognn_exp(y[j]) - 1.0f;
            y[j] = (y[j] > 0 ? y[j] : below) * scale;
        }
        if (threshold == 0)
            continue;
        const uint64_t state = dropout_row(key, vertices[r]);
        const uint32_t lo = (uint32_t)state, hi = (uint32_t)(state >> 32);
        for (uint32_t j = 0; j < width; j++)
            y[j] = dropout_bits(lo, hi, j) >= threshold ? y[j] : 0;
    }
}

#define BEHIND_ELU(Y)                                       \
    INDEPENDENT for (uint32_t j = 0; j < width; j++) {      \
        const float above = Y(y, r * cols + j);             \
        dy[j] *= above > 0 ? scale : above + scale;         \
    }

void LEVEL(elu_backward)(float *dy, int64_t rows, int64_t cols, halognn_matrix y,
                         uint32_t threshold, float scale, uint64_t key, const int32_t *vertices) {
    const uint32_t width = (uint32_t)cols;
    for (int64_t r = 0; r < rows; r++, dy += cols) {
        if (y.bf16) {
            BEHIND_ELU(BF16_ELEMENT)
        } else {
            BEHIND_ELU(WIDE_ELEMENT)
        }
        if (threshold == 0)
            continue;
        const uint64_t state = dropout_row(key, vertices[r]);
        const uint32_t lo = (uint32_t)state, hi = (uint32_t)(state >> 32);
        for (uint32_t j = 0; j < width; j++)
            dy[j] = dropout_bits(lo, hi, j) >= threshold ? dy[j] : 0;
    }
}
