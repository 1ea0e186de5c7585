// Rows of several heads: sums along each head, and maps between a row of all heads and a row as
// wide as one head.
#include "reduce.cuh"
#include "rows.cuh"
#include "stored.cuh"
#include "warp.cuh"

namespace halognn {
namespace {

constexpr int ROWS = 4; // number of rows whose dot products for one head a group of lanes makes

// head_dots computes the inner products of every head of each row with a, and of every head of the
// first rows also with a2. A group of lanes reads a head of ROWS rows at a time. Neighbouring
// groups have neighbouring heads. There are fewer than 2^31 groups.
template <int N, typename T>
__global__ void head_dots(float *s, float *s2, int64_t rows, int64_t first, int heads, int width,
                          int lanes, const T *z, const float *a, const float *a2) {
    const uint32_t group = blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    const int h = static_cast<int>(group % heads), lane = static_cast<int>(threadIdx.x) % lanes;
    const int64_t row = int64_t{group / heads} * ROWS;
    a += h * width;
    a2 += h * width;
    float sum[ROWS] = {}, sum2[ROWS] = {};
    for (int j = lane * N; row < rows && j < width; j += lanes * N) {
        pack<T, N> v[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) // if there are fewer rows, reads the last one again
            v[k] = load<T, N>(z + ((row + k < rows ? row + k : rows - 1) * heads + h) * width + j);
        const pack<float, N> w = load<float, N>(a + j), w2 = load<float, N>(a2 + j);
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                sum[k] += to_float(v[k].at[i]) * w.at[i];
                sum2[k] += to_float(v[k].at[i]) * w2.at[i];
            }
    }
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const float all = group_sum(sum[k], lanes), all2 = group_sum(sum2[k], lanes);
        if (lane == 0 && row + k < rows) s[(row + k) * heads + h] = all;
        if (lane == 0 && row + k < first) s2[(row + k) * heads + h] = all2;
    }
}

// dots_back is the backward pass of head_dots for one column of the rows [r,end) of a chunk. It
// adds the gradient of the inner products with a to dz. If BOTH is true, it also adds the gradient
// of the inner products with a2. It adds the gradients of a and a2 to sum and sum2. UNROLL rows are
// read before the first is written.
template <bool BOTH, typename T>
__device__ inline void dots_back(float *dz, int r, int end, int cols, int heads, const float *ds,
                                 const float *ds2, const T *z, float a, float a2, float &sum,
                                 float &sum2) {
    constexpr int UNROLL = 8;
    for (; r < end; r += UNROLL) {
        float d[UNROLL], v[UNROLL], g[UNROLL], g2[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) { // if there are fewer rows, reads the last one again
            const int row = r + k < end ? r + k : end - 1;
            d[k] = dz[row * cols];
            v[k] = to_float(z[row * cols]);
            g[k] = ds[row * heads];
            if (BOTH) g2[k] = ds2[row * heads];
        }
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            if (r + k >= end) break;
            sum += g[k] * v[k];
            float to = d[k] + g[k] * a;
            if (BOTH) {
                sum2 += g2[k] * v[k];
                to += g2[k] * a2;
            }
            dz[(r + k) * cols] = to;
        }
    }
}

// Computes dz += ds*a, and da as the sum over the rows of ds*z. For the first rows it does the same
// with ds2, a2 and da2. partial is [2,chunks,cols].
template <typename T>
__global__ void BY_CHUNK dots_backward(float *dz, float *da, float *da2, int64_t rows,
                                       int64_t first, int64_t heads, int64_t width, const float *ds,
                                       const float *ds2, const T *z, const float *a,
                                       const float *a2, float *partial, uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    const int64_t cols = heads * width;
    if (j >= cols) return;
    const in_chunk in(chunk, rows, cols, j);
    const int64_t lead = first - in.first, head = in.first * heads + j / width;
    const int both = static_cast<int>(lead < 0 ? 0 : lead < in.rows ? lead : in.rows);
    const int n = static_cast<int>(heads);
    dz += in.at;
    z += in.at;
    ds += head;
    if (both > 0) ds2 += head;
    float sum = 0, sum2 = 0;
    dots_back<true>(dz, 0, both, in.cols, n, ds, ds2, z, a[j], a2[j], sum, sum2);
    dots_back<false>(dz, both, in.rows, in.cols, n, ds, ds2, z, a[j], a2[j], sum, sum2);
    float *partial2 = partial + chunks * cols;
    partial[chunk * cols + j] = sum;
    partial2[chunk * cols + j] = sum2;
    if (!arrive(arrived + j, chunks)) return;
    da[j] = add_in_order(partial + j, cols, chunks);
    da2[j] = add_in_order(partial2 + j, cols, (first + CHUNK - 1) / CHUNK);
}

// Maps between a row of all heads and a row as wide as one head. A thread has the same columns of
// every head.
template <int N>
__global__ void mean_of_heads(float *y, int64_t rows, int64_t heads, int64_t width, int lanes,
                              const float *x) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= width) return;
    pack<float, N> sum{};
#pragma unroll 4
    for (int64_t h = 0; h < heads; h++) {
        const pack<float, N> v = load<float, N>(x + (p.row * heads + h) * width + p.col);
#pragma unroll
        for (int i = 0; i < N; i++) sum.at[i] += v.at[i];
    }
#pragma unroll
    for (int i = 0; i < N; i++) sum.at[i] *= 1.0f / static_cast<float>(heads);
    store<float, N>(y + p.row * width + p.col, sum);
}

template <int N>
__global__ void spread_to_heads(float *dx, int64_t rows, int64_t heads, int64_t width, int lanes,
                                const float *dy) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= width) return;
    pack<float, N> v = load<float, N>(dy + p.row * width + p.col);
#pragma unroll
    for (int i = 0; i < N; i++) v.at[i] *= 1.0f / static_cast<float>(heads);
    for (int64_t h = 0; h < heads; h++)
        store<float, N>(dx + (p.row * heads + h) * width + p.col, v);
}

// largest_heads returns the largest numbers of columns j to j+N-1 of a row, each over all heads. It
// sets at[i] to the head that has the largest number of column j+i. If several heads have it, that
// is the first of them. A NaN counts as the largest number.
template <int N>
__device__ inline pack<float, N> largest_heads(const float *row, int64_t heads, int64_t width,
                                               int64_t j, int64_t *at) {
    pack<float, N> most = load<float, N>(row + j);
#pragma unroll
    for (int i = 0; i < N; i++) at[i] = 0;
#pragma unroll 4
    for (int64_t h = 1; h < heads; h++) {
        const pack<float, N> v = load<float, N>(row + h * width + j);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (most.at[i] == most.at[i] && !(v.at[i] <= most.at[i])) {
                most.at[i] = v.at[i];
                at[i] = h;
            }
    }
    return most;
}

template <int N>
__global__ void max_of_heads(float *y, int64_t rows, int64_t heads, int64_t width, int lanes,
                             const float *x) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= width) return;
    int64_t at[N];
    store<float, N>(y + p.row * width + p.col,
                    largest_heads<N>(x + p.row * heads * width, heads, width, p.col, at));
}

template <int N>
__global__ void spread_to_largest(float *dx, int64_t rows, int64_t heads, int64_t width, int lanes,
                                  const float *dy, const float *x) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= width) return;
    int64_t at[N];
    largest_heads<N>(x + p.row * heads * width, heads, width, p.col, at);
    const pack<float, N> d = load<float, N>(dy + p.row * width + p.col);
    for (int64_t h = 0; h < heads; h++) {
        pack<float, N> v;
#pragma unroll
        for (int i = 0; i < N; i++) v.at[i] = h == at[i] ? d.at[i] : 0;
        store<float, N>(dx + (p.row * heads + h) * width + p.col, v);
    }
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_head_dots(halognn_cuda *c, float *s, float *s2, int64_t rows, int64_t first,
                           int64_t heads, int64_t width, halognn_cuda_matrix z, const float *a,
                           const float *a2) {
    if (rows == 0) return 0;
    const int64_t groups = ceil_div(rows, ROWS) * heads;
    if (groups >> 31) return cudaErrorInvalidValue;
    return in_packs(width, {z, a, a2}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        const int lanes = group(width, N);
        return by_type(z, [=](auto *of) {
            using T = std::remove_pointer_t<decltype(of)>;
            return LAUNCH_TOGETHER(c, (head_dots<N, T>), blocks(groups, BLOCK / lanes), s, s2,
                                   rows, first, static_cast<int>(heads), static_cast<int>(width),
                                   lanes, static_cast<const T *>(of), a, a2);
        });
    });
}

int halognn_cuda_head_dots_backward(halognn_cuda *c, float *dz, float *da, float *da2, int64_t rows,
                                    int64_t first, int64_t heads, int64_t width, const float *ds,
                                    const float *ds2, halognn_cuda_matrix z, const float *a,
                                    const float *a2, float *scratch) {
    const int64_t cols = heads * width;
    if (rows == 0 || cols == 0) return zero_both(c, da, da2, cols);
    return by_type(z, [=](auto *of) {
        using T = std::remove_pointer_t<decltype(of)>;
        return LAUNCH(c, dots_backward<T>, columns_by_chunk(rows, cols), dz, da, da2, rows, first,
                      heads, width, ds, ds2, static_cast<const T *>(of), a, a2, scratch,
                      c->arrived);
    });
}

int halognn_cuda_head_mean(halognn_cuda *c, float *y, int64_t rows, int64_t heads, int64_t width,
                           const float *x) {
    if (rows == 0 || width == 0) return 0;
    return in_packs(width, {y, x}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, mean_of_heads<N>, grid_of(rows, width, N), y, rows, heads, width,
                      lanes(width, N), x);
    });
}

int halognn_cuda_head_mean_backward(halognn_cuda *c, float *dx, int64_t rows, int64_t heads,
                                    int64_t width, const float *dy) {
    if (rows == 0 || width == 0) return 0;
    return in_packs(width, {dx, dy}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, spread_to_heads<N>, grid_of(rows, width, N), dx, rows, heads, width,
                      lanes(width, N), dy);
    });
}

int halognn_cuda_head_max(halognn_cuda *c, float *y, int64_t rows, int64_t heads, int64_t width,
                          const float *x) {
    if (rows == 0 || width == 0) return 0;
    return in_packs(width, {y, x}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, max_of_heads<N>, grid_of(rows, width, N), y, rows, heads, width,
                      lanes(width, N), x);
    });
}

int halognn_cuda_head_max_backward(halognn_cuda *c, float *dx, int64_t rows, int64_t heads,
                                   int64_t width, const float *dy, const float *x) {
    if (rows == 0 || width == 0) return 0;
    return in_packs(width, {dx, dy, x}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, spread_to_largest<N>, grid_of(rows, width, N), dx, rows, heads, width,
                      lanes(width, N), dy, x);
    });
}

}  // extern "C"
