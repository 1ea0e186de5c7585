/* The elements of feature rows: float16 (IEEE binary16), bfloat16, integers, or float32. */
#ifndef HALOGNN_HALF_H
#define HALOGNN_HALF_H

#include <stdint.h>
#include <string.h>

#include "halognn_cpu.h"

typedef enum { FLOAT, HALF, BYTE, SHORT, BF16 } element;

/* Returns the element type of the row that ref refers to. */
static inline element element_of(const halognn_elements *as, uint64_t ref) {
    if (as->bytes == 4)
        return FLOAT;
    if ((int64_t)(ref >> HALOGNN_REF_ROW_BITS) >= as->wide)
        return as->wide_bytes == 4 ? FLOAT : SHORT;
    return as->bytes == 1 ? BYTE : as->bf16 ? BF16 : HALF;
}

/* Converts a float16 to float32, which is exact for every value. */
static inline float halognn_half(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    uint32_t bits;
    float f;
    /* Infinity or NaN; NaN becomes quiet, as with the processor's instruction. */
    if (magnitude >= 0x7c00) {
        bits = sign | 0x7f800000 | magnitude << 13 | (magnitude > 0x7c00 ? 0x400000 : 0);
    } else if (magnitude >= 0x0400) { /* normal: the exponent's bias grows from 15 to 127 */
        bits = sign | ((magnitude << 13) + ((uint32_t)(127 - 15) << 23));
    } else { /* subnormal or zero: magnitude * 2^-24 is a normal float or zero */
        f = (float)magnitude * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
        bits |= sign;
    }
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Converts a bfloat16 to float32. */
static inline float halognn_widened(uint16_t h) {
    const uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Returns element j of a row. A row of wider elements in a table of narrower ones may begin at any
 * multiple of the narrower element's size. */
static inline float halognn_element(element is, const void *row, int64_t j) {
    float x;
    int16_t i;
    switch (is) {
    case HALF:
        return halognn_half(((const uint16_t *)row)[j]);
    case BYTE:
        return ((const int8_t *)row)[j];
    case SHORT:
        memcpy(&i, (const char *)row + j * (int64_t)sizeof i, sizeof i);
        return i;
    case BF16:
        return halognn_widened(((const uint16_t *)row)[j]);
    default:
        memcpy(&x, (const char *)row + j * (int64_t)sizeof x, sizeof x);
        return x;
    }
}

#endif
