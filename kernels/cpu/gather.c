/* Copies of scattered rows: a row a few places ahead is prefetched while one is copied. */
#include "simd.h"

/* Rows of which elements are converted or scaled. */
ALWAYS_INLINE void widen(float *dst, element is, const void *row, int64_t cols, const float *scale) {
    int64_t j = 0;
    for (; j + LANES <= cols; j += LANES) {
        const vec x = is == HALF   ? load_half((const uint16_t *)row + j)
                      : is == BYTE ? load_byte((const int8_t *)row + j)
                                   : load((const float *)row + j);
        store(dst + j, scale ? x * load(scale + j) : x);
    }
    for (; j < cols; j++) {
        const float x = halognn_element(is, row, j);
        dst[j] = scale ? x * scale[j] : x;
    }
}

void LEVEL(gather_rows)(float *dst, int64_t n, int64_t cols, halognn_elements as,
                        const halognn_table *tables, const uint64_t *of) {
    const int64_t row_bytes = cols * as.bytes, ahead = rows_ahead(row_bytes);
    for (int64_t i = 0; i < n; i++, dst += cols) {
        if (i + ahead < n)
            prefetch_row(halognn_ref_row(tables, of[i + ahead], row_bytes), row_bytes);
        const void *row = halognn_ref_row(tables, of[i], row_bytes);
        if (as.bytes == 4 && !as.scale)
            memcpy(dst, row, (size_t)row_bytes);
        else if (as.bytes == 4)
            widen(dst, FLOAT, row, cols, as.scale);
        else if (as.bytes == 2)
            widen(dst, HALF, row, cols, as.scale);
        else
            widen(dst, BYTE, row, cols, as.scale);
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
