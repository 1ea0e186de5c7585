/* The functions of all levels. The vector sources are compiled once per level, with that level's
 * -m flags and HALOGNN_LEVEL set to its name: LEVEL(name) is name_level. */
#ifndef HALOGNN_KERNELS_H
#define HALOGNN_KERNELS_H

#include <stddef.h>

#include "halognn_cpu.h"

#define EACH_CPU_KERNEL(name, params, args) \
    void name##_ref params;                 \
    void name##_avx2 params;                \
    void name##_avx512 params;
#include "halognn_kernels.def"

#define HALOGNN_PASTE2(name, level) name##_##level
#define HALOGNN_PASTE(name, level) HALOGNN_PASTE2(name, level)
#define LEVEL(name) HALOGNN_PASTE(name, HALOGNN_LEVEL)

/* The row that an index of segment_rows refers to: an index that begins a group is inverted. */
static inline int32_t source_of(int32_t index) { return index < 0 ? ~index : index; }

static inline const void *halognn_ref_row(const halognn_table *tables, uint64_t ref,
                                          int64_t row_bytes) {
    const uint64_t row = ref & (((uint64_t)1 << HALOGNN_REF_ROW_BITS) - 1);
    return (const char *)tables[ref >> HALOGNN_REF_ROW_BITS].base + (int64_t)row * row_bytes;
}

#endif
