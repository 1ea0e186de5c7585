/* float32 to bfloat16: its upper half, rounded to nearest, ties to even; NaN stays NaN. */
#ifndef HALOGNN_BF16_H
#define HALOGNN_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t halognn_bf16_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
}

static inline uint16_t halognn_bf16(float x) { return (uint16_t)(halognn_bf16_bits(x) >> 16); }

static inline float halognn_bf16_float(float x) {
    const uint32_t bits = halognn_bf16_bits(x) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
