// Attention: softmax over segments of edges, and sums weighted by head. Sums over edges run in edge
// order, so nothing depends on the mapping. If a sum runs along a head, a group of lanes divides
// the columns of the head into packs and adds them as a tree. A pack has 4 numbers if widths are
// multiples of 4, because all arrays of the program are aligned enough for this.
#include "exp.cuh"
#include "reduce.cuh"
#include "runs.cuh"
#include "stored.cuh"
#include "warp.cuh"

namespace halognn {
namespace {

// Rows in flight before the first is used, as in segment.cu.
constexpr int FLIGHT = 4;

// A warp keeps the numbers [edges,heads] of a segment in shared memory if they are not more than
// KEPT: 32 edges of 8 heads, 256 of one. Then it writes them once, for other kernels, and counts in
// 32 bits (Int). The numbers of longer segments are computed in the place of the result, in device
// memory.
constexpr int KEPT = 256;

// read_rows reads columns [col, col+N) of the rows of FLIGHT edges from e on, of n edges.
template <int N, typename Int, typename T>
__device__ inline void read_rows(pack<T, N> *v, Int e, Int n, const int32_t *indices, int64_t cols,
                                 const T *rows, int64_t col) {
#pragma unroll
    for (int k = 0; k < FLIGHT; k++) // past the end, read the last edge again
        v[k] = load<T, N>(rows + indices[e + k < n ? e + k : n - 1] * cols + col);
}

// weighted_row returns columns [col, col+N) of the sum of the rows of n edges, each column weighted
// by its head h. The columns lie within one head. If AHEAD, v has the rows of the first edges.
template <bool AHEAD, int N, typename Int, typename T>
__device__ inline pack<float, N> weighted_row(pack<T, N> *v, Int n, Int heads, Int h,
                                              const int32_t *indices, const float *alpha,
                                              int64_t cols, const T *rows, int64_t col) {
    pack<float, N> sum{};
    for (Int e = 0; e < n; e += FLIGHT) {
        if (!AHEAD || e > 0) read_rows<N>(v, e, n, indices, cols, rows, col);
        float w[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++)
            w[k] = alpha[(e + k < n ? e + k : n - 1) * heads + h];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (e + k >= n) break;
#pragma unroll
            for (int i = 0; i < N; i++) sum.at[i] += to_float(v[k].at[i]) * w[k];
        }
    }
    return sum;
}

// by_head is the order in which one warp goes over the numbers [edges,heads) of a segment. In a
// round it takes as many edges as it has lanes for, with one head of an edge in each lane, so that
// neighbouring lanes read neighbouring numbers. If there are more heads than lanes, it takes them
// in turn.
struct by_head {
    int heads, edges; // heads and edges of a round; heads is a power of two
    int head, edge;   // the lane's among them
    __device__ explicit by_head(int64_t all) {
        heads = 1;
        while (heads < WARP && heads < all) heads *= 2;
        edges = WARP / heads;
        head = static_cast<int>(my_lane()) % heads;
        edge = static_cast<int>(my_lane()) / heads;
    }
    // add adds the numbers of a round, in edge order.
    __device__ void add(float &sum, float v) const {
        for (int k = 0; k < edges; k++) sum += __shfl_sync(0xffffffffu, v, k * heads + head);
    }
    __device__ float largest(float v) const {
        for (int mask = WARP / 2; mask >= heads; mask /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, v, mask);
            v = other > v || other != other ? other : v;
        }
        return v;
    }
};

// weigh sets alpha to the softmax of score(e, h) over the n edges of a segment, by one warp. It
// makes the softmax in the array kept, which the lanes may then read.
template <typename Int, typename Score>
__device__ inline void weigh(float *kept, float *alpha, Int n, Int heads, const Score &score) {
    const by_head by(heads);
    for (Int first = 0; first < heads; first += by.heads) {
        const Int h = first + by.head;
        float most = -INFINITY, sum = 0;
        for (Int e = by.edge; h < heads && e < n; e += FLIGHT * by.edges) {
            float v[FLIGHT];
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) // past the end, read an edge again
                v[k] = score(e + k * by.edges < n ? e + k * by.edges : e, h);
#pragma unroll
            for (int k = 0; k < FLIGHT; k++) {
                if (e + k * by.edges >= n) break;
                kept[(e + k * by.edges) * heads + h] = v[k];
                most = v[k] > most || v[k] != v[k] ? v[k] : most;
            }
        }
        most = by.largest(most);
        for (Int round = 0; round < n; round += by.edges) {
            const Int e = round + by.edge;
            float v = 0;
            if (h < heads && e < n) {
                v = exact_exp(kept[e * heads + h] - most);
                kept[e * heads + h] = v;
            }
            by.add(sum, v);
        }
        for (Int e = by.edge; h < heads && e < n; e += by.edges) {
            const float v = kept[e * heads + h] / sum;
            kept[e * heads + h] = v;
            if (kept != alpha) alpha[e * heads + h] = v;
        }
    }
    __syncwarp();
}

// attend_one makes the weights of a destination's n edges and, unless y is null, the sum of their
// rows. The loads of the first rows are issued before it makes the weights.
template <int N, typename Int, typename T, typename Score>
__device__ inline void attend_one(float *y, float *kept, float *alpha, Int n, Int heads, Int width,
                                  const int32_t *indices, const T *z, const Score &score) {
    const int64_t cols = heads * width;
    const Int column = static_cast<Int>(my_lane()) * N;
    pack<T, N> v[FLIGHT];
    const bool sums = y != nullptr && n > 0;
    if (sums && column < cols) read_rows<N>(v, Int{0}, n, indices, cols, z, column);
    weigh(kept, alpha, n, heads, score);
    const auto put_sum = [&](Int j, auto ahead) {
        store<float, N>(y + j, weighted_row<decltype(ahead)::value, N>(
                                   v, n, heads, j / width, indices, kept, cols, z, j));
    };
    if (y != nullptr && column < cols) put_sum(column, std::true_type{});
    for (Int j = column + WARP * N; y != nullptr && j < cols; j += WARP * N)
        put_sum(j, std::false_type{});
}

// One warp for each destination.
template <int N, typename T>
__global__ void __launch_bounds__(BLOCK, 3) // registers
    attend(float *y, float *alpha, int64_t segments, int64_t heads, int64_t width,
           const int64_t *indptr, const int32_t *indices, const float *src, const float *dst,
           const T *z, float slope) {
    SHARED(float, kept, [BLOCK / WARP][KEPT]);
    const int64_t d = my_row();
    if (d >= segments) return;
    const int64_t begin = indptr[d], n = indptr[d + 1] - begin;
    indices += begin;
    alpha += begin * heads;
    dst += d * heads;
    if (y != nullptr) y += d * heads * width;
    const auto score = [=](int64_t e, int64_t h) {
        const float v = src[indices[e] * heads + h] + dst[h];
        return v > 0 ? v : v * slope;
    };
    if (n * heads <= KEPT)
        attend_one<N>(y, kept[threadIdx.x / WARP], alpha, static_cast<int>(n),
                      static_cast<int>(heads), static_cast<int>(width), indices, z, score);
    else
        attend_one<N>(y, alpha, alpha, n, heads, width, indices, z, score);
}

// dots_by_edge calls put(e, h) with the sum of term(x, y, j) over the columns j of head h, where x
// and y are the rows of edge e, of n: others[indices[e]] and own. One warp does it, with one head
// for each group of lanes. It reads FLIGHT edges before it uses the first.
template <int N, typename Int, typename X, typename Y, typename Term, typename Put>
__device__ inline void dots_by_edge(Int n, Int heads, Int width, int lanes, const int32_t *indices,
                                    const X *others, const Y *own, const Term &term,
                                    const Put &put) {
    const int64_t cols = heads * width;
    const int column = static_cast<int>(my_lane()) % lanes * N;
    for (Int head = 0; head < heads; head += WARP / lanes) {
        const Int h = head + static_cast<int>(my_lane()) / lanes;
        const bool mine = h < heads;
        for (Int e = 0; e < n; e += FLIGHT) {
            float sum[FLIGHT] = {};
            for (Int j = column; mine && j < width; j += lanes * N) {
                const pack<Y, N> y = load<Y, N>(own + h * width + j);
                pack<X, N> x[FLIGHT];
                read_rows<N>(x, e, n, indices, cols, others, h * width + j);
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
                if (mine && column == 0 && e + k < n) put(e + k, h, all);
            }
        }
    }
}

__device__ inline float multiplied(float x, float y, int64_t) { return x * y; }

// attend_one_back is for a destination with n edges. It turns de, the gradients of the attention
// weights of these edges, into the gradients of the scores before LeakyReLU, and sums them. Unless
// dy is null, it first makes de from the rows z and the row of dy.
template <int N, typename Int, typename T>
__device__ inline void attend_one_back(float *kept, float *de, float *ddst, Int n, Int heads,
                                       Int width, int lanes, const int32_t *indices,
                                       const float *alpha, const float *src, const float *dst,
                                       const T *z, const float *dy, float slope) {
    if (dy != nullptr)
        dots_by_edge<N>(n, heads, width, lanes, indices, z, dy, multiplied,
                        [=](Int e, Int h, float sum) { kept[e * heads + h] = sum; });
    else if (kept != de)
        for (Int i = static_cast<Int>(my_lane()); i < n * heads; i += WARP) kept[i] = de[i];
    __syncwarp();
    const by_head by(heads);
    for (Int first = 0; first < heads; first += by.heads) {
        const Int h = first + by.head;
        const float own = h < heads ? dst[h] : 0;
        float mean = 0, sum = 0;
        for (Int round = 0; round < n; round += by.edges) {
            const Int e = round + by.edge, i = e * heads + h;
            by.add(mean, h < heads && e < n ? alpha[i] * kept[i] : 0);
        }
        for (Int round = 0; round < n; round += by.edges) {
            const Int e = round + by.edge, i = e * heads + h;
            float to = 0;
            if (h < heads && e < n) {
                const float g = alpha[i] * (kept[i] - mean);
                to = src[int64_t{indices[e]} * heads + h] + own > 0 ? g : g * slope;
                de[i] = to;
            }
            by.add(sum, to);
        }
        if (h < heads && by.edge == 0) ddst[h] = sum;
    }
}

// One warp for each destination.
template <int N, typename T>
__global__ void attend_backward(float *de, float *ddst, int64_t segments, int64_t heads,
                                int64_t width, int lanes, const int64_t *indptr,
                                const int32_t *indices, const float *alpha, const float *src,
                                const float *dst, const T *z, const float *dy, float slope) {
    SHARED(float, kept, [BLOCK / WARP][KEPT]);
    const int64_t d = my_row();
    if (d >= segments) return;
    const int64_t begin = indptr[d], n = indptr[d + 1] - begin;
    indices += begin;
    alpha += begin * heads;
    de += begin * heads;
    dst += d * heads;
    ddst += d * heads;
    if (dy != nullptr) dy += d * heads * width;
    if (n * heads <= KEPT)
        attend_one_back<N>(kept[threadIdx.x / WARP], de, ddst, static_cast<int>(n),
                           static_cast<int>(heads), static_cast<int>(width), lanes, indices, alpha,
                           src, dst, z, dy, slope);
    else
        attend_one_back<N>(de, de, ddst, n, heads, width, lanes, indices, alpha, src, dst, z, dy,
                           slope);
}

// weighted_back sums, for the S sources from number first on, columns [col, col+N) of the rows of
// dy of their edges, weighted by head h. edges has the index of each edge in alpha.
template <int N, int S>
__device__ inline void weighted_back(float *dz, int64_t first, int64_t segments, int64_t heads,
                                     int64_t cols, const int64_t *t_indptr,
                                     const int32_t *t_indices, const int32_t *t_edges,
                                     const float *alpha, const float *dy, int64_t h, int64_t col) {
    struct ends {
        int32_t target, edge;
    };
    struct weighted {
        pack<float, N> row;
        float by;
    };
    pack<float, N> sum{};
    along<S>(
        first, segments, t_indptr, [=](int64_t e) { return ends{t_indices[e], t_edges[e]}; },
        [=](int64_t, const ends &at) {
            return weighted{load<float, N>(dy + at.target * cols + col),
                            alpha[at.edge * heads + h]};
        },
        [&](const weighted &x) {
#pragma unroll
            for (int i = 0; i < N; i++) sum.at[i] += x.row.at[i] * x.by;
        },
        [&](int64_t source) {
            store<float, N>(dz + source * cols + col, sum);
            sum = {};
        });
}

// collect sums over the edges of each source, which the transposed segments list: the gradients of
// scores and, unless dz is null, rows of dy times the weights. A warp has S sources.
template <int N, int S>
__global__ void collect(float *dz, float *dsrc, int64_t segments, int64_t heads, int64_t width,
                        const int64_t *t_indptr, const int32_t *t_indices, const int32_t *t_edges,
                        const float *alpha, const float *de, const float *dy) {
    const int64_t first = my_row() * S, cols = heads * width;
    if (first >= segments) return;
    const int n = static_cast<int>(heads);
    for (int i = static_cast<int>(my_lane()); i < S * n; i += WARP) {
        const int64_t s = first + i / n, h = i % n;
        if (s >= segments) break;
        float sum = 0;
#pragma unroll 4
        for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++) sum += de[t_edges[e] * heads + h];
        dsrc[s * heads + h] = sum;
    }
    for (int64_t j = my_lane() * N; dz != nullptr && j < cols; j += WARP * N)
        weighted_back<N, S>(dz, first, segments, heads, cols, t_indptr, t_indices, t_edges, alpha,
                            dy, j / width, j);
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

// attend_one_pair makes GATv2's weights of a destination's n edges and, unless y is null, the sum
// of the rows of src, which the warp has just read.
template <int N, typename Int>
__device__ inline void attend_one_pair(float *y, float *kept, float *alpha, Int n, Int heads,
                                       Int width, int lanes, const int32_t *indices,
                                       const float *src, const float *dst, const float *a,
                                       float slope) {
    dots_by_edge<N>(
        n, heads, width, lanes, indices, src, dst,
        [=](float x, float y, int64_t j) {
            const float u = x + y;
            return (u > 0 ? u : u * slope) * a[j];
        },
        [=](Int e, Int h, float sum) { kept[e * heads + h] = sum; });
    __syncwarp();
    weigh(kept, alpha, n, heads, [=](Int e, Int h) { return kept[e * heads + h]; });
    const int64_t cols = heads * width;
    for (Int j = static_cast<Int>(my_lane()) * N; y != nullptr && j < cols; j += WARP * N) {
        pack<float, N> v[FLIGHT];
        store<float, N>(y + j, weighted_row<false, N>(v, n, heads, j / width, indices, kept, cols,
                                                      src, j));
    }
}

// One warp for each destination.
template <int N>
__global__ void attend_pairs(float *y, float *alpha, int64_t segments, int64_t heads, int64_t width,
                             int lanes, const int64_t *indptr, const int32_t *indices,
                             const float *src, const float *dst, const float *a, float slope) {
    SHARED(float, kept, [BLOCK / WARP][KEPT]);
    const int64_t d = my_row();
    if (d >= segments) return;
    const int64_t begin = indptr[d], n = indptr[d + 1] - begin;
    indices += begin;
    alpha += begin * heads;
    dst += d * heads * width;
    if (y != nullptr) y += d * heads * width;
    if (n * heads <= KEPT)
        attend_one_pair<N>(y, kept[threadIdx.x / WARP], alpha, static_cast<int>(n),
                           static_cast<int>(heads), static_cast<int>(width), lanes, indices, src,
                           dst, a, slope);
    else
        attend_one_pair<N>(y, alpha, alpha, n, heads, width, lanes, indices, src, dst, a, slope);
}

// score_sum says what score_sums computes from the edges of a row. ROW stores the gradient of the
// row. ROW_ADDED adds it to the gradient that is there already. VECTOR stores the part that the row
// contributes to the gradient of the vector a.
enum score_sum { ROW, ROW_ADDED, VECTOR };

// score_sums computes for each segment what WHICH says, as a sum over the edges of the segment. For
// an edge, u is the sum of the rows at its two ends. The array own has the row of each segment. The
// array edges has the index of each edge in de; it is NULL if the index is the edge's position. A
// pack lies within one head. A thread computes S segments.
template <score_sum WHICH, int N, int S>
__global__ void score_sums(float *out, int64_t segments, int64_t heads, int64_t width, int lanes,
                           const int64_t *indptr, const int32_t *indices, const int32_t *edges,
                           const float *de, const float *own, const float *others, const float *a,
                           float slope) {
    const int64_t cols = heads * width;
    const place p = my_place(lanes, N);
    if (p.row > (segments - 1) / S || p.col >= cols) return;
    const int64_t h = p.col / width, first = p.row * S;
    pack<float, N> mine[S + 1] = {}, before[S + 1] = {}, sum{}; // of segments not yet stored
#pragma unroll
    for (int s = 0; s < S; s++) { // past the end, read the last segment's again
        const int64_t at = (first + s < segments ? first + s : segments - 1) * cols + p.col;
        mine[s] = load<float, N>(own + at);
        if (WHICH == ROW_ADDED) before[s] = load<float, N>(out + at);
    }
    const pack<float, N> factor = load<float, N>(a + p.col);
    struct ends {
        int32_t other, edge;
    };
    struct scored {
        pack<float, N> other;
        float g;
    };
    along<S>(
        first, segments, indptr,
        [=](int64_t e) { return ends{indices[e], edges ? edges[e] : 0}; },
        [=](int64_t e, const ends &at) {
            return scored{load<float, N>(others + at.other * cols + p.col),
                          de[(edges ? at.edge : e) * heads + h]};
        },
        [&](const scored &x) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float u = x.other.at[i] + mine[0].at[i];
                const float part = u > 0 ? x.g : x.g * slope;
                sum.at[i] += WHICH == VECTOR ? part * u : part;
            }
        },
        [&](int64_t segment) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (WHICH != VECTOR) sum.at[i] *= factor.at[i];
                if (WHICH == ROW_ADDED) sum.at[i] += before[0].at[i];
            }
            store<float, N>(out + segment * cols + p.col, sum);
            sum = {};
#pragma unroll
            for (int s = 0; s + 1 < S; s++) {
                mine[s] = mine[s + 1];
                before[s] = before[s + 1];
            }
        });
}

// weighted_sum is a weighted_row for each segment.
template <int N, typename T>
__global__ void weighted_sum(float *out, int64_t segments, int64_t heads, int64_t width, int lanes,
                             const int64_t *indptr, const int32_t *indices, const float *alpha,
                             const T *rows) {
    const int64_t cols = heads * width;
    const place p = my_place(lanes, N);
    if (p.row >= segments || p.col >= cols) return;
    const int64_t begin = indptr[p.row], n = indptr[p.row + 1] - begin;
    indices += begin;
    pack<T, N> v[FLIGHT];
    store<float, N>(out + p.row * cols + p.col,
                    weighted_row<false, N>(v, n, heads, p.col / width, indices,
                                           alpha + begin * heads, cols, rows, p.col));
}

// weighted_sum_back is a weighted_back for each S sources.
template <int N, int S>
__global__ void weighted_sum_back(float *dz, int64_t segments, int64_t heads, int64_t width,
                                  int lanes, const int64_t *t_indptr, const int32_t *t_indices,
                                  const int32_t *t_edges, const float *alpha, const float *dy) {
    const int64_t cols = heads * width;
    const place p = my_place(lanes, N);
    if (p.row > (segments - 1) / S || p.col >= cols) return;
    weighted_back<N, S>(dz, p.row * S, segments, heads, cols, t_indptr, t_indices, t_edges, alpha,
                        dy, p.col / width, p.col);
}

// One warp for each source.
template <int N, typename T>
__global__ void edge_dots(float *dalpha, int64_t segments, int64_t heads, int64_t width, int lanes,
                          const int64_t *t_indptr, const int32_t *t_indices, const int32_t *t_edges,
                          const T *z, const float *dy) {
    const int64_t s = my_row();
    if (s >= segments) return;
    const int64_t begin = t_indptr[s], n = t_indptr[s + 1] - begin;
    t_edges += begin;
    dots_by_edge<N>(
        n, heads, width, lanes, t_indices + begin, dy, z + s * heads * width, multiplied,
        [=](int64_t e, int64_t h, float sum) { dalpha[t_edges[e] * heads + h] = sum; });
}

// sum_and_dots does the work of weighted_sum_back and edge_dots, but reads each row of dy only
// once. A group of lanes has a head, and each lane has one pack of the head. A warp has S sources.
template <int N, int S, typename T>
__global__ void sum_and_dots(float *dz, float *dalpha, int64_t segments, int64_t heads,
                             int64_t width, int lanes, const int64_t *t_indptr,
                             const int32_t *t_indices, const int32_t *t_edges, const float *alpha,
                             const T *z, const float *dy) {
    const int64_t first = my_row() * S, cols = heads * width;
    if (first >= segments) return;
    struct ends {
        int32_t target, edge;
    };
    struct weighted {
        pack<float, N> row;
        float by;
        int32_t edge;
    };
    for (int64_t strip = 0; strip < cols; strip += WARP * N) {
        const int64_t j = strip + my_lane() * N, col = j < cols ? j : 0, h = col / width;
        const bool mine = j < cols, leads = mine && my_lane() % lanes == 0;
        pack<T, N> own[S + 1] = {}; // of the sources that are left
#pragma unroll
        for (int s = 0; s < S; s++) // past the end, read the last one's again
            own[s] = load<T, N>(z + (first + s < segments ? first + s : segments - 1) * cols + col);
        pack<float, N> sum{};
        along<S>(
            first, segments, t_indptr, [=](int64_t e) { return ends{t_indices[e], t_edges[e]}; },
            [=](int64_t, const ends &at) {
                return weighted{load<float, N>(dy + at.target * cols + col),
                                alpha[at.edge * heads + h], at.edge};
            },
            [&](const weighted &x) {
                float dot = 0;
#pragma unroll
                for (int i = 0; i < N; i++) {
                    sum.at[i] += x.row.at[i] * x.by;
                    dot += x.row.at[i] * to_float(own[0].at[i]);
                }
                dot = group_sum(dot, lanes);
                if (leads) dalpha[x.edge * heads + h] = dot;
            },
            [&](int64_t source) {
                if (mine) store<float, N>(dz + source * cols + col, sum);
                sum = {};
#pragma unroll
                for (int s = 0; s + 1 < S; s++) own[s] = own[s + 1];
            });
    }
}

int collected(halognn_cuda *c, float *dz, float *dsrc, int64_t sources, int64_t heads,
              int64_t width, const int64_t *t_indptr, const int32_t *t_indices,
              const int32_t *t_edges, const float *alpha, const float *de, const float *dy) {
    if (sources == 0) return 0;
    const dim3 grid = rows_by_warp(ceil_div(sources, SEGMENTS));
    return in_packs(width, {dz, dy}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        if (grid.x >= c->large)
            return LAUNCH(c, (collect<N, SEGMENTS>), grid, dz, dsrc, sources, heads, width,
                          t_indptr, t_indices, t_edges, alpha, de, dy);
        return LAUNCH(c, (collect<N, 1>), rows_by_warp(sources), dz, dsrc, sources, heads, width,
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
        return by_segments(c, segments, cols, N, [=](auto s, dim3 grid) {
            constexpr int S = decltype(s)::value;
            return LAUNCH(c, (score_sums<WHICH, N, S>), grid, out, segments, heads, width,
                          lanes(cols, N), indptr, indices, edges, de, own, others, a, slope);
        });
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

int halognn_cuda_attend_pairs(halognn_cuda *c, float *y, float *alpha, int64_t segments,
                              int64_t heads, int64_t width, const int64_t *indptr,
                              const int32_t *indices, const float *src, const float *dst,
                              const float *a, float slope) {
    if (segments == 0) return 0;
    // The packs order the sums of the scores, so they depend on what is summed alone. If y does not
    // fit them, it is made afterwards.
    bool fit = false;
    const int e = in_packs(width, {src, dst}, [&](auto n) {
        constexpr int N = decltype(n)::value;
        fit = y == nullptr || all_fit(width, {y}, n);
        return LAUNCH_TOGETHER(c, attend_pairs<N>, rows_by_warp(segments), fit ? y : nullptr, alpha,
                               segments, heads, width, group(width, N), indptr, indices, src, dst,
                               a, slope);
    });
    if (e != 0 || fit) return e;
    return halognn_cuda_edge_sum(c, y, segments, heads, width, indptr, indices, alpha,
                                 {const_cast<float *>(src), 0, 0});
}

int halognn_cuda_edge_dot_softmax(halognn_cuda *c, float *alpha, int64_t segments, int64_t heads,
                                  int64_t width, const int64_t *indptr, const int32_t *indices,
                                  const float *src, const float *dst, const float *a, float slope) {
    return halognn_cuda_attend_pairs(c, nullptr, alpha, segments, heads, width, indptr, indices,
                                     src, dst, a, slope);
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
    if (segments == 0 || width == 0) return 0;
    const int64_t cols = heads * width;
    return in_even_packs(width, {y, z}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return by_type(z, [=](auto *of) {
            using T = std::remove_pointer_t<decltype(of)>;
            return LAUNCH(c, (weighted_sum<N, T>), grid_of(segments, cols, N), y, segments, heads,
                          width, lanes(cols, N), indptr, indices, alpha,
                          static_cast<const T *>(of));
        });
    });
}

int halognn_cuda_edge_sum_backward(halognn_cuda *c, float *dz, float *dalpha, int64_t segments,
                                   int64_t heads, int64_t width, const int64_t *t_indptr,
                                   const int32_t *t_indices, const int32_t *t_edges,
                                   const float *alpha, halognn_cuda_matrix z, const float *dy) {
    if (segments == 0 || width == 0) return 0;
    const int64_t cols = heads * width;
    const auto both = [=](auto n) {
        constexpr int N = decltype(n)::value;
        const int lanes = group(width, N);
        const dim3 grid = rows_by_warp(ceil_div(segments, SEGMENTS));
        return by_type(z, [=](auto *of) {
            using T = std::remove_pointer_t<decltype(of)>;
            const auto *rows = static_cast<const T *>(of);
            if (grid.x >= c->large)
                return LAUNCH_TOGETHER(c, (sum_and_dots<N, SEGMENTS, T>), grid, dz, dalpha,
                                       segments, heads, width, lanes, t_indptr, t_indices, t_edges,
                                       alpha, rows, dy);
            return LAUNCH_TOGETHER(c, (sum_and_dots<N, 1, T>), rows_by_warp(segments), dz, dalpha,
                                   segments, heads, width, lanes, t_indptr, t_indices, t_edges,
                                   alpha, rows, dy);
        });
    };
    // A head is a pack of each lane of a group. The packs order the sums along a head, so they
    // depend on what is summed alone, as in edge_dots.
    bool fit = false;
    if (int e = in_packs(width, {z, dy}, [&](auto n) {
            fit = group(width, n) * n == width && all_fit(width, {dz}, n);
            return fit ? both(n) : 0;
        });
        e != 0 || fit)
        return e;
    const int e = in_even_packs(width, {dz, dy}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return by_segments(c, segments, cols, N, [=](auto s, dim3 grid) {
            constexpr int S = decltype(s)::value;
            return LAUNCH(c, (weighted_sum_back<N, S>), grid, dz, segments, heads, width,
                          lanes(cols, N), t_indptr, t_indices, t_edges, alpha, dy);
        });
    });
    if (e != 0) return e;
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
