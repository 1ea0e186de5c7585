/* Copies scattered rows. While a row is copied, a row a few places ahead is prefetched. */
#include "rounding.h"
#include "simd.h"

/* convert copies a row and converts or scales its elements. */
ALWAYS_INLINE void convert(halognn_result dst, element is, const void *row, int64_t cols,
                           const float *scale) {
    float *const wide = dst.at;
    uint16_t *const bf16 = dst.at;
    int64_t j = 0;
    for (; j + LANES <= cols; j += LANES) {
        const vec x = is == HALF   ? load_half((const uint16_t *)row + j)
                      : is == BF16 ? load_bf16((const uint16_t *)row + j)
                      : is == BYTE ? load_byte((const int8_t *)row + j)
                                   : load((const float *)row + j);
        const vec y = scale ? x * load(scale + j) : x;
        if (dst.bf16)
            store_bf16(bf16 + j, y);
        else
            store(wide + j, y);
    }
    for (; j < cols; j++) {
        const float x = halognn_element(is, row, j), y = scale ? x * scale[j] : x;
        if (dst.bf16)
            bf16[j] = halognn_bf16(y);
        else
            wide[j] = y;
    }
}

void LEVEL(gather_rows)(halognn_result dst, int64_t n, int64_t cols, halognn_elements as,
                        const halognn_table *tables, const uint64_t *of) {
    const int64_t row_bytes = cols * as.bytes, ahead = rows_ahead(row_bytes);
    const int64_t dst_bytes = cols * (dst.bf16 ? 2 : 4);
    for (int64_t i = 0; i < n; i++, dst.at = (char *)dst.at + dst_bytes) {
        if (i + ahead < n)
            prefetch_row(halognn_ref_row(tables, of[i + ahead], row_bytes), row_bytes);
        const void *row = halognn_ref_row(tables, of[i], row_bytes);
        if (!as.scale && (dst.bf16 ? as.bf16 : as.bytes == 4))
            memcpy(dst.at, row, (size_t)row_bytes);
        else if (as.bytes == 4)
            convert(dst, FLOAT, row, cols, as.scale);
        else if (as.bf16)
            convert(dst, BF16, row, cols, as.scale);
        else if (as.bytes == 2)
            convert(dst, HALF, row, cols, as.scale);
        else
            convert(dst, BYTE, row, cols, as.scale);
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
