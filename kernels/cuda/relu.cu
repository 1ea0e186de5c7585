// What follows a sum, in one pass: bias, a second sum, an addend, ReLU or ELU, dropout. And its
// gradient, with that of the bias. A thread takes neighbouring elements of one row: a division and
// a hash for each element would take longer than its memory access.
#include "rows.cuh"
#include "then.cuh"

namespace halognn {
namespace {

// y = then(y + bias + second); bias [cols], second and then.add [rows,cols] may be null.
template <int N>
__global__ void epilogue_kernel(float *y, int64_t rows, int64_t cols, int lanes, const float *bias,
                                const float *second, halognn_cuda_then then) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    const int64_t at = p.row * cols + p.col;
    pack<float, N> v = load<float, N>(y + at), b{}, s{}, a{};
    if (bias) b = load<float, N>(bias + p.col);
    if (second) s = load<float, N>(second + at);
    if (then.add) a = load<float, N>(then.add + at);
    const uint64_t row = drawn(then, p.row);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float x = v.at[i]; // what is absent is not added as 0, which would change -0
        if (bias) x += b.at[i];
        if (second) x += s.at[i];
        if (then.add) x += a.at[i];
        v.at[i] = follow(then, x, row, p.col + i);
    }
    store<float, N>(y + at, v);
}

// dy is taken back through what followed the sum, in place.
template <int N>
__global__ void backward_kernel(float *dy, int64_t rows, int64_t cols, int lanes, const float *y,
                                halognn_cuda_then then) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    const int64_t at = p.row * cols + p.col;
    pack<float, N> d = load<float, N>(dy + at);
    const pack<float, N> out = load<float, N>(y + at);
    const uint64_t row = drawn_back(then, p.row);
#pragma unroll
    for (int i = 0; i < N; i++) d.at[i] = follow_back(then, d.at[i], out.at[i], row, p.col + i);
    store<float, N>(dy + at, d);
}

// The same, and db is the sum of the result over the rows. One thread a column and chunk.
__global__ void bias_backward_kernel(float *dy, float *db, int64_t rows, int64_t cols,
                                     const float *y, halognn_cuda_then then, float *partial,
                                     uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    if (j >= cols) return;
    partial[chunk * cols + j] = sum_back(dy, y, then, chunk, rows, cols, j,
                                         [](int64_t, float d) { return d; });
    if (arrive(arrived + j, chunks)) db[j] = add_in_order(partial + j, cols, chunks);
}

template <int N>
int epilogue_n(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *bias,
               const float *second, const halognn_cuda_then &then) {
    return LAUNCH(c, epilogue_kernel<N>, grid_of(rows, cols, N), y, rows, cols, lanes(cols, N),
                  bias, second, then);
}

template <int N>
int backward_n(halognn_cuda *c, float *dy, int64_t rows, int64_t cols, const float *y,
               const halognn_cuda_then &then) {
    return LAUNCH(c, backward_kernel<N>, grid_of(rows, cols, N), dy, rows, cols, lanes(cols, N), y,
                  then);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_epilogue(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *bias,
                          const float *second, halognn_cuda_then then) {
    if (rows == 0 || cols == 0) return 0;
    bool wide = true;
    for (const float *p : {static_cast<const float *>(y), bias, second, then.add})
        wide = wide && fits(p, cols, sizeof(float), 4);
    if (wide) return epilogue_n<4>(c, y, rows, cols, bias, second, then);
    return epilogue_n<1>(c, y, rows, cols, bias, second, then);
}

int halognn_cuda_epilogue_backward(halognn_cuda *c, float *dy, float *db, int64_t rows,
                                   int64_t cols, const float *y, halognn_cuda_then then,
                                   float *scratch) {
    if (db != nullptr && (then.activation == 0 || rows == 0 || cols == 0))
        return halognn_cuda_column_sum(c, db, rows, cols, dy, scratch);
    if (then.activation == 0 || rows == 0 || cols == 0) return 0;
    if (db != nullptr)
        return LAUNCH(c, bias_backward_kernel, columns_by_chunk(rows, cols), dy, db, rows, cols, y,
                      then, scratch, c->arrived);
    if (fits(dy, cols, sizeof(float), 4) && fits(y, cols, sizeof(float), 4))
        return backward_n<4>(c, dy, rows, cols, y, then);
    return backward_n<1>(c, dy, rows, cols, y, then);
}

}  // extern "C"
