// Bias, ReLU, ELU and dropout, and what follows a sum in one pass. If the row or column of an
// element matters, a thread takes neighbouring elements of one row: a division and a hash for each
// element would take longer than its memory access.
#include "exp.cuh"
#include "reduce.cuh"
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

__global__ void relu_kernel(float *y, int64_t n) {
    const int64_t i = item();
    if (i < n && y[i] < 0) y[i] = 0;
}

// dropping says which elements of which rows are dropped; none if the threshold is 0.
struct dropping {
    uint32_t threshold;
    uint64_t key;
    const int32_t *vertices;
    __device__ uint64_t row(int64_t r) const {
        return threshold > 0 ? row_bits(key, vertices[r]) : 0;
    }
    __device__ bool drops(uint64_t row, int64_t column) const {
        return threshold > 0 && bits(row, static_cast<uint32_t>(column)) < threshold;
    }
};

// y = activation(y + bias + add) * scale, or 0 where dropped; bias [cols] and add may be null.
template <int N>
__global__ void epilogue_kernel(float *y, int64_t rows, int64_t cols, int lanes, const float *bias,
                                const float *add, int activation, float scale, dropping dropped) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    const int64_t at = p.row * cols + p.col;
    pack<float, N> v = load<float, N>(y + at), b{}, a{};
    if (bias) b = load<float, N>(bias + p.col);
    if (add) a = load<float, N>(add + at);
    const uint64_t row = dropped.row(p.row);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float x = v.at[i];
        if (bias) x += b.at[i];
        if (add) x += a.at[i];
        if (activation == HALOGNN_RELU) x = x < 0 ? 0 : x * scale;
        if (activation == HALOGNN_ELU) x = (x > 0 ? x : exact_exp(x) - 1.0f) * scale;
        v.at[i] = dropped.drops(row, p.col + i) ? 0 : x;
    }
    store<float, N>(y + at, v);
}

__global__ void relu_backward_kernel(float *dy, int64_t n, const float *y, float scale) {
    const int64_t i = item();
    if (i < n) dy[i] = y[i] > 0 ? dy[i] * scale : 0;
}

// elu_slope is the gradient through ELU of an element whose output was y.
__device__ inline float elu_slope(float dy, float y, float scale) {
    return dy * (y > 0 ? scale : y + scale);
}

// One warp for each strip of a row.
__global__ void elu_backward_kernel(float *dy, int64_t rows, int64_t cols, const float *y, float scale,
                                    dropping dropped) {
    const place p = my_place(WARP, 1);
    if (p.row >= rows || p.col >= cols) return;
    const int64_t i = p.row * cols + p.col;
    dy[i] = dropped.drops(dropped.row(p.row), p.col) ? 0 : elu_slope(dy[i], y[i], scale);
}

// dy goes back through the activation, in place, and db is its sum over the rows.
__global__ void bias_backward_kernel(float *dy, float *db, int64_t rows, int64_t cols, const float *y,
                                     int activation, float scale, dropping dropped, float *partial,
                                     uint32_t *arrived) {
    const int64_t j = item(), chunk = blockIdx.y, chunks = gridDim.y;
    if (j >= cols) return;
    partial[chunk * cols + j] = sum_in_order(
        chunk, rows,
        [=](int64_t r) {
            const float d = dy[r * cols + j], out = y[r * cols + j];
            if (activation == HALOGNN_RELU) return out > 0 ? d * scale : 0;
            return dropped.drops(dropped.row(r), j) ? 0 : elu_slope(d, out, scale);
        },
        [=](int64_t r, float d) { dy[r * cols + j] = d; });
    if (arrive(arrived + j, chunks)) db[j] = add_in_order(partial + j, cols, chunks);
}

template <int N>
int epilogue_n(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *bias,
               const float *add, int activation, float scale, const dropping &dropped) {
    return LAUNCH(c, epilogue_kernel<N>, grid_of(rows, cols, N), y, rows, cols, lanes(cols, N), bias,
                  add, activation, scale, dropped);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_epilogue(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *bias,
                          const float *add, int activation, uint32_t threshold, float scale,
                          uint64_t key, const int32_t *vertices) {
    if (rows == 0 || cols == 0) return 0;
    const dropping dropped{threshold, key, vertices};
    bool wide = true;
    for (const float *p : {static_cast<const float *>(y), bias, add})
        wide = wide && fits(p, cols, sizeof(float), 4);
    if (wide) return epilogue_n<4>(c, y, rows, cols, bias, add, activation, scale, dropped);
    return epilogue_n<1>(c, y, rows, cols, bias, add, activation, scale, dropped);
}

int halognn_cuda_add_bias(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *b) {
    return halognn_cuda_epilogue(c, y, rows, cols, b, nullptr, 0, 0, 1, 0, nullptr);
}

int halognn_cuda_relu(halognn_cuda *c, float *y, int64_t n) {
    return n ? LAUNCH(c, relu_kernel, blocks(n), y, n) : 0;
}

int halognn_cuda_relu_dropout(halognn_cuda *c, float *y, int64_t rows, int64_t cols,
                              uint32_t threshold, float scale, uint64_t key, const int32_t *vertices) {
    return halognn_cuda_epilogue(c, y, rows, cols, nullptr, nullptr, HALOGNN_RELU, threshold, scale,
                                 key, vertices);
}

int halognn_cuda_relu_backward(halognn_cuda *c, float *dy, int64_t n, const float *y, float scale) {
    return n ? LAUNCH(c, relu_backward_kernel, blocks(n), dy, n, y, scale) : 0;
}

int halognn_cuda_elu(halognn_cuda *c, float *y, int64_t rows, int64_t cols, uint32_t threshold,
                     float scale, uint64_t key, const int32_t *vertices) {
    return halognn_cuda_epilogue(c, y, rows, cols, nullptr, nullptr, HALOGNN_ELU, threshold, scale,
                                 key, vertices);
}

int halognn_cuda_elu_backward(halognn_cuda *c, float *dy, int64_t rows, int64_t cols, const float *y,
                              uint32_t threshold, float scale, uint64_t key, const int32_t *vertices) {
    if (rows == 0 || cols == 0) return 0;
    const dim3 grid = blocks(rows, BLOCK / WARP, static_cast<unsigned>(ceil_div(cols, WARP)));
    return LAUNCH(c, elu_backward_kernel, grid, dy, rows, cols, y, scale,
                  dropping{threshold, key, vertices});
}

int halognn_cuda_bias_backward(halognn_cuda *c, float *dy, float *db, int64_t rows, int64_t cols,
                               const float *y, int activation, uint32_t threshold, float scale,
                               uint64_t key, const int32_t *vertices, float *scratch) {
    if (activation == 0 || rows == 0 || cols == 0)
        return halognn_cuda_column_sum(c, db, rows, cols, dy, scratch);
    return LAUNCH(c, bias_backward_kernel, columns_by_chunk(rows, cols), dy, db, rows, cols, y,
                  activation, scale, dropping{threshold, key, vertices}, scratch, c->arrived);
}

}  // extern "C"
