// Sums of gradients that wait, so that one launch makes all those of a layer.
#pragma once

#include "reduce.cuh"

namespace halognn {

// later leaves sums to halognn_cuda_settle. What they read must not change until then.
int later(halognn_cuda *c, const sums &s);

// rounded rounds to nearest, ties to even, and clears the low bits that are dropped; NaN stays NaN.
// It selects and does not branch, so that a loop reads the next numbers before it has this one.
__device__ inline uint32_t rounded(float x, int dropped) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t half = ((uint32_t{1} << (dropped - 1)) - 1) + (bits >> dropped & 1);
    return (x != x ? bits | 0x400000 : bits + half) >> dropped << dropped;
}

}  // namespace halognn
