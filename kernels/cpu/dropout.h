/* The dropout bits as compute.DropoutRow.Bits defines them: one 64-bit mix for each row, and a
 * 32-bit mix for each element. */
#ifndef HALOGNN_DROPOUT_H
#define HALOGNN_DROPOUT_H

#include <stdint.h>

static inline uint64_t dropout_row(uint64_t key, int32_t vertex) {
    uint64_t x = key + 0x9e3779b97f4a7c15u * ((uint64_t)(uint32_t)vertex + 1);
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint32_t dropout_bits(uint32_t lo, uint32_t hi, uint32_t column) {
    uint32_t x = lo + column * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15 ^ hi;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

#endif
