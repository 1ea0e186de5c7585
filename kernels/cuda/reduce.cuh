// Sums over rows, in chunks of CHUNK rows that are added in chunk order, for any grid. One launch
// does both: a thread sums its column over its chunk, and the one that is the last to finish in its
// column adds the chunks. Which thread that is differs from run to run; the order of the sum does
// not.
#pragma once

#include "context.cuh"

namespace halognn {

// arrive counts the calling thread at a counter, which is 0 before and after. It
// returns true for the last of `all` threads alone, which may then read by __ldcg what the others
// wrote before they called: the caches of its multiprocessor may be behind.
__device__ inline bool arrive(uint32_t *counter, int64_t all) {
    __threadfence();
    if (atomicAdd(counter, 1u) + 1 < static_cast<uint32_t>(all)) return false;
    *counter = 0;
    __threadfence();
    return true;
}

// add_in_order returns partial[0] + partial[stride] + ..., count of them, zero for none. Other
// threads of the same kernel may have written them.
__device__ inline float add_in_order(const float *partial, int64_t stride, int64_t count) {
    float sum = 0;
    for (int64_t k = 0; k < count; k++) sum += __ldcg(partial + k * stride);
    return sum;
}

// zero_both clears the sums over no rows of two parameters.
inline int zero_both(halognn_cuda *c, float *a, float *b, int64_t n) {
    if (int e = halognn_cuda_zero(c, HALOGNN_COMPUTE, a, n * 4)) return e;
    return halognn_cuda_zero(c, HALOGNN_COMPUTE, b, n * 4);
}

// columns_by_chunk returns the grid of one thread a column and chunk: my_column() and blockIdx.x;
// and for more columns than can be counted an empty one, which the launch refuses. Chunks are in x:
// a grid has 65,535 blocks in y, and rows may be more than those of so many chunks.
inline dim3 columns_by_chunk(int64_t rows, int64_t cols) {
    if (cols >= COUNTERS) return dim3(0);
    return dim3(static_cast<unsigned>(chunks(rows)), static_cast<unsigned>(ceil_div(cols, BLOCK)));
}
__device__ inline int64_t my_column() {
    return static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}

// two are two numbers that are summed together.
struct two {
    float a, b;
    __device__ two &operator+=(const two &v) {
        a += v.a;
        b += v.b;
        return *this;
    }
};

// sum_in_order returns the sum of value(r), one number or two, for the rows of a chunk, in order,
// and hands each to keep(r, value). The next UNROLL values are on their way while those before are
// added and kept.
template <typename Value, typename Keep>
__device__ inline auto sum_in_order(int64_t chunk, int64_t rows, const Value &value,
                                    const Keep &keep) {
    using T = decltype(value(int64_t{}));
    constexpr int UNROLL = 64 / sizeof(T);
    const int64_t end = (chunk + 1) * CHUNK < rows ? (chunk + 1) * CHUNK : rows;
    T sum{}, v[UNROLL] = {}, next[UNROLL] = {};
    int64_t r = chunk * CHUNK;
    bool full = r + UNROLL <= end;
    if (full)
#pragma unroll
        for (int k = 0; k < UNROLL; k++) v[k] = value(r + k);
    while (full) {
        const bool more = r + 2 * UNROLL <= end;
        if (more)
#pragma unroll
            for (int k = 0; k < UNROLL; k++) next[k] = value(r + UNROLL + k);
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            sum += v[k];
            keep(r + k, v[k]);
            v[k] = next[k];
        }
        r += UNROLL;
        full = more;
    }
    for (; r < end; r++) {
        const T v = value(r);
        sum += v;
        keep(r, v);
    }
    return sum;
}

template <typename Value>
__device__ inline auto sum_in_order(int64_t chunk, int64_t rows, const Value &value) {
    return sum_in_order(chunk, rows, value, [](int64_t, auto) {});
}

}  // namespace halognn
