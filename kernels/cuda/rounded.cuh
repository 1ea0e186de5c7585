#pragma once

#include "context.cuh"

namespace halognn {

// rounded rounds x to the nearest number whose `dropped` low bits are zero, and to the even one if
// two are equally near. A NaN stays a NaN. The code has no branch, so that a loop can load the
// next numbers before this one is rounded.
__device__ inline uint32_t rounded(float x, int dropped) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t half = ((uint32_t{1} << (dropped - 1)) - 1) + (bits >> dropped & 1);
    return (x != x ? bits | 0x400000 : bits + half) >> dropped << dropped;
}

}  // namespace halognn
