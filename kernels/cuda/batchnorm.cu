// BatchNorm: sums over the rows of a column in chunks, and maps of one thread an element.
#include "reduce.cuh"

namespace halognn {
namespace {

__global__ void chunk_squares(float *partial, int64_t rows, int64_t cols, const float *x, const float *mean) {
    const int64_t j = item(), chunk = blockIdx.y;
    if (j >= cols) return;
    const float m = mean[j];
    partial[chunk * cols + j] = sum_in_order(chunk, rows, [=](int64_t r) { return (x[r * cols + j] - m) * (x[r * cols + j] - m); });
}

__global__ void divide(float *sum, int64_t cols, int64_t rows) {
    const int64_t j = item();
    if (j < cols) sum[j] /= static_cast<float>(rows);
}

__global__ void forward(float *y, int64_t rows, int64_t cols, const float *x, const float *gamma, const float *beta, const float *mean,
                        const float *variance, float eps) {
    const int64_t i = item(), j = i % cols;
    if (i < rows * cols) y[i] = (x[i] - mean[j]) * (1 / sqrtf(variance[j] + eps)) * gamma[j] + beta[j];
}

// partial [chunks,2,cols]: sums of dy*n and of dy over the rows of a chunk.
__global__ void parameter_sums(float *partial, int64_t rows, int64_t cols, const float *dy, const float *x, const float *mean,
                               const float *variance, float eps) {
    const int64_t j = item(), chunk = blockIdx.y;
    if (j >= cols) return;
    const float m = mean[j], s = 1 / sqrtf(variance[j] + eps);
    float *out = partial + chunk * 2 * cols + j;
    out[0] = sum_in_order(chunk, rows, [=](int64_t r) { return dy[r * cols + j] * ((x[r * cols + j] - m) * s); });
    out[cols] = sum_in_order(chunk, rows, [=](int64_t r) { return dy[r * cols + j]; });
}

__global__ void backward(float *dx, int64_t rows, int64_t cols, const float *dy, const float *x, const float *gamma, const float *mean,
                         const float *variance, const float *dgamma, const float *dbeta, float eps) {
    const int64_t i = item(), j = i % cols;
    if (i >= rows * cols) return;
    const float n = static_cast<float>(rows), s = 1 / sqrtf(variance[j] + eps);
    dx[i] = gamma[j] * s * (dy[i] - dbeta[j] / n - (x[i] - mean[j]) * s * (dgamma[j] / n));
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_column_moments(halognn_cuda *c, float *mean, float *variance, int64_t rows, int64_t cols, const float *x, float *scratch) {
    if (int e = halognn_cuda_column_sum(c, mean, rows, cols, x, scratch)) return e;
    if (rows == 0 || cols == 0) return add_partials(c, variance, cols, scratch, 0);
    if (int e = LAUNCH(c, divide, blocks(cols), mean, cols, rows)) return e;
    const dim3 grid = blocks(cols, BLOCK, static_cast<unsigned>(chunks(rows)));
    if (int e = LAUNCH(c, chunk_squares, grid, scratch, rows, cols, x, mean)) return e;
    if (int e = add_partials(c, variance, cols, scratch, chunks(rows))) return e;
    return LAUNCH(c, divide, blocks(cols), variance, cols, rows);
}

int halognn_cuda_batch_norm(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *x, const float *gamma, const float *beta,
                            const float *mean, const float *variance, float eps) {
    return rows > 0 && cols > 0 ? LAUNCH(c, forward, blocks(rows * cols), y, rows, cols, x, gamma, beta, mean, variance, eps) : 0;
}

int halognn_cuda_batch_norm_backward(halognn_cuda *c, float *dx, float *dgamma, float *dbeta, int64_t rows, int64_t cols, const float *dy,
                                     const float *x, const float *gamma, const float *mean, const float *variance, float eps, float *scratch) {
    if (cols == 0) return 0;
    if (rows > 0) {
        const dim3 grid = blocks(cols, BLOCK, static_cast<unsigned>(chunks(rows)));
        if (int e = LAUNCH(c, parameter_sums, grid, scratch, rows, cols, dy, x, mean, variance, eps)) return e;
    }
    if (int e = add_parameter_sums(c, dgamma, dbeta, cols, scratch, chunks(rows))) return e;
    if (rows == 0) return 0;
    return LAUNCH(c, backward, blocks(rows * cols), dx, rows, cols, dy, x, gamma, mean, variance, dgamma, dbeta, eps);
}

}  // extern "C"
