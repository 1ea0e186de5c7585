// Shared by all kernels: the context, the launch of a kernel, and wide reads of rows.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "cublas.cuh"
#include "halognn_cuda.h"

namespace halognn {

// sums describes what a gradient still needs after its matrix products; halognn_cuda_settle
// computes it. b [cols] gets the sums of the columns of dy [rows,cols]. If times is not null, each
// element of dy is first multiplied by the same element of times. If total is true, b [1] gets the
// total of these sums. If b2 is not null, nothing is summed: b and b2 [rows,cols/2] get the left
// and the right half of dy, in float32.
struct sums {
    float *b, *b2;
    halognn_cuda_matrix dy, times;
    int64_t rows, cols;
    float *chunks; // [chunks,cols] sums of chunks; one row more if total is true
    bool total;
};

// pending has the sums that the next launch of halognn_cuda_settle computes.
constexpr int PENDING = 4;
struct pending {
    sums of[PENDING];
    int64_t items[PENDING];
    uint32_t counters[PENDING]; // index of the first counter of each of the sums
    uint32_t counted;           // number of counters of all sums
    int count;
};

}  // namespace halognn

struct halognn_cuda {
    int device;
    cudaStream_t streams[HALOGNN_STREAMS];
    cudaEvent_t reached[HALOGNN_STREAMS]; // events that sync waits for, one for each stream
    cublasHandle_t blas;
    // memory of cuBLAS; it is fixed so that results do not depend on earlier calls
    void *workspace;
    uint32_t *arrived;  // [COUNTERS] counters of finished threads, which are zero between kernels
    halognn::pending pending;       // the sums that halognn_cuda_settle will compute
    int64_t large; // least number of blocks whose threads take several segments (runs.cuh)
};

namespace halognn {

constexpr int BLOCK = 256; // a power of two
constexpr int WARP = 32;
constexpr int64_t CHUNK = HALOGNN_CHUNK_ROWS;
constexpr int64_t COUNTERS = int64_t{1} << 16;
constexpr int NCCL_CODE = HALOGNN_NCCL_PENDING - 7;  // codes from here on are NCCL's

// nccl_error returns the text of an error code of NCCL.
const char *nccl_error(int code);

// SHARED declares an array that the threads of a block share.
#ifdef HALOGNN_EMULATED
#define SHARED(type, name, size)                    \
    static emulated::shared<type size> name##_here; \
    auto &name = name##_here.array
#else
#define SHARED(type, name, size) __shared__ type name size
#endif

// LAUNCH starts a kernel whose threads are independent of each other. LAUNCH_TOGETHER starts a
// kernel whose threads wait for each other or exchange values. With nvcc both do the same. In the
// emulation (tests/emulate), LAUNCH runs the threads in a loop.
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

// The function on returns a stream of c. It also makes the device of c current on the calling
// thread, which may not have used it yet.
inline cudaStream_t on(halognn_cuda *c, int stream = HALOGNN_COMPUTE) {
    cudaSetDevice(c->device); // cannot fail, because the device was valid when c was opened
    return c->streams[stream];
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t chunks(int64_t rows) { return ceil_div(rows, CHUNK); }

// blocks returns the grid of a kernel that has one thread for each item.
inline dim3 blocks(int64_t items, int64_t per_block = BLOCK, unsigned y = 1) {
    return dim3(static_cast<unsigned>(ceil_div(items, per_block)), y, 1);
}

// item returns the number of the calling thread in a grid that blocks() has returned.
__device__ inline int64_t item() {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// pack is N neighbouring elements. If the address of the pack allows it, one instruction reads or
// writes up to 16 bytes of the pack.
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

// store writes a pack. It uses one explicit instruction, because nvcc compiles an assignment to N
// stores. In each of these a warp would write only every N-th word of a line.
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

// bf16 is a bfloat16, which is the upper half of a float32.
struct bf16 {
    uint16_t bits;
};
__device__ inline float to_float(bf16 v) {
    const uint32_t bits = static_cast<uint32_t>(v.bits) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// fits reports whether rows at address p can be read in packs of n elements. The rows have cols
// elements of the given size in bytes.
inline bool fits(const void *p, int64_t cols, int size, int n) {
    const int bytes = size * n < 16 ? size * n : 16;
    return cols % n == 0 && reinterpret_cast<uintptr_t>(p) % bytes == 0;
}
inline bool fits(const halognn_cuda_matrix &m, int64_t cols, int n) {
    return m.stride % n == 0 && fits(m.of, cols, m.bf16 ? sizeof(bf16) : sizeof(float), n);
}

// place_in returns the index of element (row, col) in the array of a matrix.
__device__ inline int64_t place_in(const halognn_cuda_matrix &m, int64_t cols, int64_t row,
                                   int64_t col) {
    return row * (m.stride ? m.stride : cols) + col;
}

// lanes returns the number of threads that share a row of cols elements, if each reads n elements
// at a time.
inline int lanes(int64_t cols, int n) {
    const int64_t packs = ceil_div(cols, n);
    return static_cast<int>(packs < WARP ? packs : WARP);
}

}  // namespace halognn
