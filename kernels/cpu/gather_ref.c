#include <string.h>

#include "half.h"
#include "kernels.h"
#include "rounding.h"

void gather_rows_ref(halognn_result dst, int64_t n, int64_t cols, halognn_elements as,
                     const halognn_table *tables, const uint64_t *of) {
    for (int64_t i = 0; i < n; i++) {
        const void *row = halognn_ref_row(tables, of[i], cols * as.bytes);
        for (int64_t j = 0; j < cols; j++) {
            const float x = halognn_element(element_of(&as, of[i]), row, j);
            halognn_put(dst, i * cols + j, as.scale ? x * as.scale[j] : x);
        }
    }
}

void slice_rows_ref(uint8_t *dst, int64_t n, int64_t row_bytes, const uint8_t *table,
                    const int32_t *ids) {
    for (int64_t i = 0; i < n; i++)
        memcpy(dst + i * row_bytes, table + ids[i] * row_bytes, (size_t)row_bytes);
}
