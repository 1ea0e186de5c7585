/* Copies of scattered rows: a row a few places ahead is prefetched while one is copied. */
#include "simd.h"

ALWAYS_INLINE void widen(float *dst, const uint16_t *src, int64_t cols) {
    int64_t j = 0;
    for (; j + LANES <= cols; j += LANES)
        store(dst + j, load_half(src + j));
    for (; j < cols; j++)
        dst[j] = halognn_half(src[j]);
}

void LEVEL(gather_rows)(float *dst, int64_t n, int64_t cols, int half, const halognn_table *tables,
                        const uint64_t *of) {
    const int64_t row_bytes = cols * (half ? 2 : 4), ahead = rows_ahead(row_bytes);
    for (int64_t i = 0; i < n; i++, dst += cols) {
        if (i + ahead < n)
            prefetch_row(halognn_ref_row(tables, of[i + ahead], row_bytes), row_bytes);
        const void *row = halognn_ref_row(tables, of[i], row_bytes);
        if (half)
            widen(dst, row, cols);
        else
            memcpy(dst, row, (size_t)row_bytes);
    }
}

void LEVEL(slice_rows)(uint8_t *dst, int64_t n, int64_t row_bytes, const uint8_t *table,
                       const int32_t *ids) {
    const int64_t ahead = rows_ahead(row_bytes);
    for (int64_t i = 0; i < n; i++) {
        if (i + ahead < n)
            prefetch_row(table + ids[i + ahead] * row_bytes, row_bytes);
        memcpy(dst + i * row_bytes, table + ids[i] * row_bytes, (size_t)row_bytes);
    }
}
