// Sums over rows. Each chunk of CHUNK rows is summed, and the chunks are added in their order,
// whatever the grid. One launch does both: a thread sums its column over its chunk, and the last
// thread to finish in a column adds the chunks. Which thread this is differs from run to run, but
// the order of additions does not.
#pragma once

#include "context.cuh"

namespace halognn {

// arrive adds 1 to a counter for the calling thread. The last of `all` threads that call it sets
// the counter back to 0, and only for this thread arrive returns true. This thread may then read
// what the others wrote before their calls. It must read with __ldcg, because the cache of its
// multiprocessor may have older values.
__device__ inline bool arrive(uint32_t *counter, int64_t all) {
    __threadfence();
    if (atomicAdd(counter, 1u) + 1 < static_cast<uint32_t>(all)) return false;
    *counter = 0;
    __threadfence();
    return true;
}

// add_in_order returns the sum of `count` numbers: partial[0] + partial[stride] and so on. If there
// are none, it is zero. Other threads of the same kernel may have written the numbers. A single
// thread adds them all, and loading a number takes longer than adding it. So it loads FLIGHT
// numbers at a time. There are fewer than 2^31 numbers.
__device__ inline float add_in_order(const float *partial, int64_t stride, int64_t count) {
    constexpr int FLIGHT = 16;
    const int n = static_cast<int>(count), step = static_cast<int>(stride);
    float sum = 0;
    for (int k = 0; k < n; k += FLIGHT) {
        float v[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; i++) // if there are fewer numbers, loads the last one again
            v[i] = __ldcg(partial + (k + i < n ? k + i : n - 1) * step);
#pragma unroll
        for (int i = 0; i < FLIGHT; i++)
            if (k + i < n) sum += v[i];
    }
    return sum;
}

// zero_both sets two arrays of sums to zero, for matrices without rows.
inline int zero_both(halognn_cuda *c, float *a, float *b, int64_t n) {
    if (int e = halognn_cuda_zero(c, HALOGNN_COMPUTE, a, n * 4)) return e;
    return halognn_cuda_zero(c, HALOGNN_COMPUTE, b, n * 4);
}

// BY_CHUNK marks kernels that have a thread for each column and chunk. It limits their registers so
// that three blocks fit on a multiprocessor. 100 multiprocessors can then work on all chunks of
// 150,000 rows at the same time.
#define BY_CHUNK __launch_bounds__(halognn::BLOCK, 3)

// columns_by_chunk returns the grid of a kernel with a thread for each column and chunk. In the
// kernel these are my_column() and blockIdx.x. If there are more columns than counters, it returns
// an empty grid, which the launch refuses. Chunks are in dimension x, because a grid has at most
// 65,535 blocks in y, and there may be more chunks than this.
inline dim3 columns_by_chunk(int64_t rows, int64_t cols) {
    if (cols >= COUNTERS) return dim3(0);
    return dim3(static_cast<unsigned>(chunks(rows)), static_cast<unsigned>(ceil_div(cols, BLOCK)));
}
__device__ inline int64_t my_column() {
    return static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
}

// two has two numbers that are summed at the same time.
struct two {
    float a, b;
    __device__ two &operator+=(const two &v) {
        a += v.a;
        b += v.b;
        return *this;
    }
};

// in_chunk says where the calling thread's column of a chunk begins in a matrix, and how many rows
// the chunk has. There are fewer than COUNTERS columns, so indices within a chunk fit in 32 bits.
struct in_chunk {
    int64_t first; // number of the first row
    int rows, cols;
    int64_t at; // index of the column's element in the first row
    __device__ in_chunk(int64_t chunk, int64_t all, int64_t cols, int64_t j)
        : first(chunk * CHUNK), rows(static_cast<int>(all - first < CHUNK ? all - first : CHUNK)),
          cols(static_cast<int>(cols)), at(first * cols + j) {}
};

// sum_in_order returns the sum of use(r, read(r)) over the rows r of a chunk, in order. The summand
// is one number or two. READS is how many numbers one call of read(r) loads. The loads for several
// rows are issued before the first result is used.
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
    constexpr int REST = 8; // number of rows that are loaded at a time near the end of a chunk
    for (; r < rows; r += REST) {
        V v[REST];
#pragma unroll
        for (int k = 0; k < REST; k++) // if there are fewer rows, reads the last one again
            v[k] = read(r + k < rows ? r + k : rows - 1);
#pragma unroll
        for (int k = 0; k < REST; k++)
            if (r + k < rows) sum += use(r + k, v[k]);
    }
    return sum;
}

// itself returns the number that was read. It is the function `use` of sum_in_order for sums of the
// numbers themselves.
__device__ inline float itself(int, float v) { return v; }

}  // namespace halognn
