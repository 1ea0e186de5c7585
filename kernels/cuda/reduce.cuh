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
// threads of the same kernel may have written them. One thread adds them all, so it reads FLIGHT at
// a time: each would take longer to come than to be added. All sums of chunks are fewer than 2^31.
__device__ inline float add_in_order(const float *partial, int64_t stride, int64_t count) {
    constexpr int FLIGHT = 16;
    const int n = static_cast<int>(count), step = static_cast<int>(stride);
    float sum = 0;
    for (int k = 0; k < n; k += FLIGHT) {
        float v[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; i++) // past the end, read the last one again
            v[i] = __ldcg(partial + (k + i < n ? k + i : n - 1) * step);
#pragma unroll
        for (int i = 0; i < FLIGHT; i++)
            if (k + i < n) sum += v[i];
    }
    return sum;
}

// zero_both clears the sums over no rows of two parameters.
inline int zero_both(halognn_cuda *c, float *a, float *b, int64_t n) {
    if (int e = halognn_cuda_zero(c, HALOGNN_COMPUTE, a, n * 4)) return e;
    return halognn_cuda_zero(c, HALOGNN_COMPUTE, b, n * 4);
}

// Kernels of a thread a column and chunk are BY_CHUNK: they take so few registers that three blocks
// share a multiprocessor, and 100 of these have all chunks of 150,000 rows under way.
#define BY_CHUNK __launch_bounds__(halognn::BLOCK, 3)

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

// in_chunk is where the calling thread's column of a chunk lies in a matrix, and how many rows the
// chunk has. Within a chunk numbers of elements fit in 32 bits, as columns are fewer than COUNTERS.
struct in_chunk {
    int64_t first; // row
    int rows, cols;
    int64_t at; // element of the first row
    __device__ in_chunk(int64_t chunk, int64_t all, int64_t cols, int64_t j)
        : first(chunk * CHUNK), rows(static_cast<int>(all - first < CHUNK ? all - first : CHUNK)),
          cols(static_cast<int>(cols)), at(first * cols + j) {}
};

// sum_in_order returns the sum over the rows of a chunk, in order, of use(r, read(r)), one number
// or two. What is read of FLIGHT rows is under way before the first is used: READS numbers a row.
template <int READS, typename Read, typename Use>
__device__ inline auto sum_in_order(int rows, const Read &read, const Use &use) {
    using V = decltype(read(0));
    constexpr int FLIGHT = READS == 1 ? 32 : READS == 2 ? 12 : 8;
    decltype(use(0, V{})) sum{};
    int r = 0;
    for (; r + FLIGHT <= rows; r += FLIGHT) {
        V v[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) v[k] = read(r + k);
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) sum += use(r + k, v[k]);
    }
    constexpr int REST = 8; // of a chunk of fewer rows
    for (; r < rows; r += REST) {
        V v[REST];
#pragma unroll
        for (int k = 0; k < REST; k++) // past the end, read the last row again
            v[k] = read(r + k < rows ? r + k : rows - 1);
#pragma unroll
        for (int k = 0; k < REST; k++)
            if (r + k < rows) sum += use(r + k, v[k]);
    }
    return sum;
}

// itself is a use: the number that was read.
__device__ inline float itself(int, float v) { return v; }

}  // namespace halognn
