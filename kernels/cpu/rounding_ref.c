#include "kernels.h"
#include "rounding.h"

void to_bf16_ref(uint16_t *dst, int64_t width, int64_t rows, int64_t cols, const float *x,
                 int64_t stride) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++)
            dst[r * width + j] = j < cols ? halognn_bf16(x[r * stride + j]) : 0;
}

void from_bf16_ref(float *dst, int64_t rows, int64_t cols, const uint16_t *x, int64_t stride) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            dst[r * cols + j] = halognn_widened(x[r * stride + j]);
}

void round_factors_ref(float *dst, int64_t width, int64_t rows, int64_t cols, const float *x,
                       int64_t stride, int dropped) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++)
            dst[r * width + j] = j < cols ? halognn_rounded(x[r * stride + j], dropped) : 0;
}
