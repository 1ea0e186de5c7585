#include "kernels.h"
#include "rounding.h"

/* Returns element j of row r of a matrix as a bfloat16, or 0 if the matrix has no such element. */
static uint32_t half_of(halognn_matrix x, int64_t stride, int64_t rows, int64_t cols, int64_t r,
                        int64_t j) {
    if (r >= rows || j >= cols)
        return 0;
    const int64_t at = r * stride + j;
    return x.bf16 ? ((const uint16_t *)x.at)[at] : halognn_bf16(((const float *)x.at)[at]);
}

void pair_rows_ref(uint32_t *to, int64_t panel, int64_t rows, int64_t cols, halognn_matrix x,
                   int64_t stride) {
    for (int64_t first = 0; first < cols; first += panel)
        for (int64_t r = 0; r < rows; r += 2)
            for (int64_t j = first; j < first + panel; j++)
                *to++ = half_of(x, stride, rows, cols, r, j) |
                        half_of(x, stride, rows, cols, r + 1, j) << 16;
}

/* Sets c, element j of a row of the product, or adds to it. In the row of a, a pair lies `apart`
 * words after the pair before it. The product of two bfloat16 is exact in float32. */
static void sum_pairs(float *c, int add, const uint32_t *a, int64_t apart, int64_t pairs,
                      const uint32_t *b, int64_t j) {
    b += j / HALOGNN_COLUMN_PANEL * pairs * HALOGNN_COLUMN_PANEL + j % HALOGNN_COLUMN_PANEL;
    float total = add ? *c : 0;
    for (int64_t p = 0; p < pairs;) {
        float sum = 0;
        do {
            const uint32_t x = a[p * apart], y = b[p * HALOGNN_COLUMN_PANEL];
            sum += halognn_widened((uint16_t)(x >> 16)) * halognn_widened((uint16_t)(y >> 16));
            sum += halognn_widened((uint16_t)x) * halognn_widened((uint16_t)y);
        } while (++p < pairs && p % HALOGNN_PAIRS_OF_PASS != 0);
        total = !add && p <= HALOGNN_PAIRS_OF_PASS ? sum : total + sum;
    }
    *c = total;
}

void product_of_rows_ref(float *c, int64_t stride, int64_t m, int64_t n, int64_t k,
                         const uint16_t *a, const uint32_t *b, int add) {
    const int64_t pairs = (k + 1) / 2;
    uint32_t row[pairs + 1];
    for (int64_t i = 0; i < m; i++, a += k) {
        for (int64_t p = 0; p < pairs; p++)
            row[p] = a[2 * p] | (2 * p + 1 < k ? (uint32_t)a[2 * p + 1] << 16 : 0);
        for (int64_t j = 0; j < n; j++)
            sum_pairs(c + i * stride + j, add, row, 1, pairs, b, j);
    }
}

void product_of_pairs_ref(float *c, int64_t stride, int64_t m, int64_t n, int64_t k,
                          const uint32_t *a, const uint32_t *b, int add) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            sum_pairs(c + i * stride + j, add, a + i, m, (k + 1) / 2, b, j);
}
