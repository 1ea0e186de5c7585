#include "rows.cuh"
#include "settle.cuh"
#include "stored.cuh"

namespace halognn {
namespace {

// The sums of columns. One thread sums a column over a chunk of rows. Neighbouring threads read
// neighbouring columns.
__global__ void BY_CHUNK column_sums(float *sum, int64_t rows, int64_t cols, const float *x,
                                     float *partial, uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    if (j >= cols) return;
    const in_chunk in(chunk, rows, cols, j);
    x += in.at;
    partial[chunk * cols + j] =
        sum_in_order<1>(in.rows, [=](int r) { return x[r * in.cols]; }, itself);
    if (arrive(arrived + j, chunks)) sum[j] = add_in_order(partial + j, cols, chunks);
}

__global__ void add_into_kernel(float *sum, int64_t n, const float *x) {
    const int64_t i = item();
    if (i < n) sum[i] += x[i];
}

__global__ void add_scaled_kernel(halognn_cuda_matrix y, int64_t n, halognn_cuda_matrix z,
                                  halognn_cuda_matrix x, const float *scale) {
    const int64_t i = item();
    if (i >= n) return;
    const auto own = hold<1>(z, i), more = hold<1>(x, i);
    put<1>(y, i, {widen<1>(z, own).at[0] + (1 + *scale) * widen<1>(x, more).at[0]});
}

template <int N>
__global__ void copy_columns_kernel(float *y, int64_t rows, int64_t cols, int lanes, int64_t y_cols,
                                    halognn_cuda_matrix x, int64_t x_cols, bool add) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    float *to = y + p.row * y_cols + p.col;
    pack<float, N> v = take<N>(x, p.row * x_cols + p.col);
    if (add) {
        const pack<float, N> old = load<float, N>(to);
#pragma unroll
        for (int i = 0; i < N; i++) v.at[i] = old.at[i] + v.at[i];
    }
    store<float, N>(to, v);
}

struct joinings {
    halognn_cuda_joining of[HALOGNN_JOININGS];
};

// One thread copies a pack of elements of a row of y. They all come from a, or all from b.
template <int N>
__global__ void join_kernel(joinings all) {
    halognn_cuda_joining my{};
#pragma unroll // no index into parameters, because this would move them to local memory
    for (unsigned k = 0; k < HALOGNN_JOININGS; k++)
        if (k == blockIdx.y) my = all.of[k];
    const int64_t at = item() * N, cols = my.cols;
    if (at >= my.rows * 2 * cols) return;
    // nearly all matrices have so few elements that 32 bits can count them
    const bool small = my.rows * 2 * cols <= UINT32_MAX;
    const int64_t row = small ? static_cast<uint32_t>(at) / static_cast<uint32_t>(2 * cols)
                              : at / (2 * cols);
    const int64_t col = at - row * 2 * cols, from = row * cols + col % cols;
    put<N>(my.y, at, col < cols ? take<N>(my.a, from) : take<N>(my.b, from));
}

// One thread writes a pack of neighbouring elements of a row of y. Neighbouring threads read
// neighbouring elements of x.
template <int N>
__global__ void transpose_kernel(float *y, int64_t rows, int64_t cols, const float *x,
                                 int64_t x_cols) {
    const int64_t i = item(), r = i % rows, j = i / rows * N;
    if (j >= cols) return;
    pack<float, N> v;
#pragma unroll
    for (int k = 0; k < N; k++) v.at[k] = x[(j + k) * x_cols + r];
    store<float, N>(y + r * cols + j, v);
}

// Sums the slices of all ranks, in rank order. On entry, the array `sum` has the slice of this
// rank, whose number is `rank`; on return it has the result.
__global__ void add_slices_kernel(float *sum, int64_t n, const float *slices, int rank, int ranks) {
    const int64_t i = item();
    if (i >= n) return;
    float s = rank == 0 ? sum[i] : slices[i];
    for (int r = 1; r < ranks; r++) s += r == rank ? sum[i] : slices[r * n + i];
    sum[i] = s;
}

}  // namespace

}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_column_sum(halognn_cuda *c, float *sum, int64_t rows, int64_t cols, const float *x,
                            float *scratch) {
    if (rows == 0 || cols == 0) return halognn_cuda_zero(c, HALOGNN_COMPUTE, sum, cols * 4);
    return LAUNCH(c, column_sums, columns_by_chunk(rows, cols), sum, rows, cols, x, scratch,
                  c->arrived);
}

int halognn_cuda_add_into(halognn_cuda *c, float *sum, int64_t n, const float *x) {
    return n ? LAUNCH(c, add_into_kernel, blocks(n), sum, n, x) : 0;
}

int halognn_cuda_add_slices(halognn_cuda *c, int stream, float *sum, int64_t n, const float *slices,
                            int rank, int ranks) {
    return n ? LAUNCH_ON(c, stream, add_slices_kernel, blocks(n), sum, n, slices, rank, ranks) : 0;
}

int halognn_cuda_add_scaled(halognn_cuda *c, halognn_cuda_matrix y, int64_t n,
                            halognn_cuda_matrix z, halognn_cuda_matrix x, const float *scale) {
    return n ? LAUNCH(c, add_scaled_kernel, blocks(n), y, n, z, x, scale) : 0;
}

int halognn_cuda_copy_columns(halognn_cuda *c, float *y, int64_t rows, int64_t cols, int64_t y_cols,
                              halognn_cuda_matrix x, int64_t x_cols, int add) {
    if (rows == 0 || cols == 0) return 0;
    const auto copy = [&](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, copy_columns_kernel<N>, grid_of(rows, cols, N), y, rows, cols,
                      lanes(cols, N), y_cols, x, x_cols, add != 0);
    };
    if (cols % 4 == 0 && fits(y, y_cols, sizeof(float), 4) && fits(x, x_cols, 4))
        return copy(std::integral_constant<int, 4>{});
    return copy(std::integral_constant<int, 1>{});
}

int halognn_cuda_join(halognn_cuda *c, const halognn_cuda_joining *host_all, int64_t count) {
    joinings all{};
    int64_t most = 0;
    bool wide = true;
    if (count > HALOGNN_JOININGS) return cudaErrorInvalidValue;
    for (int64_t k = 0; k < count; k++) {
        const halognn_cuda_joining &one = all.of[k] = host_all[k];
        const int64_t items = one.rows * 2 * one.cols;
        most = items > most ? items : most;
        for (const halognn_cuda_matrix &m : {one.y, one.a, one.b})
            wide = wide && (items == 0 || fits(m, one.cols, 4));
    }
    const unsigned n = static_cast<unsigned>(count);
    return most == 0 ? 0
           : wide    ? LAUNCH(c, join_kernel<4>, blocks(most / 4, BLOCK, n), all)
                     : LAUNCH(c, join_kernel<1>, blocks(most, BLOCK, n), all);
}

int halognn_cuda_part(halognn_cuda *c, float *a, float *b, int64_t rows, int64_t cols,
                      const float *x) {
    if (rows == 0 || cols == 0) return 0;
    sums halves{};
    halves.b = a;
    halves.b2 = b;
    halves.dy.of = const_cast<float *>(x);
    halves.rows = rows;
    halves.cols = 2 * cols;
    return later(c, halves);
}

int halognn_cuda_transpose(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *x,
                           int64_t x_cols) {
    if (rows == 0 || cols == 0) return 0;
    return in_packs(cols, {y}, [&](auto n) {
        return LAUNCH(c, transpose_kernel<n>, blocks(rows * cols / n), y, rows, cols, x, x_cols);
    });
}

int halognn_cuda_dot(halognn_cuda *c, float *sum, int64_t rows, int64_t cols,
                     halognn_cuda_matrix x, halognn_cuda_matrix y, float *scratch) {
    if (rows == 0 || cols == 0) return halognn_cuda_zero(c, HALOGNN_COMPUTE, sum, 4);
    sums dot{};
    dot.cols = cols;
    dot.b = sum;
    dot.total = true;
    dot.dy = x;
    dot.times = y;
    dot.rows = rows;
    dot.chunks = scratch;
    return later(c, dot);
}

}  // extern "C"
