// Shared by all kernels: the context, the launch of a kernel, and wide reads of rows.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "cublas.cuh"
#include "halognn_cuda.h"

namespace halognn {

// sums are what a gradient still needs after its products; halognn_cuda_settle makes them. b [cols]
// gets the sums of the columns of dy [rows,cols], each element multiplied by that of times, unless
// times is null. If total, b [1] gets the sum of these sums. If b2 is not null, nothing is summed:
// b and b2 [rows,cols/2] get the halves of dy, of float32.
struct sums {
    float *b, *b2;
    halognn_cuda_matrix dy, times;
    int64_t rows, cols;
    float *chunks; // [chunks,cols], and one row more for a total
    bool total;
};

// pending are the sums that one launch makes.
constexpr int PENDING = 4;
struct pending {
    sums of[PENDING];
    int64_t items[PENDING];
    uint32_t counters[PENDING]; // the first counter of each
    uint32_t counted;           // number of all counters
    int count;
};

}  // namespace halognn

struct halognn_cuda {
    int device;
    cudaStream_t streams[HALOGNN_STREAMS];
    cudaEvent_t reached[HALOGNN_STREAMS]; // what sync waits for
    cublasHandle_t blas;
    void *workspace;    // memory of cuBLAS: if fixed, results do not depend on earlier calls
    uint32_t *arrived;  // [COUNTERS], zero between kernels, which count their threads in it
    halognn::pending pending;       // what halognn_cuda_settle will do
};

namespace halognn {

constexpr int BLOCK = 256;
constexpr int WARP = 32;
constexpr int64_t CHUNK = HALOGNN_CHUNK_ROWS;
constexpr int64_t COUNTERS = int64_t{1} << 16;
constexpr int NCCL_CODE = HALOGNN_NCCL_PENDING - 7;  // and from here on NCCL's

// nccl_error returns the text of a code of NCCL.
const char *nccl_error(int code);

// LAUNCH starts a kernel whose threads are independent of each other; LAUNCH_TOGETHER one whose
// threads wait for each other or exchange values. For nvcc they are the same. In the emulation
// (tests/emulate) the first kind is a loop.
#ifdef HALOGNN_EMULATED
#define LAUNCH_EMULATED(c, stream, together, kernel, grid, ...)                                    \
    (emulated::count(__FILE__, #kernel),                                                           \
     emulated::launch(halognn::on(c, stream), together, grid, halognn::BLOCK, kernel, __VA_ARGS__))
#define LAUNCH_ON(c, stream, kernel, grid, ...) \
    LAUNCH_EMULATED(c, stream, false, kernel, grid, __VA_ARGS__)
#define LAUNCH_TOGETHER_ON(c, stream, kernel, grid, ...) \
    LAUNCH_EMULATED(c, stream, true, kernel, grid, __VA_ARGS__)
#else
#define LAUNCH_ON(c, stream, kernel, grid, ...)                                \
    (kernel<<<grid, halognn::BLOCK, 0, halognn::on(c, stream)>>>(__VA_ARGS__), \
     static_cast<int>(cudaGetLastError()))
#define LAUNCH_TOGETHER_ON LAUNCH_ON
#endif
#define LAUNCH_TOGETHER(c, kernel, grid, ...) \
    LAUNCH_TOGETHER_ON(c, HALOGNN_COMPUTE, kernel, grid, __VA_ARGS__)
#define LAUNCH(c, kernel, grid, ...) LAUNCH_ON(c, HALOGNN_COMPUTE, kernel, grid, __VA_ARGS__)

// on returns a stream of c, and makes its device current on the calling thread, which may be new.
inline cudaStream_t on(halognn_cuda *c, int stream = HALOGNN_COMPUTE) {
    cudaSetDevice(c->device); // cannot fail: it was valid when c was opened
    return c->streams[stream];
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t chunks(int64_t rows) { return ceil_div(rows, CHUNK); }

// blocks returns the grid of one thread an item.
inline dim3 blocks(int64_t items, int64_t per_block = BLOCK, unsigned y = 1) {
    return dim3(static_cast<unsigned>(ceil_div(items, per_block)), y, 1);
}

// item is the number of the calling thread in a grid of blocks().
__device__ inline int64_t item() {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// pack is N neighbouring elements, read or written by one instruction where the address allows: 16
// bytes at most.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
    T at[N];
};

template <typename T, int N>
__device__ inline pack<T, N> load(const T *p) {
#ifdef HALOGNN_EMULATED
    emulated::aligned(p, alignof(pack<T, N>));
    emulated::readable(p, sizeof(pack<T, N>));
#endif
    return *reinterpret_cast<const pack<T, N> *>(p);
}

#ifndef HALOGNN_EMULATED
__device__ inline uint32_t bits_of(uint32_t v) { return v; }
__device__ inline uint32_t bits_of(float v) { return __float_as_uint(v); }
#endif

// store is one explicit instruction: nvcc compiles an assignment to N stores, in each of which a
// warp writes every N-th word of a line.
template <typename T, int N>
__device__ inline void store(T *p, const pack<T, N> &v) {
#ifdef HALOGNN_EMULATED
    emulated::aligned(p, alignof(pack<T, N>));
    *reinterpret_cast<pack<T, N> *>(p) = v;
#else
    static_assert(N == 1 || sizeof(T) == 4, "packs of words");
    const size_t to = __cvta_generic_to_global(p);
    if constexpr (N == 1) *p = v.at[0];
    if constexpr (N == 2)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(bits_of(v.at[0])),
                     "r"(bits_of(v.at[1]))
                     : "memory");
    if constexpr (N % 4 == 0)
#pragma unroll
        for (int i = 0; i < N; i += 4)
            asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + 4 * i),
                         "r"(bits_of(v.at[i])), "r"(bits_of(v.at[i + 1])),
                         "r"(bits_of(v.at[i + 2])), "r"(bits_of(v.at[i + 3]))
                         : "memory");
#endif
}

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(int8_t v) { return static_cast<float>(v); }

// bf16 is a bfloat16: the upper half of a float32.
struct bf16 {
    uint16_t bits;
};
__device__ inline float to_float(bf16 v) {
    const uint32_t bits = static_cast<uint32_t>(v.bits) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// fits reports whether rows of cols elements of the given size at p can be read in packs of n.
inline bool fits(const void *p, int64_t cols, int size, int n) {
    const int bytes = size * n < 16 ? size * n : 16;
    return cols % n == 0 && reinterpret_cast<uintptr_t>(p) % bytes == 0;
}
inline bool fits(const halognn_cuda_matrix &m, int64_t cols, int n) {
    return m.stride % n == 0 && fits(m.of, cols, m.bf16 ? sizeof(bf16) : sizeof(float), n);
}

// place_in returns where element (row, col) of a matrix lies.
__device__ inline int64_t place_in(const halognn_cuda_matrix &m, int64_t cols, int64_t row,
                                   int64_t col) {
    return row * (m.stride ? m.stride : cols) + col;
}

// lanes returns the number of threads that share a row of cols elements, each taking n at a time.
inline int lanes(int64_t cols, int n) {
    const int64_t packs = ceil_div(cols, n);
    return static_cast<int>(packs < WARP ? packs : WARP);
}

}  // namespace halognn
