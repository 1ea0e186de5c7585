// Attention: sums along heads, softmax over segments of edges, and sums weighted by head. Sums over
// edges run in edge order, so nothing depends on the mapping. Where a sum runs along a head, its
// columns are shared by a group of lanes, as many as fit the head, and added as a tree.
#include <initializer_list>

#include "exp.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "warp.cuh"

namespace halognn {
namespace {

// group returns the number of lanes that share a head: a power of two, at most a warp.
inline int group(int64_t width) {
    int lanes = 1;
    while (lanes < WARP && lanes < width) lanes *= 2;
    return lanes;
}

// group_sum sums value(j) over a head's columns by the lanes of a group. All lanes of the warp call
// it; each gets the sum of its group.
template <typename Value>
__device__ inline float group_sum(int64_t width, int lanes, bool mine, const Value &value) {
    float sum = 0;
    if (mine)
        for (int64_t j = threadIdx.x % lanes; j < width; j += lanes) sum += value(j);
    for (int mask = lanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return sum;
}

// head_sum sums x[j]*y[j].
__device__ inline float head_sum(const float *x, const float *y, int64_t width, int lanes,
                                 bool mine) {
    return group_sum(width, lanes, mine, [=](int64_t j) { return x[j] * y[j]; });
}

// Of every row with a, and of the first rows with a2.
__global__ void head_dots(float *s, float *s2, int64_t rows, int64_t first, int64_t heads,
                          int64_t width, int lanes, const float *z, const float *a,
                          const float *a2) {
    const int64_t i = item() / lanes, at = i % heads * width; // i of rows*heads
    const bool mine = i < rows * heads, both = i < first * heads;
    const float sum = head_sum(z + i * width, a + at, width, lanes, mine);
    const float sum2 = head_sum(z + i * width, a2 + at, width, lanes, both);
    if (threadIdx.x % lanes != 0) return;
    if (mine) s[i] = sum;
    if (both) s2[i] = sum2;
}

// dz += ds*a and da = the sum over the rows of ds*z, and so for the first rows with ds2 and a2.
// partial [2,chunks,cols]
__global__ void dots_backward(float *dz, float *da, float *da2, int64_t rows, int64_t first,
                              int64_t heads, int64_t width, const float *ds, const float *ds2,
                              const float *z, const float *a, const float *a2, float *partial,
                              uint32_t *arrived) {
    const int64_t j = item(), chunk = blockIdx.y, chunks = gridDim.y;
    const int64_t cols = heads * width, h = j / width;
    if (j >= cols) return;
    // Two passes: a row's addition to dz in between would hold up the reads of the next rows.
    const auto back = [=](int64_t of, const float *ds, float factor) {
        sum_in_order(
            chunk, of,
            [=](int64_t r) { return dz[r * cols + j] + ds[r * heads + h] * factor; },
            [=](int64_t r, float sum) { dz[r * cols + j] = sum; });
        return sum_in_order(
            chunk, of, [=](int64_t r) { return ds[r * heads + h] * z[r * cols + j]; });
    };
    float *partial2 = partial + chunks * cols;
    partial[chunk * cols + j] = back(rows, ds, a[j]);
    if (chunk * CHUNK < first) partial2[chunk * cols + j] = back(first, ds2, a2[j]);
    if (!arrive(arrived + j, chunks)) return;
    da[j] = add_in_order(partial + j, cols, chunks);
    da2[j] = add_in_order(partial2 + j, cols, (first + CHUNK - 1) / CHUNK);
}

// Rows in flight before the first is used, as in segment.cu.
constexpr int FLIGHT = 4;

// weighted_row returns columns [col, col+N) of the sum of the rows of the edges [begin,end), each
// column weighted by its head. edges has the index of each edge in alpha; NULL if that is its
// position. The columns lie within one head.
template <int N>
__device__ inline pack<float, N> weighted_row(int64_t begin, int64_t end, int64_t heads,
                                              int64_t width, const int32_t *indices,
                                              const int32_t *edges, const float *alpha,
                                              const float *rows, int64_t col) {
    const int64_t h = col / width;
    pack<float, N> sum{};
    for (int64_t e = begin; e < end; e += FLIGHT) {
        pack<float, N> v[FLIGHT];
        float w[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) { // past the end, read the last edge again
            const int64_t at = e + k < end ? e + k : end - 1;
            v[k] = load<float, N>(rows + indices[at] * (heads * width) + col);
            w[k] = alpha[(edges ? edges[at] : at) * heads + h];
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (e + k >= end) break;
#pragma unroll
            for (int i = 0; i < N; i++) sum.at[i] += v[k].at[i] * w[k];
        }
    }
    return sum;
}

// What one warp does with the numbers of a segment's edges, [end-begin,heads): sums along edges,
// which have an order, are made by a lane for each head, and all else by all lanes.

// weigh turns the scores of the edges [begin,end) into weights. Lanes may have written each other's
// scores, and may read each other's weights.
__device__ inline void weigh(float *alpha, int64_t heads, int64_t begin, int64_t end) {
    __syncwarp();
    for (int64_t h = my_lane(); h < heads; h += WARP) {
        float most = 0;
        for (int64_t e = begin; e < end; e++) {
            const float v = alpha[e * heads + h];
            most = e == begin || v > most ? v : most;
        }
        for (int64_t e = begin; e < end; e++) alpha[e * heads + h] -= most;
    }
    __syncwarp();
    for (int64_t i = begin * heads + my_lane(); i < end * heads; i += WARP)
        alpha[i] = exact_exp(alpha[i]);
    __syncwarp();
    for (int64_t h = my_lane(); h < heads; h += WARP) {
        float sum = 0;
        for (int64_t e = begin; e < end; e++) sum += alpha[e * heads + h];
        for (int64_t e = begin; e < end; e++) alpha[e * heads + h] /= sum;
    }
    __syncwarp();
}

// attend makes the weights of a destination's edges and, unless y is null, the sum of their rows.
// One warp for each destination.
template <int N>
__global__ void attend(float *y, float *alpha, int64_t segments, int64_t heads, int64_t width,
                       const int64_t *indptr, const int32_t *indices, const float *src,
                       const float *dst, const float *z, float slope) {
    const int64_t d = my_row(), cols = heads * width;
    if (d >= segments) return;
    const int64_t begin = indptr[d], end = indptr[d + 1];
    for (int64_t i = begin * heads + my_lane(); i < end * heads; i += WARP) {
        const float v = src[indices[i / heads] * heads + i % heads] + dst[d * heads + i % heads];
        alpha[i] = v > 0 ? v : v * slope;
    }
    weigh(alpha, heads, begin, end);
    for (int64_t j = my_lane() * N; y != nullptr && j < cols; j += WARP * N)
        store<float, N>(y + d * cols + j, weighted_row<N>(begin, end, heads, width, indices,
                                                          nullptr, alpha, z, j));
}

// dots sets out [heads] to the sums along each head of x[j]*y[j], by one warp: one head for each
// group of lanes.
__device__ inline void dots(float *out, int64_t heads, int64_t width, int lanes, const float *x,
                            const float *y) {
    for (int64_t first = 0; first < heads; first += WARP / lanes) {
        const int64_t h = first + my_lane() / lanes;
        const bool mine = h < heads;
        const float sum = head_sum(x + h * width, y + h * width, width, lanes, mine);
        if (mine && threadIdx.x % lanes == 0) out[h] = sum;
    }
}

// attend_backward turns de, the gradients of the weights of a destination's edges, into those of
// the scores before LeakyReLU, and sums them. Unless dy is null, it makes de first, by the rows z
// and that of dy. One warp for each destination.
__global__ void attend_backward(float *de, float *ddst, int64_t segments, int64_t heads,
                                int64_t width, int lanes, const int64_t *indptr,
                                const int32_t *indices, const float *alpha, const float *src,
                                const float *dst, const float *z, const float *dy, float slope) {
    const int64_t d = my_row(), cols = heads * width;
    if (d >= segments) return;
    const int64_t begin = indptr[d], end = indptr[d + 1];
    for (int64_t e = begin; dy != nullptr && e < end; e++)
        dots(de + e * heads, heads, width, lanes, dy + d * cols, z + indices[e] * cols);
    __syncwarp();
    for (int64_t h = my_lane(); h < heads; h += WARP) {
        float mean = 0;
        for (int64_t e = begin; e < end; e++) mean += alpha[e * heads + h] * de[e * heads + h];
        for (int64_t e = begin; e < end; e++) de[e * heads + h] -= mean;
    }
    __syncwarp();
    for (int64_t i = begin * heads + my_lane(); i < end * heads; i += WARP) {
        const float g = alpha[i] * de[i];
        const float v = src[indices[i / heads] * heads + i % heads] + dst[d * heads + i % heads];
        de[i] = v > 0 ? g : g * slope;
    }
    __syncwarp();
    for (int64_t h = my_lane(); h < heads; h += WARP) {
        float sum = 0;
        for (int64_t e = begin; e < end; e++) sum += de[e * heads + h];
        ddst[d * heads + h] = sum;
    }
}

// collect sums by source, whose edges the transposed segments are: the gradients of scores and,
// unless dz is null, rows of dy by the weights. One warp for each source.
template <int N>
__global__ void collect(float *dz, float *dsrc, int64_t segments, int64_t heads, int64_t width,
                        const int64_t *t_indptr, const int32_t *t_indices, const int32_t *t_edges,
                        const float *alpha, const float *de, const float *dy) {
    const int64_t s = my_row(), cols = heads * width;
    if (s >= segments) return;
    const int64_t begin = t_indptr[s], end = t_indptr[s + 1];
    for (int64_t h = my_lane(); h < heads; h += WARP) {
        float sum = 0;
        for (int64_t e = begin; e < end; e++) sum += de[t_edges[e] * heads + h];
        dsrc[s * heads + h] = sum;
    }
    for (int64_t j = my_lane() * N; dz != nullptr && j < cols; j += WARP * N)
        store<float, N>(dz + s * cols + j, weighted_row<N>(begin, end, heads, width, t_indices,
                                                           t_edges, alpha, dy, j));
}

// de becomes the gradient of the scores.
__global__ void scores_backward(float *de, int64_t segments, int64_t heads, const int64_t *indptr,
                                const float *alpha) {
    const int64_t i = item(), d = i / heads, h = i % heads;
    if (d >= segments) return;
    float mean = 0;
    for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
        mean += alpha[e * heads + h] * de[e * heads + h];
    for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
        de[e * heads + h] = alpha[e * heads + h] * (de[e * heads + h] - mean);
}

// GATv2's weights. One warp for each destination: it computes an edge's heads together, one for each
// group of lanes.
__global__ void attend_pairs(float *alpha, int64_t segments, int64_t heads, int64_t width,
                             int lanes, const int64_t *indptr, const int32_t *indices,
                             const float *src, const float *dst, const float *a, float slope) {
    const int64_t d = my_row(), cols = heads * width;
    if (d >= segments) return;
    for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
        for (int64_t first = 0; first < heads; first += WARP / lanes) {
            const int64_t h = first + my_lane() / lanes;
            const bool mine = h < heads;
            const float *x = src + indices[e] * cols + h * width, *y = dst + d * cols + h * width;
            const float sum = group_sum(width, lanes, mine, [=](int64_t j) {
                const float u = x[j] + y[j];
                return (u > 0 ? u : u * slope) * a[h * width + j];
            });
            if (mine && threadIdx.x % lanes == 0) alpha[e * heads + h] = sum;
        }
    weigh(alpha, heads, indptr[d], indptr[d + 1]);
}

// What the sums over a row's edges give: the row's gradient, set or added, or the row's
// part of a's.
enum score_sum { ROW, ROW_ADDED, VECTOR };

// score_sums sums over the edges of each segment, whose rows are own, what reaches the columns of
// the sum u of the rows at their ends. edges has the index of each edge in de; NULL if that is its
// position. A pack lies within one head.
template <score_sum WHICH, int N>
__global__ void score_sums(float *out, int64_t segments, int64_t heads, int64_t width, int lanes,
                           const int64_t *indptr, const int32_t *indices, const int32_t *edges,
                           const float *de, const float *own, const float *others, const float *a,
                           float slope) {
    const int64_t cols = heads * width;
    const place p = my_place(lanes, N);
    if (p.row >= segments || p.col >= cols) return;
    const int64_t h = p.col / width, at = p.row * cols + p.col;
    const pack<float, N> mine = load<float, N>(own + at), factor = load<float, N>(a + p.col);
    pack<float, N> sum{};
#pragma unroll 4
    for (int64_t e = indptr[p.row]; e < indptr[p.row + 1]; e++) {
        const pack<float, N> other = load<float, N>(others + indices[e] * cols + p.col);
        const float g = de[(edges ? edges[e] : e) * heads + h];
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float u = other.at[i] + mine.at[i], part = u > 0 ? g : g * slope;
            sum.at[i] += WHICH == VECTOR ? part * u : part;
        }
    }
    if (WHICH != VECTOR)
#pragma unroll
        for (int i = 0; i < N; i++) sum.at[i] *= factor.at[i];
    if (WHICH == ROW_ADDED) {
        const pack<float, N> before = load<float, N>(out + at);
#pragma unroll
        for (int i = 0; i < N; i++) sum.at[i] += before.at[i];
    }
    store<float, N>(out + at, sum);
}

// weighted_sum is a weighted_row for each segment.
template <int N>
__global__ void weighted_sum(float *out, int64_t segments, int64_t heads, int64_t width, int lanes,
                             const int64_t *indptr, const int32_t *indices, const int32_t *edges,
                             const float *alpha, const float *rows) {
    const int64_t cols = heads * width;
    const place p = my_place(lanes, N);
    if (p.row >= segments || p.col >= cols) return;
    store<float, N>(out + p.row * cols + p.col,
                    weighted_row<N>(indptr[p.row], indptr[p.row + 1], heads, width, indices, edges,
                                    alpha, rows, p.col));
}

// One warp for each source.
__global__ void edge_dots(float *dalpha, int64_t segments, int64_t heads, int64_t width, int lanes,
                          const int64_t *t_indptr, const int32_t *t_indices, const int32_t *t_edges,
                          const float *z, const float *dy) {
    const int64_t s = my_row(), cols = heads * width;
    if (s >= segments) return;
    for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++)
        dots(dalpha + t_edges[e] * heads, heads, width, lanes, dy + t_indices[e] * cols,
             z + s * cols);
}

__global__ void mean_of_heads(float *y, int64_t rows, int64_t heads, int64_t width,
                              const float *x) {
    const int64_t i = item(), r = i / width, j = i % width;
    if (r >= rows) return;
    float sum = 0;
    for (int64_t h = 0; h < heads; h++) sum += x[(r * heads + h) * width + j];
    y[i] = sum * (1.0f / static_cast<float>(heads));
}

__global__ void spread_to_heads(float *dx, int64_t rows, int64_t heads, int64_t width,
                                const float *dy) {
    const int64_t i = item(), r = i / (heads * width);
    if (r < rows) dx[i] = dy[r * width + i % width] * (1.0f / static_cast<float>(heads));
}

template <int N>
int weighted_n(halognn_cuda *c, float *out, int64_t segments, int64_t heads, int64_t width,
               const int64_t *indptr, const int32_t *indices, const int32_t *edges,
               const float *alpha, const float *rows) {
    const int64_t cols = heads * width;
    return LAUNCH(c, weighted_sum<N>, grid_of(segments, cols, N), out, segments, heads, width,
                  lanes(cols, N), indptr, indices, edges, alpha, rows);
}

int weighted(halognn_cuda *c, float *out, int64_t segments, int64_t heads, int64_t width,
             const int64_t *indptr, const int32_t *indices, const int32_t *edges,
             const float *alpha, const float *rows) {
    if (segments == 0 || width == 0) return 0;
    const auto both = [&](int n) {
        return fits(out, width, sizeof(float), n) && fits(rows, width, sizeof(float), n);
    };
    if (both(4))
        return weighted_n<4>(c, out, segments, heads, width, indptr, indices, edges, alpha, rows);
    if (both(2))
        return weighted_n<2>(c, out, segments, heads, width, indptr, indices, edges, alpha, rows);
    return weighted_n<1>(c, out, segments, heads, width, indptr, indices, edges, alpha, rows);
}

// in_packs reports whether packs of n of heads of the given width fit all these rows.
bool in_packs(int n, int64_t width, std::initializer_list<const float *> all) {
    for (const float *p : all)
        if (!fits(p, width, sizeof(float), n)) return false;
    return true;
}

int collected(halognn_cuda *c, float *dz, float *dsrc, int64_t sources, int64_t heads,
              int64_t width, const int64_t *t_indptr, const int32_t *t_indices,
              const int32_t *t_edges, const float *alpha, const float *de, const float *dy) {
    if (sources == 0) return 0;
    if (in_packs(4, width, {dz, dy}))
        return LAUNCH(c, collect<4>, rows_by_warp(sources), dz, dsrc, sources, heads, width,
                      t_indptr, t_indices, t_edges, alpha, de, dy);
    return LAUNCH(c, collect<1>, rows_by_warp(sources), dz, dsrc, sources, heads, width, t_indptr,
                  t_indices, t_edges, alpha, de, dy);
}

template <score_sum WHICH>
int score_sums_of(halognn_cuda *c, float *out, int64_t segments, int64_t heads, int64_t width,
                  const int64_t *indptr, const int32_t *indices, const int32_t *edges,
                  const float *de, const float *own, const float *others, const float *a,
                  float slope) {
    const int64_t cols = heads * width;
    if (segments == 0 || cols == 0) return 0;
    const auto all = [&](int n) {
        return fits(out, width, sizeof(float), n) && fits(own, width, sizeof(float), n) &&
               fits(others, width, sizeof(float), n) && fits(a, width, sizeof(float), n);
    };
    if (all(4))
        return LAUNCH(c, (score_sums<WHICH, 4>), grid_of(segments, cols, 4), out, segments, heads,
                      width, lanes(cols, 4), indptr, indices, edges, de, own, others, a, slope);
    return LAUNCH(c, (score_sums<WHICH, 1>), grid_of(segments, cols, 1), out, segments, heads,
                  width, lanes(cols, 1), indptr, indices, edges, de, own, others, a, slope);
}

// largest_head returns which head of a row has the largest of column j: the first of equal ones, or
// the first NaN.
__device__ inline int64_t largest_head(const float *x, int64_t heads, int64_t width, int64_t j) {
    int64_t at = j;
    for (int64_t i = j + width; i < heads * width; i += width)
        if (x[at] == x[at] && !(x[i] <= x[at])) at = i;
    return at;
}

__global__ void max_of_heads(float *y, int64_t rows, int64_t heads, int64_t width, const float *x) {
    const int64_t i = item();
    if (i >= rows * width) return;
    const float *row = x + i / width * heads * width;
    y[i] = row[largest_head(row, heads, width, i % width)];
}

__global__ void spread_to_largest(float *dx, int64_t rows, int64_t heads, int64_t width,
                                  const float *dy, const float *x) {
    const int64_t i = item(), row = i / width * heads * width, j = i % width;
    if (i >= rows * width) return;
    const int64_t at = largest_head(x + row, heads, width, j);
    for (int64_t k = j; k < heads * width; k += width) dx[row + k] = k == at ? dy[i] : 0;
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_head_dots(halognn_cuda *c, float *s, float *s2, int64_t rows, int64_t first,
                           int64_t heads, int64_t width, const float *z, const float *a,
                           const float *a2) {
    if (rows == 0) return 0;
    const int lanes = group(width);
    return LAUNCH_TOGETHER(c, head_dots, blocks(rows * heads * lanes), s, s2, rows, first, heads,
                           width, lanes, z, a, a2);
}

int halognn_cuda_head_dots_backward(halognn_cuda *c, float *dz, float *da, float *da2, int64_t rows,
                                    int64_t first, int64_t heads, int64_t width, const float *ds,
                                    const float *ds2, const float *z, const float *a,
                                    const float *a2, float *scratch) {
    const int64_t cols = heads * width;
    if (rows == 0 || cols == 0) return zero_both(c, da, da2, cols);
    return LAUNCH(c, dots_backward, columns_by_chunk(rows, cols), dz, da, da2, rows, first, heads,
                  width, ds, ds2, z, a, a2, scratch, c->arrived);
}

int halognn_cuda_attend(halognn_cuda *c, float *y, float *alpha, int64_t segments, int64_t heads,
                        int64_t width, const int64_t *indptr, const int32_t *indices,
                        const float *src, const float *dst, const float *z, float slope) {
    if (segments == 0) return 0;
    if (in_packs(4, width, {y, z}))
        return LAUNCH_TOGETHER(c, attend<4>, rows_by_warp(segments), y, alpha, segments, heads,
                               width, indptr, indices, src, dst, z, slope);
    return LAUNCH_TOGETHER(c, attend<1>, rows_by_warp(segments), y, alpha, segments, heads, width,
                           indptr, indices, src, dst, z, slope);
}

int halognn_cuda_edge_softmax(halognn_cuda *c, float *alpha, int64_t segments, int64_t heads,
                              const int64_t *indptr, const int32_t *indices, const float *src,
                              const float *dst, float slope) {
    return halognn_cuda_attend(c, nullptr, alpha, segments, heads, 0, indptr, indices, src, dst,
                               nullptr, slope);
}

int halognn_cuda_attend_backward(halognn_cuda *c, float *dz, float *dsrc, float *ddst, float *de,
                                 int64_t segments, int64_t sources, int64_t heads, int64_t width,
                                 const int64_t *indptr, const int32_t *indices,
                                 const int64_t *t_indptr, const int32_t *t_indices,
                                 const int32_t *t_edges, const float *alpha, const float *src,
                                 const float *dst, const float *z, const float *dy, float slope) {
    if (segments > 0)
        if (int e = LAUNCH_TOGETHER(c, attend_backward, rows_by_warp(segments), de, ddst, segments,
                                    heads, width, group(width), indptr, indices, alpha, src, dst, z,
                                    dy, slope))
            return e;
    return collected(c, dz, dsrc, sources, heads, width, t_indptr, t_indices, t_edges, alpha, de,
                     dy);
}

int halognn_cuda_edge_softmax_backward(halognn_cuda *c, float *de, float *ddst, int64_t segments,
                                       int64_t heads, const int64_t *indptr, const int32_t *indices,
                                       const float *alpha, const float *src, const float *dst,
                                       float slope) {
    if (segments == 0) return 0;
    return LAUNCH_TOGETHER(c, attend_backward, rows_by_warp(segments), de, ddst, segments, heads,
                           0, 1, indptr, indices, alpha, src, dst, nullptr, nullptr, slope);
}

int halognn_cuda_edge_collect(halognn_cuda *c, float *dsrc, int64_t segments, int64_t heads,
                              const int64_t *t_indptr, const int32_t *t_edges, const float *de) {
    return collected(c, nullptr, dsrc, segments, heads, 0, t_indptr, nullptr, t_edges, nullptr, de,
                     nullptr);
}

int halognn_cuda_edge_dot_softmax(halognn_cuda *c, float *alpha, int64_t segments, int64_t heads,
                                  int64_t width, const int64_t *indptr, const int32_t *indices,
                                  const float *src, const float *dst, const float *a, float slope) {
    if (segments == 0) return 0;
    return LAUNCH_TOGETHER(c, attend_pairs, rows_by_warp(segments), alpha, segments, heads, width,
                           group(width), indptr, indices, src, dst, a, slope);
}

// The products that da is the sum of are made in ddst, before its own sums.
int halognn_cuda_edge_dot_softmax_backward(halognn_cuda *c, float *de, float *ddst, float *da,
                                           int64_t segments, int64_t heads, int64_t width,
                                           const int64_t *indptr, const int32_t *indices,
                                           const float *alpha, const float *src, const float *dst,
                                           const float *a, float slope, float *scratch) {
    if (segments > 0)
        if (int e = LAUNCH(c, scores_backward, blocks(segments * heads), de, segments, heads,
                           indptr, alpha))
            return e;
    if (int e = score_sums_of<VECTOR>(c, ddst, segments, heads, width, indptr, indices, nullptr, de,
                                      dst, src, a, slope))
        return e;
    if (int e = halognn_cuda_column_sum(c, da, segments, heads * width, ddst, scratch)) return e;
    return score_sums_of<ROW>(c, ddst, segments, heads, width, indptr, indices, nullptr, de, dst,
                              src, a, slope);
}

int halognn_cuda_edge_dot_collect(halognn_cuda *c, float *dsrc, int64_t segments, int64_t heads,
                                  int64_t width, const int64_t *t_indptr, const int32_t *t_indices,
                                  const int32_t *t_edges, const float *de, const float *src,
                                  const float *dst, const float *a, float slope) {
    return score_sums_of<ROW_ADDED>(c, dsrc, segments, heads, width, t_indptr, t_indices, t_edges,
                                    de, src, dst, a, slope);
}

int halognn_cuda_edge_sum(halognn_cuda *c, float *y, int64_t segments, int64_t heads, int64_t width,
                          const int64_t *indptr, const int32_t *indices, const float *alpha,
                          const float *z) {
    return weighted(c, y, segments, heads, width, indptr, indices, nullptr, alpha, z);
}

int halognn_cuda_edge_sum_backward(halognn_cuda *c, float *dz, float *dalpha, int64_t segments,
                                   int64_t heads, int64_t width, const int64_t *t_indptr,
                                   const int32_t *t_indices, const int32_t *t_edges,
                                   const float *alpha, const float *z, const float *dy) {
    if (segments == 0 || width == 0) return 0;
    if (int e = weighted(c, dz, segments, heads, width, t_indptr, t_indices, t_edges, alpha, dy))
        return e;
    return LAUNCH_TOGETHER(c, edge_dots, rows_by_warp(segments), dalpha, segments, heads, width,
                           group(width), t_indptr, t_indices, t_edges, z, dy);
}

int halognn_cuda_head_mean(halognn_cuda *c, float *y, int64_t rows, int64_t heads, int64_t width,
                           const float *x) {
    return rows > 0 && width > 0
               ? LAUNCH(c, mean_of_heads, blocks(rows * width), y, rows, heads, width, x)
               : 0;
}

int halognn_cuda_head_mean_backward(halognn_cuda *c, float *dx, int64_t rows, int64_t heads,
                                    int64_t width, const float *dy) {
    return rows > 0 && width > 0 ? LAUNCH(c, spread_to_heads, blocks(rows * heads * width), dx,
                                          rows, heads, width, dy)
                                 : 0;
}

int halognn_cuda_head_max(halognn_cuda *c, float *y, int64_t rows, int64_t heads, int64_t width,
                          const float *x) {
    return rows > 0 && width > 0
               ? LAUNCH(c, max_of_heads, blocks(rows * width), y, rows, heads, width, x)
               : 0;
}

int halognn_cuda_head_max_backward(halognn_cuda *c, float *dx, int64_t rows, int64_t heads,
                                   int64_t width, const float *dy, const float *x) {
    return rows > 0 && width > 0
               ? LAUNCH(c, spread_to_largest, blocks(rows * width), dx, rows, heads, width, dy, x)
               : 0;
}

}  // extern "C"
