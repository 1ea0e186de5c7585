// Sums over the 32 lanes of a warp. Every lane gets the same bits, because the tree of additions is
// the same for all lanes.
#pragma once

#include "context.cuh"

namespace halognn {

template <typename T>
__device__ inline T warp_sum(T v) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
    return v;
}

// my_row returns the row of the calling warp, if a grid has one warp for each row. All 32 lanes get
// the same row, so they all return together if there is no such row.
__device__ inline int64_t my_row() {
    return static_cast<int64_t>(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP;
}
__device__ inline int64_t my_lane() { return threadIdx.x % WARP; }
inline dim3 rows_by_warp(int64_t rows) { return blocks(rows, BLOCK / WARP); }

// group returns the number of lanes that share a head, if each reads packs of n columns. It is a
// power of two, and at most a warp.
inline int group(int64_t width, int n) {
    int lanes = 1;
    while (lanes < WARP && lanes * n < width) lanes *= 2;
    return lanes;
}

// group_sum returns the sum over the lanes of a group. All lanes of the warp call it, and each gets
// the sum.
__device__ inline float group_sum(float sum, int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return sum;
}

}  // namespace halognn
