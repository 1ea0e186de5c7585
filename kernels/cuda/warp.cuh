// Sums over the 32 lanes of a warp. Every lane gets the sum, and all get the same bits: the tree is
// the same for all of them.
#pragma once

#include "context.cuh"

namespace halognn {

template <typename T>
__device__ inline T warp_sum(T v) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
    return v;
}

// One warp for each row: my_row is the same for its 32 lanes, so all of them leave together past
// the last row.
__device__ inline int64_t my_row() {
    return static_cast<int64_t>(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP;
}
__device__ inline int64_t my_lane() { return threadIdx.x % WARP; }
inline dim3 rows_by_warp(int64_t rows) { return blocks(rows, BLOCK / WARP); }

// group returns the number of lanes that share a head, each taking packs of n columns: a power of
// two, at most a warp.
inline int group(int64_t width, int n) {
    int lanes = 1;
    while (lanes < WARP && lanes * n < width) lanes *= 2;
    return lanes;
}

// group_sum adds what the lanes of a group have. All lanes of the warp call it; each gets the sum.
__device__ inline float group_sum(float sum, int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return sum;
}

}  // namespace halognn
