// Gathering of rows, and means of rows over segments.
//
// Every thread has FLIGHT rows in flight before it uses the first: their addresses depend only on
// the indices, and no other work hides the latency of device memory. Edges are added in order, so
// the numbers do not depend on which thread computes them. Scattered rows are added group by group.
#include "runs.cuh"
#include "stored.cuh"
#include "then.cuh"

namespace halognn {
namespace {

constexpr int FLIGHT = 4;

// matrix and scattered give the address of row i.
template <typename T>
struct matrix {
    using element = T;
    static constexpr bool grouped = false;
    static constexpr bool scaled = false;
    const T *h;
    int64_t stride;
    __device__ const T *row(int64_t i) const { return h + i * stride; }
};

template <typename T>
matrix<T> rows_of(const halognn_cuda_matrix &h, int64_t cols) {
    return {static_cast<const T *>(h.of), h.stride ? h.stride : cols};
}

template <typename T>
struct scattered {
    using element = T;
    static constexpr bool grouped = true; // an index ~i is row i too, and begins a group
    static constexpr bool scaled = sizeof(T) == 1;
    const T *tables[HALOGNN_TABLES];
    const uint64_t *of;
    const float *scale; // factors of the columns of scaled rows; null for 1
    int64_t cols;
    __device__ const T *row(int64_t i) const {
        const uint64_t r = load<uint64_t, 1>(of + i).at[0];
        const T *table = tables[0];
        // no indexed access to parameters, which would move them to local memory
#pragma unroll
        for (int t = 1; t < HALOGNN_TABLES; t++)
            if (r >> HALOGNN_ROW_BITS == static_cast<uint64_t>(t)) table = tables[t];
        return table + static_cast<int64_t>(r & ((uint64_t{1} << HALOGNN_ROW_BITS) - 1)) * cols;
    }
};

template <typename T>
scattered<T> scatter(const halognn_cuda_rows *r, int64_t cols) {
    scattered<T> s;
    for (int t = 0; t < HALOGNN_TABLES; t++) s.tables[t] = static_cast<const T *>(r->tables[t]);
    s.of = r->of;
    s.scale = r->scale;
    s.cols = cols;
    return s;
}

// complete scales columns [col, col+N) of what was made from rows of source.
template <int N, typename Source>
__device__ inline void complete(pack<float, N> &x, int64_t col, const Source &source) {
    if constexpr (Source::scaled) {
        if (source.scale != nullptr) {
            const pack<float, N> by = load<float, N>(source.scale + col);
#pragma unroll
            for (int i = 0; i < N; i++) x.at[i] *= by.at[i];
        }
    }
}

template <int N, typename Source>
__global__ void gather(halognn_cuda_matrix dst, int64_t n, int64_t cols, int lanes, Source source) {
    using T = typename Source::element;
    const place p = my_place(lanes, N);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * (blockDim.x / lanes);
    if (p.col >= cols) return;
#pragma unroll 1
    for (int64_t first = p.row; first < n; first += FLIGHT * stride) {
        pack<T, N> v[FLIGHT];
#pragma unroll
        // Past the end, read a row again: a branch would serialise the loads.
        for (int k = 0; k < FLIGHT; k++) {
            const int64_t row = first + k * stride;
            v[k] = load<T, N>(source.row(row < n ? row : first) + p.col);
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (first + k * stride >= n) break;
            pack<float, N> out;
            for (int i = 0; i < N; i++) out.at[i] = to_float(v[k].at[i]);
            complete(out, p.col, source);
            put<N>(dst, (first + k * stride) * cols + p.col, out);
        }
    }
}

template <typename Source>
__device__ inline int64_t source_of(int32_t index) {
    return Source::grouped && index < 0 ? ~index : index;
}

// The weight of an edge e from row i in a sum: 1, its own weight, or the reciprocal of the length
// of the row's segment. One function (`read`) loads the data for it, and another (`of`) computes
// it.
struct plain {
    __device__ int read(int64_t, int64_t) const { return 1; }
    __device__ float of(int) const { return 1; }
    __device__ float apply(float v, float) const { return v; }
};
struct by_edge {
    const float *weights;
    __device__ float read(int64_t e, int64_t) const { return load<float, 1>(weights + e).at[0]; }
    __device__ float of(float weight) const { return weight; }
    __device__ float apply(float v, float w) const { return v * w; }
};
struct by_degree { // of at most 32 bits, so that the lower halves of the ends give it
    const int64_t *indptr;
    __device__ int read(int64_t, int64_t i) const {
        return static_cast<int>(load<int64_t, 1>(indptr + i + 1).at[0] -
                                load<int64_t, 1>(indptr + i).at[0]);
    }
    __device__ float of(int degree) const { return 1.0f / static_cast<float>(degree); }
    __device__ float apply(float v, float w) const { return v * w; }
};

// sums holds what has been added of a segment: the sum of the current group of edges, and the sum
// of the groups before.
template <int N>
struct sums {
    float group[N], before[N];
    bool first, alone; // nothing has been added; there is no group before
};

// add adds a row, of which the index says whether it begins a group.
template <typename Source, int N>
__device__ inline void add(sums<N> &s, const float *x, int32_t index) {
    const bool begins = Source::grouped && (s.first || index < 0);
    if (begins && !s.first) {
#pragma unroll
        for (int i = 0; i < N; i++) s.before[i] = s.alone ? s.group[i] : s.before[i] + s.group[i];
        s.alone = false;
    }
    s.first = false;
#pragma unroll
    for (int i = 0; i < N; i++) s.group[i] = begins ? x[i] : s.group[i] + x[i];
}

// add_segment returns the sum of columns [col, col+N) of the rows of a segment, in order.
template <int N, typename Source, typename Weight>
__device__ inline pack<float, N> add_segment(int64_t begin, int64_t end, const int32_t *indices,
                                             int64_t col, const Source &source,
                                             const Weight &weight) {
    using T = typename Source::element;
    sums<N> s{};
    s.first = s.alone = true;
    const int edges = static_cast<int>(end - begin);
    for (int e = 0; e < edges; e += FLIGHT) {
        pack<T, N> v[FLIGHT];
        int32_t index[FLIGHT];
        decltype(weight.read(0, 0)) weighs[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) // past the end, read the last edge again
            index[k] = indices[begin + (e + k < edges ? e + k : edges - 1)];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            const int64_t i = source_of<Source>(index[k]);
            v[k] = load<T, N>(source.row(i) + col);
            weighs[k] = weight.read(begin + (e + k < edges ? e + k : edges - 1), i);
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (e + k >= edges) break;
            // after the loads, because weight.of may divide, and so branch
            const float w = weight.of(weighs[k]);
            float x[N];
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = weight.apply(to_float(v[k].at[i]), w);
            add<Source>(s, x, index[k]);
        }
    }
    pack<float, N> sum;
#pragma unroll
    for (int i = 0; i < N; i++) sum.at[i] = s.alone ? s.group[i] : s.before[i] + s.group[i];
    return sum;
}

// copy_own copies the part of a thread's own row that p says, unless own is absent.
template <int N, typename Source>
__device__ inline void copy_own(const halognn_cuda_matrix &own, int64_t cols, const place &p,
                                const Source &source) {
    if (own.of == nullptr) return;
    const pack<typename Source::element, N> v =
        load<typename Source::element, N>(source.row(p.row) + p.col);
    pack<float, N> to;
#pragma unroll
    for (int i = 0; i < N; i++) to.at[i] = to_float(v.at[i]);
    complete(to, p.col, source);
    put<N>(own, place_in(own, cols, p.row, p.col), to);
}

template <int N, typename Source, typename Weight>
__global__ void reduce(halognn_cuda_matrix out, halognn_cuda_matrix own, int64_t segments,
                       int64_t cols, int lanes, const int64_t *indptr, const int32_t *indices,
                       Source source, Weight weight, bool mean, const int32_t *counts) {
    const place p = my_place(lanes, N);
    if (p.row >= segments || p.col >= cols) return;
    copy_own<N>(own, cols, p, source);
    const int64_t begin = indptr[p.row], end = indptr[p.row + 1];
    pack<float, N> sum = add_segment<N>(begin, end, indices, p.col, source, weight);
    if (mean && end > begin) {
#pragma unroll
        for (int i = 0; i < N; i++)
            sum.at[i] /= static_cast<float>(counts ? counts[p.row] : end - begin);
    }
    complete(sum, p.col, source);
    put<N>(out, place_in(out, cols, p.row, p.col), sum);
}

// largest finds maxima and, if arg is not null, the rows that they are in.
template <int N, typename Source>
__global__ void largest(halognn_cuda_matrix out, halognn_cuda_matrix own, int32_t *arg,
                        int64_t segments, int64_t cols, int lanes, const int64_t *indptr,
                        const int32_t *indices, Source source) {
    using T = typename Source::element;
    const place p = my_place(lanes, N);
    if (p.row >= segments || p.col >= cols) return;
    copy_own<N>(own, cols, p, source);
    const int64_t begin = indptr[p.row], end = indptr[p.row + 1];
    pack<float, N> most{};
    int32_t at[N];
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = -1;
    const int edges = static_cast<int>(end - begin);
    for (int e = 0; e < edges; e += FLIGHT) {
        pack<T, N> v[FLIGHT];
        int32_t i[FLIGHT];
        // past the end the last row is read again, and is not larger
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            const int64_t edge = begin + (e + f < edges ? e + f : edges - 1);
            i[f] = static_cast<int32_t>(source_of<Source>(indices[edge]));
            v[f] = load<T, N>(source.row(i[f]) + p.col);
        }
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float x = to_float(v[f].at[k]);
                // a NaN is larger, and stays
                if (at[k] < 0 || (most.at[k] == most.at[k] && !(x <= most.at[k]))) {
                    most.at[k] = x;
                    at[k] = i[f];
                }
            }
        }
    }
    complete(most, p.col, source);
    put<N>(out, place_in(out, cols, p.row, p.col), most);
    for (int k = 0; arg != nullptr && k < N; k++) arg[p.row * cols + p.col + k] = at[k];
}

// ending completes the sums of a run of S segments. It reads what it needs of them before their
// edges; BACK says whether the sums go back through what has made the rows `of`.
template <int N, int S, bool BACK>
struct ending {
    const halognn_cuda_ending &how;
    const int64_t cols, col;
    float factor = 1;
    pack<uint32_t, N> own[S + 1] = {}, of[BACK ? S + 1 : 2] = {}; // of the segments that are left

    __device__ ending(const halognn_cuda_ending &how, int64_t first, int64_t segments,
                      int64_t cols, int64_t col)
        : how(how), cols(cols), col(col) {
#pragma unroll
        for (int s = 0; s < S; s++) {
            if (first + s < how.rows)
                own[s] = hold<N>(how.own, place_in(how.own, cols, first + s, col));
            if (BACK && first + s < segments) of[s] = hold<N>(how.of, (first + s) * cols + col);
        }
        if (how.rows > 0 && how.scale) factor += *how.scale;
    }

    // complete returns the completed sum of the next segment, whose number it is given.
    __device__ pack<float, N> complete(pack<float, N> sum, int64_t segment) {
        if (segment < how.rows) {
            const pack<float, N> more = widen<N>(how.own, own[0]);
#pragma unroll
            for (int i = 0; i < N; i++) sum.at[i] += factor * more.at[i];
        }
        if (how.dropped > 0) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const uint32_t bits = rounded(sum.at[i], how.dropped);
                memcpy(&sum.at[i], &bits, sizeof bits);
            }
        }
        if (BACK) {
            const pack<float, N> y = widen<N>(how.of, of[0]);
            const uint64_t row = drawn_back(how.back, segment);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum.at[i] = follow_back(how.back, sum.at[i], y.at[i], row, col + i);
        }
#pragma unroll
        for (int s = 0; s + 1 < S; s++) {
            own[s] = own[s + 1];
            if (BACK) of[s] = of[s + 1];
        }
        return sum;
    }
};

template <int N, int S, bool BACK>
__global__ void largest_backward(halognn_cuda_matrix dh, int64_t segments, int64_t cols, int lanes,
                                 const int64_t *t_indptr, const int32_t *t_indices,
                                 const int32_t *arg, matrix<float> dout, halognn_cuda_ending how) {
    const place p = my_place(lanes, N);
    if (p.row > (segments - 1) / S || p.col >= cols) return;
    ending<N, S, BACK> end(how, p.row * S, segments, cols, p.col);
    struct edge {
        int32_t target;
        pack<int32_t, N> most;
        pack<float, N> d;
    };
    int32_t before = -1; // the target of the segment's edge before
    int64_t row = p.row * S;
    pack<float, N> sum{};
    along<S>(
        row, segments, t_indptr, [=](int64_t e) { return t_indices[e]; },
        [=](int64_t, int32_t t) {
            return edge{t, load<int32_t, N>(arg + t * cols + p.col),
                        load<float, N>(dout.row(t) + p.col)};
        },
        [&](const edge &x) {
            if (x.target == before) return; // an edge that is there twice counts once
            before = x.target;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (x.most.at[i] == row) sum.at[i] += x.d.at[i];
        },
        [&](int64_t segment) {
            put<N>(dh, segment * cols + p.col, end.complete(sum, segment));
            sum = {};
            before = -1;
            row = segment + 1;
        });
}

// weigh sums rows of h over segments, each times its edge's weight. The gradient of means is such a
// sum over the transposed segments.
template <int N, int S, bool BACK, typename T, typename Weight>
__global__ void weigh(halognn_cuda_matrix out, int64_t segments, int64_t cols, int lanes,
                      const int64_t *indptr, const int32_t *indices, Weight weight, matrix<T> h,
                      halognn_cuda_ending how, bool add) {
    const place p = my_place(lanes, N);
    if (p.row > (segments - 1) / S || p.col >= cols) return;
    ending<N, S, BACK> end(how, p.row * S, segments, cols, p.col);
    struct edge {
        pack<T, N> row;
        decltype(weight.read(0, 0)) weighs;
    };
    pack<float, N> sum{};
    along<S>(
        p.row * S, segments, indptr, [=](int64_t e) { return indices[e]; },
        [=](int64_t e, int32_t i) {
            return edge{load<T, N>(h.row(i) + p.col), weight.read(e, i)};
        },
        [&](const edge &x) {
            // after the reads, because weight.of may divide, and so branch
            const float w = weight.of(x.weighs);
#pragma unroll
            for (int i = 0; i < N; i++) sum.at[i] += weight.apply(to_float(x.row.at[i]), w);
        },
        [&](int64_t segment) {
            const int64_t to = segment * cols + p.col;
            if (add) {
                const pack<float, N> old = take<N>(out, to);
#pragma unroll
                for (int i = 0; i < N; i++) sum.at[i] = old.at[i] + sum.at[i];
            }
            put<N>(out, to, end.complete(sum, segment));
            sum = {};
        });
}

template <int N, typename Source>
int gather_n(halognn_cuda *c, halognn_cuda_matrix dst, int64_t n, int64_t cols,
             const Source &source) {
    return LAUNCH(c, (gather<N, Source>), grid_of(n, cols, N, FLIGHT), dst, n, cols, lanes(cols, N),
                  source);
}

// reduction is what segment_rows and segment_joined do to the rows of a source.
struct reduction {
    halognn_cuda_matrix out, own; // own may be absent
    int64_t segments, cols;
    const int64_t *indptr;
    const int32_t *indices;
    int how;
    const int32_t *counts; // what a mean divides by; null for the number of edges
    const float *weights;  // null without weights
};

template <int N, typename Source>
int reduce_n(halognn_cuda *c, const reduction &r, const Source &source) {
    const dim3 grid = grid_of(r.segments, r.cols, N);
    const int l = lanes(r.cols, N);
    if (r.how == HALOGNN_MAX)
        return LAUNCH(c, (largest<N, Source>), grid, r.out, r.own, static_cast<int32_t *>(nullptr),
                      r.segments, r.cols, l, r.indptr, r.indices, source);
    if (r.weights)
        return LAUNCH(c, (reduce<N, Source, by_edge>), grid, r.out, r.own, r.segments, r.cols, l,
                      r.indptr, r.indices, source, by_edge{r.weights}, false, r.counts);
    return LAUNCH(c, (reduce<N, Source, plain>), grid, r.out, r.own, r.segments, r.cols, l,
                  r.indptr, r.indices, source, plain{}, r.how == HALOGNN_MEAN, r.counts);
}

template <int N, typename T>
int largest_n(halognn_cuda *c, halognn_cuda_matrix out, halognn_cuda_matrix own, int32_t *arg,
              int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,
              matrix<T> h) {
    return LAUNCH(c, (largest<N, matrix<T>>), grid_of(segments, cols, N), out, own, arg, segments,
                  cols, lanes(cols, N), indptr, indices, h);
}

template <int N, bool BACK, typename T, typename Weight>
int weigh_n(halognn_cuda *c, halognn_cuda_matrix out, int64_t segments, int64_t cols,
            const int64_t *indptr, const int32_t *indices, const Weight &weight, matrix<T> h,
            const halognn_cuda_ending &end, bool add) {
    return by_segments(c, segments, cols, N, [&](auto s, dim3 grid) {
        constexpr int S = decltype(s)::value;
        return LAUNCH(c, (weigh<N, S, BACK, T, Weight>), grid, out, segments, cols, lanes(cols, N),
                      indptr, indices, weight, h, end, add);
    });
}

// with_packs calls f with the size of the packs that fit rows of T: up to 8 of bfloat16, 4 of
// float32.
template <typename T, typename Fits, typename F>
int with_packs(const Fits &fit, const F &f) {
    if constexpr (sizeof(T) == sizeof(bf16))
        if (fit(8)) return f(std::integral_constant<int, 8>{});
    if (fit(4)) return f(std::integral_constant<int, 4>{});
    if (fit(2)) return f(std::integral_constant<int, 2>{});
    return f(std::integral_constant<int, 1>{});
}

template <typename T, typename Weight>
int weigh_any(halognn_cuda *c, halognn_cuda_matrix out, int64_t segments, int64_t cols,
              const int64_t *indptr, const int32_t *indices, const Weight &weight,
              const halognn_cuda_matrix &h, const halognn_cuda_ending &end, bool add) {
    if (segments == 0 || cols == 0) return 0;
    const auto all = [&](int n) {
        return fits(out, cols, n) && fits(h, cols, n) && fits(end.own, cols, n) &&
               fits(end.of, cols, n);
    };
    return with_packs<T>(all, [&](auto n) {
        constexpr int N = decltype(n)::value;
        const matrix<T> rows = rows_of<T>(h, cols);
        if (end.of.of == nullptr)
            return weigh_n<N, false>(c, out, segments, cols, indptr, indices, weight, rows, end,
                                     add);
        if constexpr (std::is_same_v<T, float>) // gradients are
            return weigh_n<N, true>(c, out, segments, cols, indptr, indices, weight, rows, end,
                                    add);
        return static_cast<int>(cudaErrorInvalidValue);
    });
}

// fits_all reports whether packs of n fit the output, the scale and every table of rows.
template <typename T>
bool fits_all(const halognn_cuda_matrix &out, const halognn_cuda_rows *r, int64_t cols, int n) {
    bool ok = fits(out, cols, n) && fits(r->scale, cols, sizeof(float), n);
    for (const void *t : r->tables) ok = ok && fits(t, cols, sizeof(T), n);
    return ok;
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_gather_rows(halognn_cuda *c, halognn_cuda_matrix dst, int64_t n, int64_t cols,
                             const halognn_cuda_rows *r) {
    if (n == 0 || cols == 0) return 0;
    if (r->bytes == 1) {
        const auto s = scatter<int8_t>(r, cols);
        if (fits_all<int8_t>(dst, r, cols, 16)) return gather_n<16>(c, dst, n, cols, s);
        if (fits_all<int8_t>(dst, r, cols, 4)) return gather_n<4>(c, dst, n, cols, s);
        if (fits_all<int8_t>(dst, r, cols, 2)) return gather_n<2>(c, dst, n, cols, s);
        return gather_n<1>(c, dst, n, cols, s);
    }
    if (r->bytes == 2) {
        const auto s = scatter<__half>(r, cols);
        if (fits_all<__half>(dst, r, cols, 8)) return gather_n<8>(c, dst, n, cols, s);
        if (fits_all<__half>(dst, r, cols, 2)) return gather_n<2>(c, dst, n, cols, s);
        return gather_n<1>(c, dst, n, cols, s);
    }
    const auto s = scatter<float>(r, cols);
    if (fits_all<float>(dst, r, cols, 4)) return gather_n<4>(c, dst, n, cols, s);
    if (fits_all<float>(dst, r, cols, 2)) return gather_n<2>(c, dst, n, cols, s);
    return gather_n<1>(c, dst, n, cols, s);
}

int halognn_cuda_segment_rows(halognn_cuda *c, halognn_cuda_matrix out, halognn_cuda_matrix own,
                              int64_t segments, int64_t cols, const int64_t *indptr,
                              const int32_t *indices, int how, const int32_t *counts,
                              const float *weights, const halognn_cuda_rows *r) {
    if (segments == 0 || cols == 0) return 0;
    const reduction reduced{out, own, segments, cols, indptr, indices, how, counts, weights};
    const auto all = [&](auto zero, int n) {
        return fits_all<decltype(zero)>(out, r, cols, n) && fits(own, cols, n);
    };
    if (r->bytes == 1) {
        const auto s = scatter<int8_t>(r, cols);
        if (all(int8_t{}, 16)) return reduce_n<16>(c, reduced, s);
        if (all(int8_t{}, 4)) return reduce_n<4>(c, reduced, s);
        if (all(int8_t{}, 2)) return reduce_n<2>(c, reduced, s);
        return reduce_n<1>(c, reduced, s);
    }
    if (r->bytes == 2) {
        const auto s = scatter<__half>(r, cols);
        if (all(__half{}, 8)) return reduce_n<8>(c, reduced, s);
        if (all(__half{}, 2)) return reduce_n<2>(c, reduced, s);
        return reduce_n<1>(c, reduced, s);
    }
    const auto s = scatter<float>(r, cols);
    if (all(0.0f, 4)) return reduce_n<4>(c, reduced, s);
    if (all(0.0f, 2)) return reduce_n<2>(c, reduced, s);
    return reduce_n<1>(c, reduced, s);
}

int halognn_cuda_segment_mean(halognn_cuda *c, halognn_cuda_matrix out, int64_t segments,
                              int64_t cols, const int64_t *indptr, const int32_t *indices,
                              halognn_cuda_matrix h) {
    return halognn_cuda_segment_joined(c, out, {}, nullptr, segments, cols, indptr, indices,
                                       HALOGNN_MEAN, nullptr, h);
}

int halognn_cuda_segment_max(halognn_cuda *c, halognn_cuda_matrix out, int32_t *arg,
                             int64_t segments, int64_t cols, const int64_t *indptr,
                             const int32_t *indices, halognn_cuda_matrix h) {
    return halognn_cuda_segment_joined(c, out, {}, arg, segments, cols, indptr, indices,
                                       HALOGNN_MAX, nullptr, h);
}

int halognn_cuda_segment_joined(halognn_cuda *c, halognn_cuda_matrix out, halognn_cuda_matrix own,
                                int32_t *arg, int64_t segments, int64_t cols,
                                const int64_t *indptr, const int32_t *indices, int how,
                                const float *weights, halognn_cuda_matrix h) {
    if (segments == 0 || cols == 0) return 0;
    const reduction reduced{out, own, segments, cols, indptr, indices, how, nullptr, weights};
    const auto all = [&](int n) {
        return fits(out, cols, n) && fits(own, cols, n) && fits(h, cols, n);
    };
    return by_type(h, [&](auto *rows) {
        using T = std::remove_pointer_t<decltype(rows)>;
        return with_packs<T>(all, [&](auto n) {
            const matrix<T> source = rows_of<T>(h, cols);
            return how == HALOGNN_MAX
                       ? largest_n<n>(c, out, own, arg, segments, cols, indptr, indices, source)
                       : reduce_n<n>(c, reduced, source);
        });
    });
}

int halognn_cuda_segment_max_backward(halognn_cuda *c, halognn_cuda_matrix dh, int64_t segments,
                                      int64_t cols, const int64_t *t_indptr,
                                      const int32_t *t_indices, const int32_t *arg,
                                      halognn_cuda_matrix dout, halognn_cuda_ending end) {
    if (segments == 0 || cols == 0) return 0;
    return in_packs(cols, {dh, arg, dout, end.own, end.of}, [&](auto n) {
        constexpr int N = decltype(n)::value;
        return by_segments(c, segments, cols, N, [&](auto s, dim3 grid) {
            constexpr int S = decltype(s)::value;
            if (end.of.of == nullptr)
                return LAUNCH(c, (largest_backward<N, S, false>), grid, dh, segments, cols,
                              lanes(cols, N), t_indptr, t_indices, arg, rows_of<float>(dout, cols),
                              end);
            return LAUNCH(c, (largest_backward<N, S, true>), grid, dh, segments, cols,
                          lanes(cols, N), t_indptr, t_indices, arg, rows_of<float>(dout, cols),
                          end);
        });
    });
}

int halognn_cuda_segment_sum(halognn_cuda *c, halognn_cuda_matrix out, int64_t segments,
                             int64_t cols, const int64_t *indptr, const int32_t *indices,
                             const float *weights, halognn_cuda_matrix h, int add,
                             halognn_cuda_ending end) {
    return by_type(h, [&](auto *rows) {
        using T = std::remove_pointer_t<decltype(rows)>;
        if (weights)
            return weigh_any<T>(c, out, segments, cols, indptr, indices, by_edge{weights}, h, end,
                                add != 0);
        return weigh_any<T>(c, out, segments, cols, indptr, indices, plain{}, h, end, add != 0);
    });
}

int halognn_cuda_segment_mean_backward(halognn_cuda *c, halognn_cuda_matrix dh, int64_t segments,
                                       int64_t cols, const int64_t *t_indptr,
                                       const int32_t *t_indices, const int64_t *indptr,
                                       halognn_cuda_matrix dout, halognn_cuda_ending end) {
    return weigh_any<float>(c, dh, segments, cols, t_indptr, t_indices, by_degree{indptr}, dout,
                            end, false);
}

}  // extern "C"
