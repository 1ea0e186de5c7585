// LayerNorm, and the activation and dropout after it. One warp computes a row, which stays in the
// caches between the passes over the row.
#include "reduce.cuh"
#include "then.cuh"
#include "warp.cuh"

namespace halognn {
namespace {

__global__ void forward(halognn_cuda_matrix y, int64_t rows, int64_t cols, const float *x,
                        const float *gamma, const float *beta, float *mean, float *rstd, float eps,
                        halognn_cuda_then then) {
    const int64_t r = my_row();
    if (r >= rows) return;
    const float *in = x + r * cols;
    float sum = 0, squares = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) sum += in[j];
    const float m = warp_sum(sum) / static_cast<float>(cols);
    for (int64_t j = my_lane(); j < cols; j += WARP) squares += (in[j] - m) * (in[j] - m);
    const float s = 1 / sqrtf(warp_sum(squares) / static_cast<float>(cols) + eps);
    const uint64_t row = drawn(then, r);
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        float v = (in[j] - m) * s * gamma[j] + beta[j];
        if (then.add.of) v += take<1>(then.add, r * cols + j).at[0];
        put<1>(y, r * cols + j, {follow(then, v, row, j)});
    }
    if (my_lane() == 0) {
        mean[r] = m;
        rstd[r] = s;
    }
}

// Backpropagates dy through activation and dropout, in place if it is of float32. Then it sums dy*n
// and dy over the rows, where n = (x-mean)*rstd. partial is [chunks,2,cols].
template <typename D, typename Y>
__global__ void BY_CHUNK parameter_sums(float *dgamma, float *dbeta, int64_t rows, int64_t cols,
                                        D *dy, const float *x, const float *mean,
                                        const float *rstd, const Y *y, halognn_cuda_then then,
                                        float *partial, uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    if (j >= cols) return;
    float *out = partial + chunk * 2 * cols + j;
    struct row {
        float x, mean, rstd;
    };
    const in_chunk in(chunk, rows, cols, j);
    x += in.at;
    mean += in.first;
    rstd += in.first;
    const two sum = sum_back<3>(
        dy, y, then, in_place<D>, in, j,
        [=](int r) { return row{x[r * in.cols], mean[r], rstd[r]}; },
        [=](float d, const row &v) { return two{d, d * ((v.x - v.mean) * v.rstd)}; });
    out[cols] = sum.a;
    out[0] = sum.b;
    if (!arrive(arrived + j, chunks)) return;
    dgamma[j] = add_in_order(partial + j, 2 * cols, chunks);
    dbeta[j] = add_in_order(partial + cols + j, 2 * cols, chunks);
}

// Computes dx = rstd * (g - mean(g) - n*mean(g*n)), where g = dy*gamma. Every lane reads its
// columns of dy before it writes them, so dx may be dy.
template <typename D, typename Y>
__global__ void backward(float *dx, int64_t rows, int64_t cols, const D *dy, const float *x,
                         const float *gamma, const float *mean, const float *rstd, const Y *y,
                         halognn_cuda_then then) {
    const int64_t r = my_row();
    if (r >= rows) return;
    const float *in = x + r * cols;
    const bool changes = !in_place<D> && then.activation != 0; // if false, y may be null
    const uint64_t row = changes ? drawn_back(then, r) : 0;
    const auto grad = [=](int64_t j) {
        const float d = to_float(dy[r * cols + j]);
        return changes ? follow_back(then, d, to_float(y[r * cols + j]), row, j) : d;
    };
    const float m = mean[r], s = rstd[r];
    float g_sum = 0, gn_sum = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const float g = grad(j) * gamma[j];
        g_sum += g;
        gn_sum += g * ((in[j] - m) * s);
    }
    const float g_mean = warp_sum(g_sum) / static_cast<float>(cols),
                gn_mean = warp_sum(gn_sum) / static_cast<float>(cols);
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const float n = (in[j] - m) * s;
        dx[r * cols + j] = s * (grad(j) * gamma[j] - g_mean - n * gn_mean);
    }
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_layer_norm(halognn_cuda *c, halognn_cuda_matrix y, int64_t rows, int64_t cols,
                            const float *x, const float *gamma, const float *beta, float *mean,
                            float *rstd, float eps, halognn_cuda_then then) {
    return rows ? LAUNCH_TOGETHER(c, forward, rows_by_warp(rows), y, rows, cols, x, gamma, beta,
                                  mean, rstd, eps, then)
                : 0;
}

int halognn_cuda_layer_norm_backward(halognn_cuda *c, float *dx, float *dgamma, float *dbeta,
                                     int64_t rows, int64_t cols, halognn_cuda_matrix dy,
                                     const float *x, const float *gamma, const float *mean,
                                     const float *rstd, halognn_cuda_matrix y,
                                     halognn_cuda_then then, float *scratch) {
    if (rows == 0 || cols == 0) return zero_both(c, dgamma, dbeta, cols);
    return by_types(dy, y, [&](auto *d, auto *of) {
        using D = std::remove_pointer_t<decltype(d)>;
        using Y = std::remove_pointer_t<decltype(of)>;
        // the sums are made first, because dx may be dy
        if (int e = LAUNCH(c, (parameter_sums<D, Y>), columns_by_chunk(rows, cols), dgamma, dbeta,
                           rows, cols, d, x, mean, rstd, static_cast<const Y *>(of), then, scratch,
                           c->arrived))
            return e;
        return LAUNCH_TOGETHER(c, (backward<D, Y>), rows_by_warp(rows), dx, rows, cols,
                               static_cast<const D *>(d), x, gamma, mean, rstd,
                               static_cast<const Y *>(of), then);
    });
}

}  // extern "C"
