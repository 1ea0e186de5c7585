// A kernel that reads rows in host memory over the bus. So no host thread copies them, and each row
// crosses the bus once.
#include "context.cuh"

namespace halognn {
namespace {

constexpr int FLIGHT = 4;

// BLOCKS x BLOCK threads that wait for FLIGHT packs each have requested 512 KB. The fastest bus
// transfers as much during its latency, so more would not be faster. The rest of the device stays
// free for training at the same time.
constexpr int64_t BLOCKS = 32;

// A row is read by neighbouring threads in packs of N words, so that a warp reads whole lines of
// memory.
template <typename T, int N>
__global__ void fetch(T *dst, int64_t n, int64_t cols, int lanes, const uint64_t *from) {
    const int per_block = blockDim.x / lanes, mine = threadIdx.x / lanes;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * per_block;
    // this thread is left over, because the lanes do not divide the block
    if (mine >= per_block) return;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * per_block + mine; first < n;
         first += FLIGHT * stride) {
        for (int64_t col = static_cast<int64_t>(threadIdx.x % lanes) * N; col < cols;
             col += lanes * N) {
            pack<T, N> v[FLIGHT];
#pragma unroll
            for (int k = 0; k < FLIGHT; k++)
                if (first + k * stride < n)
                    v[k] = load<T, N>(reinterpret_cast<const T *>(from[first + k * stride]) + col);
#pragma unroll
            for (int k = 0; k < FLIGHT; k++)
                if (first + k * stride < n)
                    store<T, N>(dst + (first + k * stride) * cols + col, v[k]);
        }
    }
}

template <typename T, int N>
int fetch_n(halognn_cuda *c, int stream, void *dst, int64_t n, int64_t row_bytes,
            const uint64_t *from) {
    const int64_t cols = row_bytes / static_cast<int64_t>(sizeof(T));
    const int l = lanes(cols, N);
    const int64_t wanted = ceil_div(n, BLOCK / l * FLIGHT);
    const dim3 grid(static_cast<unsigned>(wanted < BLOCKS ? wanted : BLOCKS));
    return LAUNCH_ON(c, stream, (fetch<T, N>), grid, static_cast<T *>(dst), n, cols, l, from);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" int halognn_cuda_fetch_rows(halognn_cuda *c, int stream, void *dst, int64_t n,
                                       int64_t row_bytes, const uint64_t *from, int align) {
    if (n == 0 || row_bytes == 0) return 0;
    switch (align) {
        case 16: return fetch_n<uint32_t, 4>(c, stream, dst, n, row_bytes, from);
        case 8: return fetch_n<uint32_t, 2>(c, stream, dst, n, row_bytes, from);
        case 4: return fetch_n<uint32_t, 1>(c, stream, dst, n, row_bytes, from);
        case 2: return fetch_n<uint16_t, 1>(c, stream, dst, n, row_bytes, from);
        default: return fetch_n<uint8_t, 1>(c, stream, dst, n, row_bytes, from);
    }
}
