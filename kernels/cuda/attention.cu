// Attention: softmax over segments of edges, and sums weighted by head. Sums over edges run in edge
// order, so nothing depends on the mapping. Where a sum runs along a head, a group of lanes, as many
// as fit the head, shares its columns and adds them as a tree.
#include "exp.cuh"
#include "reduce.cuh"
#include "rows.cuh"
#include "stored.cuh"
#include "warp.cuh"

namespace halognn {
namespace {

// Rows in flight before the first is used, as in segment.cu.
constexpr int FLIGHT = 4;

// weighted_row returns columns [col, col+N) of the sum of the rows of the edges [begin,end), each
// column weighted by its head. edges has the index of each edge in alpha; NULL if that is its
// position. The columns lie within one head.
template <int N, typename T>
__device__ inline pack<float, N> weighted_row(int64_t begin, int64_t end, int64_t heads,
                                              int64_t width, const int32_t *indices,
                                              const int32_t *edges, const float *alpha,
                                              const T *rows, int64_t col) {
    const int64_t h = col / width;
    pack<float, N> sum{};
    for (int64_t e = begin; e < end; e += FLIGHT) {
        pack<T, N> v[FLIGHT];
        float w[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) { // past the end, read the last edge again
            const int64_t at = e + k < end ? e + k : end - 1;
            v[k] = load<T, N>(rows + indices[at] * (heads * width) + col);
            w[k] = alpha[(edges ? edges[at] : at) * heads + h];
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (e + k >= end) break;
#pragma unroll
            for (int i = 0; i < N; i++) sum.at[i] += to_float(v[k].at[i]) * w[k];
        }
    }
    return sum;
}

// by_head is how one warp goes over the numbers [edges,heads) of a segment. In a round it takes as
// many edges as it has lanes for, with one head of an edge in each lane, so that neighbouring lanes
// read neighbouring numbers. If there are more heads than lanes, it takes them in turn.
struct by_head {
    int heads, edges; // heads and edges of a round; heads is a power of two
    __device__ explicit by_head(int64_t all) {
        heads = 1;
        while (heads < WARP && heads < all) heads *= 2;
        edges = WARP / heads;
    }
    __device__ int64_t head(int64_t first) const { return first + my_lane() % heads; }
    __device__ int64_t edge(int64_t first) const { return first + my_lane() / heads; }
    // add adds the numbers of a round, in edge order.
    __device__ void add(float &sum, float v) const {
        for (int k = 0; k < edges; k++)
            sum += __shfl_sync(0xffffffffu, v, k * heads + static_cast<int>(my_lane()) % heads);
    }
    __device__ float largest(float v) const {
        for (int mask = WARP / 2; mask >= heads; mask /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, v, mask);
            v = other > v || other != other ? other : v;
        }
        return v;
    }
};

// weigh sets alpha to the softmax of score(e, h) over the edges [begin,end), by one warp, whose
// lanes may then read all of it.
template <typename Score>
__device__ inline void weigh(float *alpha, int64_t heads, int64_t begin, int64_t end,
                             const Score &score) {
    const by_head by(heads);
    for (int64_t first = 0; first < heads; first += by.heads) {
        const int64_t h = by.head(first);
        float most = -INFINITY, sum = 0;
        for (int64_t e = by.edge(begin); h < heads && e < end; e += by.edges) {
            const float v = score(e, h);
            alpha[e * heads + h] = v;
            most = v > most || v != v ? v : most;
        }
        most = by.largest(most);
        for (int64_t round = begin; round < end; round += by.edges) {
            const int64_t e = by.edge(round);
            float v = 0;
            if (h < heads && e < end) {
                v = exact_exp(alpha[e * heads + h] - most);
                alpha[e * heads + h] = v;
            }
            by.add(sum, v);
        }
        for (int64_t e = by.edge(begin); h < heads && e < end; e += by.edges)
            alpha[e * heads + h] /= sum;
    }
    __syncwarp();
}

// attend makes the weights of a destination's edges and, unless y is null, the sum of their rows.
// One warp for each destination.
template <int N, typename T>
__global__ void attend(float *y, float *alpha, int64_t segments, int64_t heads, int64_t width,
                       const int64_t *indptr, const int32_t *indices, const float *src,
                       const float *dst, const T *z, float slope) {
    const int64_t d = my_row(), cols = heads * width;
    if (d >= segments) return;
    const int64_t begin = indptr[d], end = indptr[d + 1];
    weigh(alpha, heads, begin, end, [=](int64_t e, int64_t h) {
        const float v = src[indices[e] * heads + h] + dst[d * heads + h];
        return v > 0 ? v : v * slope;
    });
    for (int64_t j = my_lane() * N; y != nullptr && j < cols; j += WARP * N)
        store<float, N>(y + d * cols + j, weighted_row<N>(begin, end, heads, width, indices,
                                                          nullptr, alpha, z, j));
}

// dots_by_edge calls put(e, h) with the sum of term(x, y, j) over the columns j of head h, where x
// and y are the rows of edge e: others[indices[e]] and own. One warp does it, with one head for
// each group of lanes. It reads FLIGHT edges before it uses the first.
template <int N, typename X, typename Y, typename Term, typename Put>
__device__ inline void dots_by_edge(int64_t begin, int64_t end, int64_t heads, int64_t width,
                                    int lanes, const int32_t *indices, const X *others,
                                    const Y *own, const Term &term, const Put &put) {
    const int64_t cols = heads * width, column = my_lane() % lanes * N;
    for (int64_t head = 0; head < heads; head += WARP / lanes) {
        const int64_t h = head + my_lane() / lanes;
        const bool mine = h < heads;
        for (int64_t e = begin; e < end; e += FLIGHT) {
            float sum[FLIGHT] = {};
            for (int64_t j = column; mine && j < width; j += lanes * N) {
                const pack<Y, N> y = load<Y, N>(own + h * width + j);
                pack<X, N> x[FLIGHT];
#pragma unroll
                for (int k = 0; k < FLIGHT; k++) // past the end, read the last edge again
                    x[k] = load<X, N>(others + indices[e + k < end ? e + k : end - 1] * cols +
                                          h * width + j);
#pragma unroll
                for (int k = 0; k < FLIGHT; k++)
#pragma unroll
                    for (int i = 0; i < N; i++)
                        sum[k] += term(to_float(x[k].at[i]), to_float(y.at[i]),
                                       h * width + j + i);
            }
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                const float all = group_sum(sum[k], lanes);
                if (mine && column == 0 && e + k < end) put(e + k, h, all);
            }
        }
    }
}

__device__ inline float multiplied(float x, float y, int64_t) { return x * y; }

// attend_backward turns de, the gradients of the weights of a destination's edges, into those of
// the scores before LeakyReLU, and sums them. Unless dy is null, it first makes de from the rows z
// and the row of dy. One warp for each destination.
template <int N, typename T>
__global__ void attend_backward(float *de, float *ddst, int64_t segments, int64_t heads,
                                int64_t width, int lanes, const int64_t *indptr,
                                const int32_t *indices, const float *alpha, const float *src,
                                const float *dst, const T *z, const float *dy, float slope) {
    const int64_t d = my_row(), cols = heads * width;
    if (d >= segments) return;
    const int64_t begin = indptr[d], end = indptr[d + 1];
    if (dy != nullptr)
        dots_by_edge<N>(begin, end, heads, width, lanes, indices, z, dy + d * cols, multiplied,
                        [=](int64_t e, int64_t h, float sum) { de[e * heads + h] = sum; });
    __syncwarp();
    const by_head by(heads);
    for (int64_t first = 0; first < heads; first += by.heads) {
        const int64_t h = by.head(first);
        const float own = h < heads ? dst[d * heads + h] : 0;
        float mean = 0, sum = 0;
        for (int64_t round = begin; round < end; round += by.edges) {
            const int64_t e = by.edge(round), i = e * heads + h;
            by.add(mean, h < heads && e < end ? alpha[i] * de[i] : 0);
        }
        for (int64_t round = begin; round < end; round += by.edges) {
            const int64_t e = by.edge(round), i = e * heads + h;
            float to = 0;
            if (h < heads && e < end) {
                const float g = alpha[i] * (de[i] - mean);
                to = src[indices[e] * heads + h] + own > 0 ? g : g * slope;
                de[i] = to;
            }
            by.add(sum, to);
        }
        if (h < heads && by.edge(0) == 0) ddst[d * heads + h] = sum;
    }
}

// collect sums over the edges of each source, which the transposed segments list: the gradients of
// scores and, unless dz is null, rows of dy times the weights. One warp for each source.
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

// GATv2's weights. One warp for each destination.
template <int N>
__global__ void attend_pairs(float *alpha, int64_t segments, int64_t heads, int64_t width,
                             int lanes, const int64_t *indptr, const int32_t *indices,
                             const float *src, const float *dst, const float *a, float slope) {
    const int64_t d = my_row();
    if (d >= segments) return;
    dots_by_edge<N>(
        indptr[d], indptr[d + 1], heads, width, lanes, indices, src, dst + d * heads * width,
        [=](float x, float y, int64_t j) {
            const float u = x + y;
            return (u > 0 ? u : u * slope) * a[j];
        },
        [=](int64_t e, int64_t h, float sum) { alpha[e * heads + h] = sum; });
    __syncwarp();
    weigh(alpha, heads, indptr[d], indptr[d + 1],
          [=](int64_t e, int64_t h) { return alpha[e * heads + h]; });
}

// What the sums over a row's edges give: the row's gradient, set or added, or the row's part of the
// gradient of a.
enum score_sum { ROW, ROW_ADDED, VECTOR };

// score_sums sums, over the edges of each segment, the gradients with respect to u, the sum of the
// rows at an edge's ends; own has the row of each segment. edges has the index of each edge in de;
// NULL if that is its position. A pack lies within one head.
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
template <int N, typename T>
__global__ void weighted_sum(float *out, int64_t segments, int64_t heads, int64_t width, int lanes,
                             const int64_t *indptr, const int32_t *indices, const int32_t *edges,
                             const float *alpha, const T *rows) {
    const int64_t cols = heads * width;
    const place p = my_place(lanes, N);
    if (p.row >= segments || p.col >= cols) return;
    store<float, N>(out + p.row * cols + p.col,
                    weighted_row<N>(indptr[p.row], indptr[p.row + 1], heads, width, indices, edges,
                                    alpha, rows, p.col));
}

// One warp for each source.
template <int N, typename T>
__global__ void edge_dots(float *dalpha, int64_t segments, int64_t heads, int64_t width, int lanes,
                          const int64_t *t_indptr, const int32_t *t_indices, const int32_t *t_edges,
                          const T *z, const float *dy) {
    const int64_t s = my_row();
    if (s >= segments) return;
    dots_by_edge<N>(
        t_indptr[s], t_indptr[s + 1], heads, width, lanes, t_indices, dy, z + s * heads * width,
        multiplied,
        [=](int64_t e, int64_t h, float sum) { dalpha[t_edges[e] * heads + h] = sum; });
}

template <int N, typename T>
int weighted_n(halognn_cuda *c, float *out, int64_t segments, int64_t heads, int64_t width,
               const int64_t *indptr, const int32_t *indices, const int32_t *edges,
               const float *alpha, const T *rows) {
    const int64_t cols = heads * width;
    return LAUNCH(c, (weighted_sum<N, T>), grid_of(segments, cols, N), out, segments, heads, width,
                  lanes(cols, N), indptr, indices, edges, alpha, rows);
}

template <typename T>
int weighted(halognn_cuda *c, float *out, int64_t segments, int64_t heads, int64_t width,
             const int64_t *indptr, const int32_t *indices, const int32_t *edges,
             const float *alpha, const T *rows) {
    if (segments == 0 || width == 0) return 0;
    const auto both = [&](int n) {
        return fits(out, width, sizeof(float), n) && fits(rows, width, sizeof(T), n);
    };
    if (both(4))
        return weighted_n<4>(c, out, segments, heads, width, indptr, indices, edges, alpha, rows);
    if (both(2))
        return weighted_n<2>(c, out, segments, heads, width, indptr, indices, edges, alpha, rows);
    return weighted_n<1>(c, out, segments, heads, width, indptr, indices, edges, alpha, rows);
}

int collected(halognn_cuda *c, float *dz, float *dsrc, int64_t sources, int64_t heads,
              int64_t width, const int64_t *t_indptr, const int32_t *t_indices,
              const int32_t *t_edges, const float *alpha, const float *de, const float *dy) {
    if (sources == 0) return 0;
    return in_packs(width, {dz, dy}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, collect<N>, rows_by_warp(sources), dz, dsrc, sources, heads, width,
                      t_indptr, t_indices, t_edges, alpha, de, dy);
    });
}

int backward_of_scores(halognn_cuda *c, float *de, float *ddst, int64_t segments, int64_t heads,
                       int64_t width, const int64_t *indptr, const int32_t *indices,
                       const float *alpha, const float *src, const float *dst,
                       halognn_cuda_matrix z, const float *dy, float slope) {
    if (segments == 0) return 0;
    return in_packs(width, {z, dy}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return by_type(z, [=](auto *of) {
            using T = std::remove_pointer_t<decltype(of)>;
            return LAUNCH_TOGETHER(c, (attend_backward<N, T>), rows_by_warp(segments), de, ddst,
                                   segments, heads, width, group(width, N), indptr, indices, alpha,
                                   src, dst, static_cast<const T *>(of), dy, slope);
        });
    });
}

template <score_sum WHICH>
int score_sums_of(halognn_cuda *c, float *out, int64_t segments, int64_t heads, int64_t width,
                  const int64_t *indptr, const int32_t *indices, const int32_t *edges,
                  const float *de, const float *own, const float *others, const float *a,
                  float slope) {
    const int64_t cols = heads * width;
    if (segments == 0 || cols == 0) return 0;
    return in_packs(width, {out, own, others, a}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, (score_sums<WHICH, N>), grid_of(segments, cols, N), out, segments, heads,
                      width, lanes(cols, N), indptr, indices, edges, de, own, others, a, slope);
    });
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_attend(halognn_cuda *c, float *y, float *alpha, int64_t segments, int64_t heads,
                        int64_t width, const int64_t *indptr, const int32_t *indices,
                        const float *src, const float *dst, halognn_cuda_matrix z, float slope) {
    if (segments == 0) return 0;
    return in_packs(width, {y, z}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return by_type(z, [=](auto *of) {
            using T = std::remove_pointer_t<decltype(of)>;
            return LAUNCH_TOGETHER(c, (attend<N, T>), rows_by_warp(segments), y, alpha, segments,
                                   heads, width, indptr, indices, src, dst,
                                   static_cast<const T *>(of), slope);
        });
    });
}

int halognn_cuda_edge_softmax(halognn_cuda *c, float *alpha, int64_t segments, int64_t heads,
                              const int64_t *indptr, const int32_t *indices, const float *src,
                              const float *dst, float slope) {
    return halognn_cuda_attend(c, nullptr, alpha, segments, heads, 0, indptr, indices, src, dst,
                               {}, slope);
}

int halognn_cuda_attend_backward(halognn_cuda *c, float *dz, float *dsrc, float *ddst, float *de,
                                 int64_t segments, int64_t sources, int64_t heads, int64_t width,
                                 const int64_t *indptr, const int32_t *indices,
                                 const int64_t *t_indptr, const int32_t *t_indices,
                                 const int32_t *t_edges, const float *alpha, const float *src,
                                 const float *dst, halognn_cuda_matrix z, const float *dy,
                                 float slope) {
    const int e = backward_of_scores(c, de, ddst, segments, heads, width, indptr, indices, alpha,
                                     src, dst, z, dy, slope);
    if (e != 0) return e;
    return collected(c, dz, dsrc, sources, heads, width, t_indptr, t_indices, t_edges, alpha, de,
                     dy);
}

int halognn_cuda_edge_softmax_backward(halognn_cuda *c, float *de, float *ddst, int64_t segments,
                                       int64_t heads, const int64_t *indptr, const int32_t *indices,
                                       const float *alpha, const float *src, const float *dst,
                                       float slope) {
    return backward_of_scores(c, de, ddst, segments, heads, 0, indptr, indices, alpha, src, dst,
                              {}, nullptr, slope);
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
    return in_packs(width, {src, dst}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH_TOGETHER(c, attend_pairs<N>, rows_by_warp(segments), alpha, segments,
                               heads, width, group(width, N), indptr, indices, src, dst, a,
                               slope);
    });
}

// The terms of da are made in ddst, before ddst gets its own sums.
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
                          halognn_cuda_matrix z) {
    return by_type(z, [=](auto *of) {
        return weighted(c, y, segments, heads, width, indptr, indices, nullptr, alpha, of);
    });
}

int halognn_cuda_edge_sum_backward(halognn_cuda *c, float *dz, float *dalpha, int64_t segments,
                                   int64_t heads, int64_t width, const int64_t *t_indptr,
                                   const int32_t *t_indices, const int32_t *t_edges,
                                   const float *alpha, halognn_cuda_matrix z, const float *dy) {
    if (segments == 0 || width == 0) return 0;
    if (int e = weighted(c, dz, segments, heads, width, t_indptr, t_indices, t_edges, alpha, dy))
        return e;
    return in_packs(width, {z, dy}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return by_type(z, [=](auto *of) {
            using T = std::remove_pointer_t<decltype(of)>;
            return LAUNCH_TOGETHER(c, (edge_dots<N, T>), rows_by_warp(segments), dalpha, segments,
                                   heads, width, group(width, N), t_indptr, t_indices, t_edges,
                                   static_cast<const T *>(of), dy);
        });
    });
}

}  // extern "C"
