// Sums over rows, in chunks of CHUNK rows that are added in chunk order, for any grid.
#pragma once

#include "context.cuh"

namespace halognn {

// add_partials sets sum[i] = partial[0,i] + partial[1,i] + ..., i < n; partial [count,n]. Zero for
// no partials.
int add_partials(halognn_cuda *c, float *sum, int64_t n, const float *partial, int64_t count);

// add_parameter_sums adds the chunks of a norm's partial [count,2,cols] into dgamma and dbeta [cols].
int add_parameter_sums(halognn_cuda *c, float *dgamma, float *dbeta, int64_t cols, const float *partial,
                       int64_t count);

// sum_in_order returns the sum of value(r) for the rows of a chunk, in order. UNROLL values are
// read before the first is added.
template <typename Value>
__device__ inline float sum_in_order(int64_t chunk, int64_t rows, const Value &value) {
    constexpr int UNROLL = 8;
    const int64_t end = (chunk + 1) * CHUNK < rows ? (chunk + 1) * CHUNK : rows;
    float sum = 0;
    int64_t r = chunk * CHUNK;
    for (; r + UNROLL <= end; r += UNROLL) {
        float v[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) v[k] = value(r + k);
#pragma unroll
        for (int k = 0; k < UNROLL; k++) sum += v[k];
    }
    for (; r < end; r++) sum += value(r);
    return sum;
}

}  // namespace halognn
