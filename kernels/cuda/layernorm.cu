// LayerNorm: one warp for each row, which stays in the caches between the passes over it.
#include "reduce.cuh"
#include "warp.cuh"

namespace halognn {
namespace {

__global__ void forward(float *y, int64_t rows, int64_t cols, const float *x, const float *gamma, const float *beta, float *mean,
                        float *rstd, float eps) {
    const int64_t r = my_row();
    if (r >= rows) return;
    const float *in = x + r * cols;
    float sum = 0, squares = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) sum += in[j];
    const float m = warp_sum(sum) / static_cast<float>(cols);
    for (int64_t j = my_lane(); j < cols; j += WARP) squares += (in[j] - m) * (in[j] - m);
    const float s = 1 / sqrtf(warp_sum(squares) / static_cast<float>(cols) + eps);
    for (int64_t j = my_lane(); j < cols; j += WARP) y[r * cols + j] = (in[j] - m) * s * gamma[j] + beta[j];
    if (my_lane() == 0) {
        mean[r] = m;
        rstd[r] = s;
    }
}

// partial [chunks,2,cols]: sums of dy*n and of dy over the rows of a chunk, n = (x-mean)*rstd.
__global__ void parameter_sums(float *partial, int64_t rows, int64_t cols, const float *dy, const float *x, const float *mean,
                               const float *rstd) {
    const int64_t j = item(), chunk = blockIdx.y;
    if (j >= cols) return;
    float *out = partial + chunk * 2 * cols + j;
    out[0] = sum_in_order(chunk, rows, [=](int64_t r) { return dy[r * cols + j] * ((x[r * cols + j] - mean[r]) * rstd[r]); });
    out[cols] = sum_in_order(chunk, rows, [=](int64_t r) { return dy[r * cols + j]; });
}

// dx = rstd * (g - mean(g) - n*mean(g*n)), g = dy*gamma; every lane reads its columns of dy before
// it writes them.
__global__ void backward(float *dx, int64_t rows, int64_t cols, const float *dy, const float *x, const float *gamma, const float *mean,
                         const float *rstd) {
    const int64_t r = my_row();
    if (r >= rows) return;
    const float *in = x + r * cols, *grad = dy + r * cols;
    const float m = mean[r], s = rstd[r];
    float g_sum = 0, gn_sum = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const float g = grad[j] * gamma[j];
        g_sum += g;
        gn_sum += g * ((in[j] - m) * s);
    }
    const float g_mean = warp_sum(g_sum) / static_cast<float>(cols), gn_mean = warp_sum(gn_sum) / static_cast<float>(cols);
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const float n = (in[j] - m) * s;
        dx[r * cols + j] = s * (grad[j] * gamma[j] - g_mean - n * gn_mean);
    }
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_layer_norm(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *x, const float *gamma, const float *beta,
                            float *mean, float *rstd, float eps) {
    return rows ? LAUNCH_TOGETHER(c, forward, rows_by_warp(rows), y, rows, cols, x, gamma, beta, mean, rstd, eps) : 0;
}

int halognn_cuda_layer_norm_backward(halognn_cuda *c, float *dx, float *dgamma, float *dbeta, int64_t rows, int64_t cols, const float *dy,
                                     const float *x, const float *gamma, const float *mean, const float *rstd, float *scratch) {
    if (cols == 0) return 0;
    if (rows > 0) { // the sums first: dx may be dy
        const dim3 grid = blocks(cols, BLOCK, static_cast<unsigned>(chunks(rows)));
        if (int e = LAUNCH(c, parameter_sums, grid, scratch, rows, cols, dy, x, mean, rstd)) return e;
    }
    if (int e = add_parameter_sums(c, dgamma, dbeta, cols, scratch, chunks(rows))) return e;
    return rows ? LAUNCH_TOGETHER(c, backward, rows_by_warp(rows), dx, rows, cols, dy, x, gamma, mean, rstd) : 0;
}

}  // extern "C"
