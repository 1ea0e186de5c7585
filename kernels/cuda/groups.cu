// Products of groups of rows with weights of their own, all small groups of a call in one launch. A
// group of more than `large` rows is left to cuBLAS, because its product takes longer than a
// launch.
#include "stored.cuh"

namespace halognn {
namespace {

constexpr int ROWS = 8;    // rows of an output that a thread computes
constexpr int OUTPUTS = 4; // rows of a weight gradient that a thread computes

// grouping is where the groups of rows end, and how their weights lie.
struct grouping {
    const int32_t *ends;
    int64_t count, stride, large;
    int dropped; // low bits of factors; 0: none

    __device__ int64_t begin(int64_t g) const { return g > 0 ? ends[g - 1] : 0; }
    __device__ bool small(int64_t g) const { return ends[g] - begin(g) <= large; }
    // The function of returns the group of a row.
    __device__ int64_t of(int64_t row) const {
        int64_t lo = 0, hi = count;
        while (lo < hi) {
            const int64_t mid = (lo + hi) / 2;
            if (ends[mid] > row) hi = mid;
            else lo = mid + 1;
        }
        return lo;
    }
    __device__ float factor(float x) const {
        if (dropped == 0) return x;
        const uint32_t bits = rounded(x, dropped);
        memcpy(&x, &bits, sizeof x);
        return x;
    }
};

// One thread makes column j of up to ROWS rows, which may be of several groups, of
//   out[r,j] = sum over k of in[r,k] w_g[j,k], or, if turned, w_g[k,j]
// Neighbouring threads have neighbouring columns and read the same rows.
template <bool turned, typename T>
__global__ void product(float *out, int64_t rows, int64_t cols, int64_t inner, const T *in,
                        const float *w, grouping all) {
    const int64_t at = item(), j = at % cols;
    int64_t row = at / cols * ROWS;
    const int64_t last = row + ROWS < rows ? row + ROWS : rows;
    if (row >= last) return;
    for (int64_t g = all.of(row); row < last; g++) {
        const int64_t end = all.ends[g] < last ? all.ends[g] : last;
        if (end <= row) continue;
        if (all.small(g)) {
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
        row = end;
    }
}

// One thread makes column k of OUTPUTS rows of  dw_g[j,k] = sum of dy[r,j] x[r,k] over the rows r
// of group g, in order.
template <typename D, typename X>
__global__ void weights(float *dw, int64_t o, int64_t f, const D *dy, const X *x, grouping all) {
    const int64_t at = item(), k = at % f, parts = (o + OUTPUTS - 1) / OUTPUTS;
    const int64_t g = at / f / parts, j = at / f % parts * OUTPUTS;
    if (g >= all.count || !all.small(g)) return;
    int64_t of[OUTPUTS];
    float sum[OUTPUTS] = {};
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) of[i] = j + i < o ? j + i : o - 1;
    for (int64_t r = all.begin(g); r < all.ends[g]; r++) {
        const float v = all.factor(to_float(x[r * f + k]));
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) sum[i] += all.factor(to_float(dy[r * o + of[i]])) * v;
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++)
        if (j + i < o) dw[g * all.stride + (j + i) * f + k] = sum[i];
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_group_matmul(halognn_cuda *c, float *y, halognn_cuda_matrix x, const float *w,
                              int64_t rows, int64_t f, int64_t o, const int32_t *ends,
                              int64_t groups, int64_t stride, int64_t large, int dropped) {
    const int64_t items = ceil_div(rows, ROWS) * o;
    const grouping all{ends, groups, stride, large, dropped};
    if (items == 0) return 0;
    return by_type(x, [&](auto *in) {
        using T = std::remove_pointer_t<decltype(in)>;
        return LAUNCH(c, (product<false, T>), blocks(items), y, rows, o, f,
                      static_cast<const T *>(in), w, all);
    });
}

int halognn_cuda_group_matmul_input(halognn_cuda *c, float *x, halognn_cuda_matrix y,
                                    const float *w, int64_t rows, int64_t f, int64_t o,
                                    const int32_t *ends, int64_t groups, int64_t stride,
                                    int64_t large, int dropped) {
    const int64_t items = ceil_div(rows, ROWS) * f;
    const grouping all{ends, groups, stride, large, dropped};
    if (items == 0) return 0;
    return by_type(y, [&](auto *in) {
        using T = std::remove_pointer_t<decltype(in)>;
        return LAUNCH(c, (product<true, T>), blocks(items), x, rows, f, o,
                      static_cast<const T *>(in), w, all);
    });
}

int halognn_cuda_group_matmul_weights(halognn_cuda *c, float *w, halognn_cuda_matrix y,
                                      halognn_cuda_matrix x, int64_t f, int64_t o,
                                      const int32_t *ends, int64_t groups, int64_t stride,
                                      int64_t large, int dropped) {
    const int64_t items = groups * ceil_div(o, OUTPUTS) * f;
    const grouping all{ends, groups, stride, large, dropped};
    if (items == 0) return 0;
    return by_types(y, x, [&](auto *dy, auto *in) {
        using D = std::remove_pointer_t<decltype(dy)>;
        using X = std::remove_pointer_t<decltype(in)>;
        return LAUNCH(c, (weights<D, X>), blocks(items), w, o, f, static_cast<const D *>(dy),
                      static_cast<const X *>(in), all);
    });
}

}  // extern "C"
