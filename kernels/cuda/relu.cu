// Bias, ReLU, ELU and dropout. If the row or column of an element matters, a thread takes
// neighbouring elements of one row: a division and a hash for each element would take longer than
// its memory access.
#include "exp.cuh"
#include "rows.cuh"

namespace halognn {
namespace {

__device__ inline uint64_t mix64(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// row_bits and bits: compute.DropoutKey.Row(vertex).Bits(column).
__device__ inline uint64_t row_bits(uint64_t key, int32_t vertex) {
    return mix64(key + 0x9e3779b97f4a7c15ull * (static_cast<uint64_t>(static_cast<uint32_t>(vertex)) + 1));
}
__device__ inline uint32_t bits(uint64_t row, uint32_t column) {
    uint32_t x = static_cast<uint32_t>(row) + column * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15 ^ static_cast<uint32_t>(row >> 32);
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

template <int N>
__global__ void bias_kernel(float *y, int64_t rows, int64_t cols, int lanes, const float *b) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    float *to = y + p.row * cols + p.col;
    pack<float, N> v = load<float, N>(to);
    const pack<float, N> bias = load<float, N>(b + p.col);
#pragma unroll
    for (int i = 0; i < N; i++) v.at[i] += bias.at[i];
    store<float, N>(to, v);
}

__global__ void relu_kernel(float *y, int64_t n) {
    const int64_t i = item();
    if (i < n && y[i] < 0) y[i] = 0;
}

template <int N>
__global__ void dropout_kernel(float *y, int64_t rows, int64_t cols, int lanes, uint32_t threshold, float scale, uint64_t key,
                               const int32_t *vertices) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    float *to = y + p.row * cols + p.col;
    pack<float, N> v = load<float, N>(to);
    const uint64_t row = row_bits(key, vertices[p.row]);
#pragma unroll
    for (int i = 0; i < N; i++)
        v.at[i] = v.at[i] < 0 || bits(row, static_cast<uint32_t>(p.col + i)) < threshold ? 0 : v.at[i] * scale;
    store<float, N>(to, v);
}

__global__ void relu_backward_kernel(float *dy, int64_t n, const float *y, float scale) {
    const int64_t i = item();
    if (i < n) dy[i] = y[i] > 0 ? dy[i] * scale : 0;
}

// One warp for each strip of a row.
__global__ void elu_kernel(float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key, const int32_t *vertices) {
    const place p = my_place(WARP, 1);
    if (p.row >= rows || p.col >= cols) return;
    float *to = y + p.row * cols + p.col;
    const float v = (*to > 0 ? *to : exact_exp(*to) - 1.0f) * scale;
    *to = threshold > 0 && bits(row_bits(key, vertices[p.row]), static_cast<uint32_t>(p.col)) < threshold ? 0 : v;
}

__global__ void elu_backward_kernel(float *dy, int64_t rows, int64_t cols, const float *y, uint32_t threshold, float scale, uint64_t key,
                                    const int32_t *vertices) {
    const place p = my_place(WARP, 1);
    if (p.row >= rows || p.col >= cols) return;
    const int64_t i = p.row * cols + p.col;
    const float v = dy[i] * (y[i] > 0 ? scale : y[i] + scale);
    dy[i] = threshold > 0 && bits(row_bits(key, vertices[p.row]), static_cast<uint32_t>(p.col)) < threshold ? 0 : v;
}

// rows_of_warps returns the grid of my_place(WARP, 1).
inline dim3 rows_of_warps(int64_t rows, int64_t cols) {
    return blocks(rows, BLOCK / WARP, static_cast<unsigned>(ceil_div(cols, WARP)));
}

template <int N>
int bias_n(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *b) {
    return LAUNCH(c, bias_kernel<N>, grid_of(rows, cols, N), y, rows, cols, lanes(cols, N), b);
}

template <int N>
int dropout_n(halognn_cuda *c, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key, const int32_t *vertices) {
    return LAUNCH(c, dropout_kernel<N>, grid_of(rows, cols, N), y, rows, cols, lanes(cols, N), threshold, scale, key, vertices);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_add_bias(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *b) {
    if (rows == 0 || cols == 0) return 0;
    if (fits(y, cols, sizeof(float), 4) && fits(b, cols, sizeof(float), 4)) return bias_n<4>(c, y, rows, cols, b);
    return bias_n<1>(c, y, rows, cols, b);
}

int halognn_cuda_relu(halognn_cuda *c, float *y, int64_t n) { return n ? LAUNCH(c, relu_kernel, blocks(n), y, n) : 0; }

int halognn_cuda_relu_dropout(halognn_cuda *c, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,
                              const int32_t *vertices) {
    if (rows == 0 || cols == 0) return 0;
    if (fits(y, cols, sizeof(float), 4)) return dropout_n<4>(c, y, rows, cols, threshold, scale, key, vertices);
    return dropout_n<1>(c, y, rows, cols, threshold, scale, key, vertices);
}

int halognn_cuda_relu_backward(halognn_cuda *c, float *dy, int64_t n, const float *y, float scale) {
    return n ? LAUNCH(c, relu_backward_kernel, blocks(n), dy, n, y, scale) : 0;
}

int halognn_cuda_elu(halognn_cuda *c, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,
                     const int32_t *vertices) {
    if (rows == 0 || cols == 0) return 0;
    return LAUNCH(c, elu_kernel, rows_of_warps(rows, cols), y, rows, cols, threshold, scale, key, vertices);
}

int halognn_cuda_elu_backward(halognn_cuda *c, float *dy, int64_t rows, int64_t cols, const float *y, uint32_t threshold, float scale,
                              uint64_t key, const int32_t *vertices) {
    if (rows == 0 || cols == 0) return 0;
    return LAUNCH(c, elu_backward_kernel, rows_of_warps(rows, cols), dy, rows, cols, y, threshold, scale, key, vertices);
}

}  // extern "C"
