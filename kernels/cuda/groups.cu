// Products of groups of rows with weights of their own. The number of launches does not grow with
// the number of groups: most rows lie in tiles, one batched product of cuBLAS multiplies all tiles
// of a size, and one kernel computes the rest of all groups. A group of more than `large` rows is
// left to products of its own, because these take longer than their launches.
#include "gemm.cuh"

namespace halognn {
namespace {

constexpr int ROWS = 8;    // rows of an output that a thread computes
constexpr int OUTPUTS = 4; // rows of a weight gradient that a thread computes

// grouping is where the groups of rows and their tiles lie.
struct grouping {
    const int32_t *ends;
    int64_t count, stride, large;
    int64_t sizes[2], tiles[2];
    int dropped; // low bits of factors; 0: none

    grouping(const halognn_cuda_groups &g, int dropped)
        : ends(g.ends), count(g.count), stride(g.stride), large(g.large),
          sizes{g.sizes[0], g.sizes[1]}, tiles{g.tiles[0], g.tiles[1]}, dropped(dropped) {}

    __host__ __device__ int64_t all_tiles() const { return tiles[0] + tiles[1]; }
    __device__ int64_t begin(int64_t g) const { return g > 0 ? ends[g - 1] : 0; }
    // The function rows returns the number of rows of a group; 0 if it is left to other products.
    __device__ int64_t rows(int64_t g) const {
        const int64_t n = ends[g] - begin(g);
        return n <= large ? n : 0;
    }
    // The function covered returns how many rows of n are in tiles of size i or before.
    __device__ int64_t covered(int64_t n, int i) const {
        const int64_t of_first = sizes[0] ? n / sizes[0] * sizes[0] : 0;
        return i == 0 || !sizes[1] ? of_first : of_first + (n - of_first) / sizes[1] * sizes[1];
    }
    // The function tiles_of returns the number of tiles of size i of n rows.
    __device__ int64_t tiles_of(int64_t n, int i) const {
        const int64_t before = i > 0 ? covered(n, 0) : 0;
        return sizes[i] ? (n - before) / sizes[i] : 0;
    }
    __device__ float factor(float x) const {
        if (dropped == 0) return x;
        const uint32_t bits = rounded(x, dropped);
        memcpy(&x, &bits, sizeof x);
        return x;
    }
};

// series is where matrices lie, one for each tile: the first at `of`, and how many bytes further
// for each group, row and tile before it.
struct series {
    const void *of;
    int64_t group, row, tile;

    __device__ const void *at(int64_t g, int64_t r, int64_t t) const {
        return static_cast<const char *>(of) + g * group + r * row + t * tile;
    }
};

// One thread writes the addresses of the two factors and the result of a tile to `at` [3, tiles].
// If `first` [2, groups] is not null, it gets the first tile of each size of each group that has
// such tiles.
__global__ void place(const void **at, int32_t *first, series a, series b, series to,
                      grouping all) {
    const int64_t t = item(), count = all.all_tiles();
    if (t >= count) return;
    const int i = t >= all.tiles[0];
    int64_t left = i ? t - all.tiles[0] : t, g = 0, n = all.rows(0);
    for (int64_t here; left >= (here = all.tiles_of(n, i)); n = all.rows(++g)) left -= here;
    if (first && left == 0) first[i * all.count + g] = static_cast<int32_t>(t);
    const int64_t row = all.begin(g) + (i ? all.covered(n, 0) : 0) + left * all.sizes[i];
    at[t] = a.at(g, row, t);
    at[count + t] = b.at(g, row, t);
    at[2 * count + t] = to.at(g, row, t);
}

// One thread makes column j of up to ROWS rows of
//   out[r,j] = sum over k of in[r,k] w_g[j,k], or, if turned, w_g[k,j]
// The rows are of one group and in no tile; `parts` threads share those of a group. Neighbouring
// threads have neighbouring columns and read the same rows.
template <bool turned, typename T>
__global__ void rest(float *out, int64_t cols, int64_t inner, const T *in, const float *w,
                     int64_t parts, grouping all) {
    const int64_t at = item(), j = at % cols, part = at / cols % parts, g = at / cols / parts;
    if (g >= all.count) return;
    const int64_t n = all.rows(g), end = all.begin(g) + n;
    const int64_t row = all.begin(g) + all.covered(n, 1) + part * ROWS;
    if (row >= end) return;
    const T *from[ROWS];
    const float *weights = w + g * all.stride + (turned ? j : j * inner);
    float sum[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) // beyond the group its last row is read again
        from[i] = in + (row + i < end ? row + i : end - 1) * inner;
    for (int64_t k = 0; k < inner; k++) {
        const float v = all.factor(weights[turned ? k * cols : k]);
#pragma unroll
        for (int i = 0; i < ROWS; i++) sum[i] += all.factor(to_float(from[i][k])) * v;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (row + i < end) out[(row + i) * cols + j] = sum[i];
}

// One thread makes column k of OUTPUTS rows of  dw_g[j,k] = sum of dy[r,j] x[r,k] over the rows r
// of group g: first those of its tiles, whose sums are in `sums` [tiles,o,f], then the others.
template <typename D, typename X>
__global__ void weights(float *dw, int64_t o, int64_t f, const D *dy, const X *x,
                        const int32_t *first, const float *sums, grouping all) {
    const int64_t at = item(), k = at % f, parts = (o + OUTPUTS - 1) / OUTPUTS;
    const int64_t g = at / f / parts, j = at / f % parts * OUTPUTS;
    if (g >= all.count || all.ends[g] - all.begin(g) > all.large) return;
    int64_t of[OUTPUTS];
    float sum[OUTPUTS] = {};
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) of[i] = j + i < o ? j + i : o - 1;
    const int64_t n = all.rows(g);
    for (int size = 0; size < 2; size++) {
        const int64_t tiles = all.tiles_of(n, size);
        const float *tile = tiles ? sums + first[size * all.count + g] * o * f + k : nullptr;
        for (int64_t t = 0; t < tiles; t++, tile += o * f)
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) sum[i] += tile[of[i] * f];
    }
    for (int64_t r = all.begin(g) + all.covered(n, 1); r < all.ends[g]; r++) {
        const float v = all.factor(to_float(x[r * f + k]));
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) sum[i] += all.factor(to_float(dy[r * o + of[i]])) * v;
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++)
        if (j + i < o) dw[g * all.stride + (j + i) * f + k] = sum[i];
}

// call has the arguments of a product of one tile. If n or k is 0, it is the number of rows of the
// tile.
struct call {
    cublasOperation_t ta, tb;
    int64_t m, n, k, lda, ldb;
};

// batched multiplies all tiles of factors of type T: those of each size in one product.
template <typename T>
int batched(halognn_cuda *c, const call &of, const halognn_cuda_groups &g, const grouping &all,
            series a, series b, series to) {
    const int64_t tiles = all.all_tiles();
    const auto number = [](int64_t x) { return static_cast<int>(x); };
    if (int e = LAUNCH(c, place, blocks(tiles), g.at, g.first, a, b, to, all)) return e;
    const void **at = g.at;
    for (int i = 0; i < 2; at += g.tiles[i++]) {
        if (g.tiles[i] == 0) continue;
        const int64_t n = of.n ? of.n : g.sizes[i], k = of.k ? of.k : g.sizes[i];
        const int e = in_mode<T>(c, [&](cublasHandle_t handle) {
            return cublas.gemm_batched(
                handle, of.ta, of.tb, number(of.m), number(n), number(k), &one, at,
                cores<T>::type, number(of.lda), at + tiles, cores<T>::type, number(of.ldb), &zero,
                const_cast<void *const *>(at + 2 * tiles), CUDA_R_32F, number(of.m),
                number(g.tiles[i]), cores<T>::compute, CUBLAS_GEMM_DEFAULT);
        });
        if (e) return e;
    }
    return 0;
}

// forward sets out [rows,cols] to in [rows,inner] times the weights of each row's group, whose
// rows are the columns of `in` if turned.
template <bool turned>
int forward(halognn_cuda *c, float *out, halognn_cuda_matrix in, const float *w, int64_t rows,
            int64_t cols, int64_t inner, const halognn_cuda_groups &g, void *room, int dropped) {
    if (rows == 0 || cols == 0 || g.count == 0) return 0;
    const grouping all(g, dropped);
    const factors both{{{const_cast<float *>(w), 0, 0}, in},
                       {(g.count - 1) * g.stride + cols * inner, rows * inner}};
    const auto multiply = [&](auto *w, auto *x) {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(x)>>;
        constexpr int64_t size = sizeof(T), wide = sizeof(float);
        const call of{turned ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, cols, 0, inner,
                      turned ? cols : inner, inner};
        return batched<T>(c, of, g, all, {w, g.stride * size, 0, 0}, {x, 0, inner * size, 0},
                          {out, 0, cols * wide, 0});
    };
    if (all.all_tiles() > 0)
        if (int e = product(c, room, dropped, both, multiply)) return e;
    if (g.rest == 0) return 0;
    const int64_t parts = ceil_div(g.rest, ROWS);
    return by_type(in, [&](auto *from) {
        using T = std::remove_pointer_t<decltype(from)>;
        return LAUNCH(c, (rest<turned, T>), blocks(g.count * parts * cols), out, cols, inner,
                      static_cast<const T *>(from), w, parts, all);
    });
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_group_matmul(halognn_cuda *c, float *y, halognn_cuda_matrix x, const float *w,
                              int64_t rows, int64_t f, int64_t o, halognn_cuda_groups g,
                              void *rounded, int dropped) {
    return forward<false>(c, y, x, w, rows, o, f, g, rounded, dropped);
}

int halognn_cuda_group_matmul_input(halognn_cuda *c, float *x, halognn_cuda_matrix y,
                                    const float *w, int64_t rows, int64_t f, int64_t o,
                                    halognn_cuda_groups g, void *rounded, int dropped) {
    return forward<true>(c, x, y, w, rows, f, o, g, rounded, dropped);
}

int halognn_cuda_group_matmul_weights(halognn_cuda *c, float *w, halognn_cuda_matrix y,
                                      halognn_cuda_matrix x, int64_t rows, int64_t f, int64_t o,
                                      halognn_cuda_groups g, void *rounded, int dropped) {
    const int64_t items = g.count * ceil_div(o, OUTPUTS) * f;
    const grouping all(g, dropped);
    if (items == 0) return 0;
    const auto multiply = [&](auto *dy, auto *in) {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(in)>>;
        constexpr int64_t size = sizeof(T), wide = sizeof(float);
        const call of{CUBLAS_OP_N, CUBLAS_OP_T, f, o, 0, f, o};
        return batched<T>(c, of, g, all, {in, 0, f * size, 0}, {dy, 0, o * size, 0},
                          {g.sums, 0, 0, o * f * wide});
    };
    if (all.all_tiles() > 0)
        if (int e = product(c, rounded, dropped, {{y, x}, {rows * o, rows * f}}, multiply))
            return e;
    return by_types(y, x, [&](auto *dy, auto *in) {
        using D = std::remove_pointer_t<decltype(dy)>;
        using X = std::remove_pointer_t<decltype(in)>;
        return LAUNCH(c, (weights<D, X>), blocks(items), w, o, f, static_cast<const D *>(dy),
                      static_cast<const X *>(in), g.first, g.sums, all);
    });
}

}  // extern "C"
