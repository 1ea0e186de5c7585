/*
 * Combines the heads of each row into one: their mean, or the maximum of each column. The columns
 * of a row lie head by head. Jumping knowledge uses these kernels with layers as heads.
 */
#include "simd.h"

void LEVEL(head_mean)(float *y, int64_t rows, int64_t heads, int64_t width, const float *x) {
    const float share = 1.0f / (float)heads;
    for (int64_t r = 0; r < rows; r++, y += width, x += heads * width) {
        memset(y, 0, (size_t)width * sizeof *y);
        for (int64_t h = 0; h < heads; h++) {
            INDEPENDENT for (int64_t j = 0; j < width; j++) y[j] += x[h * width + j];
        }
        INDEPENDENT for (int64_t j = 0; j < width; j++) y[j] *= share;
    }
}

void LEVEL(head_mean_backward)(float *dx, int64_t rows, int64_t heads, int64_t width,
                               const float *dy) {
    const float share = 1.0f / (float)heads;
    for (int64_t r = 0; r < rows; r++, dy += width)
        for (int64_t h = 0; h < heads; h++, dx += width) {
            INDEPENDENT for (int64_t j = 0; j < width; j++) dx[j] = dy[j] * share;
        }
}

/* largest_head returns where the largest number of column j is among the heads of a row. Of equal
 * numbers it takes the first, and a NaN counts as the largest. */
ALWAYS_INLINE int64_t largest_head(const float *x, int64_t heads, int64_t width, int64_t j) {
    int64_t at = j;
    for (int64_t i = j + width; i < heads * width; i += width)
        at = x[at] == x[at] && !(x[i] <= x[at]) ? i : at;
    return at;
}

void LEVEL(head_max)(float *y, int64_t rows, int64_t heads, int64_t width, const float *x) {
    for (int64_t r = 0; r < rows; r++, y += width, x += heads * width)
        for (int64_t j = 0; j < width; j++)
            y[j] = x[largest_head(x, heads, width, j)];
}

void LEVEL(head_max_backward)(float *dx, int64_t rows, int64_t heads, int64_t width,
                              const float *dy, const float *x) {
    for (int64_t r = 0; r < rows; r++, dy += width, dx += heads * width, x += heads * width)
        for (int64_t j = 0; j < width; j++) {
            const int64_t at = largest_head(x, heads, width, j);
            for (int64_t i = j; i < heads * width; i += width)
                dx[i] = i == at ? dy[j] : 0;
        }
}
