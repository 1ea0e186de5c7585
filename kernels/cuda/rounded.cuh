#pragma once

#include "context.cuh"

namespace halognn {

// rounded rounds to nearest, ties to even, and clears the low bits that are dropped; NaN stays NaN.
// It selects and does not branch, so that a loop reads the next numbers before it has this one.
__device__ inline uint32_t rounded(float x, int dropped) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t half = ((uint32_t{1} << (dropped - 1)) - 1) + (bits >> dropped & 1);
    return (x != x ? bits | 0x400000 : bits + half) >> dropped << dropped;
}

}  // namespace halognn
