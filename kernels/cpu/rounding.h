/* Rounds a float32 so that some of its low bits can be dropped: to nearest, ties to even. NaN stays
 * NaN. Without 16 bits it is a bfloat16, without 13 bits a TF32. */
#ifndef HALOGNN_ROUNDING_H
#define HALOGNN_ROUNDING_H

#include <stdint.h>
#include <string.h>

#include "half.h"

enum { HALOGNN_BF16_DROPPED = 16 };

/* Returns the rounded bits. The low bits are not cleared yet. */
static inline uint32_t halognn_rounded_bits(float x, int dropped) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t half = 1u << (dropped - 1);
    return x != x ? bits | 0x400000 : bits + (half - 1) + (bits >> dropped & 1);
}

static inline uint16_t halognn_bf16(float x) {
    return (uint16_t)(halognn_rounded_bits(x, HALOGNN_BF16_DROPPED) >> HALOGNN_BF16_DROPPED);
}

static inline float halognn_rounded(float x, int dropped) {
    const uint32_t bits = halognn_rounded_bits(x, dropped) >> dropped << dropped;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Element i of a matrix of float32 (WIDE) or of bfloat16 (BF16). */
#define WIDE_ELEMENT(m, i) (((const float *)(m).at)[i])
#define BF16_ELEMENT(m, i) halognn_widened(((const uint16_t *)(m).at)[i])

/* Returns element i of a matrix of either type. */
static inline float halognn_get(halognn_matrix x, int64_t i) {
    return x.bf16 ? halognn_widened(((const uint16_t *)x.at)[i]) : ((const float *)x.at)[i];
}

/* Sets element i of a matrix of either type. */
static inline void halognn_put(halognn_result y, int64_t i, float x) {
    if (y.bf16)
        ((uint16_t *)y.at)[i] = halognn_bf16(x);
    else
        ((float *)y.at)[i] = x;
}

#endif
