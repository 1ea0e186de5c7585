/* The factors of matrix products, rounded. Rows of 47 are padded to 48, because libraries
 * multiply those faster. */
#include "rounding.h"
#include "simd.h"

/* Contiguous rows are converted as one long row, with only one tail shorter than a vector. */
#define ONE_ROW_IF_PACKED                          \
    if (width == cols && stride == cols) {         \
        width = stride = cols = rows * cols;       \
        rows = 1;                                  \
    }

void LEVEL(to_bf16)(uint16_t *dst, int64_t width, int64_t rows, int64_t cols, const float *x,
                    int64_t stride) {
    ONE_ROW_IF_PACKED
    for (int64_t r = 0; r < rows; r++, dst += width, x += stride) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) dst[j] = halognn_bf16(x[j]);
        memset(dst + cols, 0, (size_t)(width - cols) * sizeof *dst);
    }
}

void LEVEL(from_bf16)(float *dst, int64_t rows, int64_t cols, const uint16_t *x, int64_t stride) {
    int64_t width = cols;
    ONE_ROW_IF_PACKED
    for (int64_t r = 0; r < rows; r++, dst += width, x += stride) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) dst[j] = halognn_widened(x[j]);
    }
}

void LEVEL(round_factors)(float *dst, int64_t width, int64_t rows, int64_t cols, const float *x,
                          int64_t stride, int dropped) {
    ONE_ROW_IF_PACKED
    for (int64_t r = 0; r < rows; r++, dst += width, x += stride) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) dst[j] = halognn_rounded(x[j], dropped);
        memset(dst + cols, 0, (size_t)(width - cols) * sizeof *dst);
    }
}
