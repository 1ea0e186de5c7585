// BatchNorm and what follows it: sums over the rows of a column in chunks, and maps of one
// thread an element.
#include "then.cuh"

namespace halognn {
namespace {

__global__ void means(float *mean, int64_t rows, int64_t cols, const float *x, float *partial,
                      uint32_t *arrived) {
    const int64_t j = item(), chunk = blockIdx.y, chunks = gridDim.y;
    if (j >= cols) return;
    partial[chunk * cols + j] =
        sum_in_order(chunk, rows, [=](int64_t r) { return x[r * cols + j]; });
    if (arrive(arrived + j, chunks))
        mean[j] = add_in_order(partial + j, cols, chunks) / static_cast<float>(rows);
}

__global__ void variances(float *variance, int64_t rows, int64_t cols, const float *x,
                          const float *mean, float *partial, uint32_t *arrived) {
    const int64_t j = item(), chunk = blockIdx.y, chunks = gridDim.y;
    if (j >= cols) return;
    const float m = mean[j];
    partial[chunk * cols + j] = sum_in_order(
        chunk, rows, [=](int64_t r) { return (x[r * cols + j] - m) * (x[r * cols + j] - m); });
    if (arrive(arrived + j, chunks))
        variance[j] = add_in_order(partial + j, cols, chunks) / static_cast<float>(rows);
}

__global__ void forward(float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                        const float *beta, const float *mean, const float *variance, float eps,
                        halognn_cuda_then then) {
    const int64_t i = item(), j = i % cols;
    if (i >= rows * cols) return;
    float v = (x[i] - mean[j]) * (1 / sqrtf(variance[j] + eps)) * gamma[j] + beta[j];
    if (then.add) v += then.add[i];
    y[i] = follow(then, v, drawn(then, i / cols), j);
}

// dy goes back through what followed, in place; then the sums of dy*n and of dy over the rows.
// partial [chunks,2,cols]
__global__ void parameter_sums(float *dgamma, float *dbeta, int64_t rows, int64_t cols, float *dy,
                               const float *x, const float *mean, const float *variance, float eps,
                               const float *y, halognn_cuda_then then, float *partial,
                               uint32_t *arrived) {
    const int64_t j = item(), chunk = blockIdx.y, chunks = gridDim.y;
    if (j >= cols) return;
    const float m = mean[j], s = 1 / sqrtf(variance[j] + eps);
    float *out = partial + chunk * 2 * cols + j;
    out[cols] = sum_back(dy, y, then, chunk, rows, cols, j);
    out[0] = sum_in_order(
        chunk, rows, [=](int64_t r) { return dy[r * cols + j] * ((x[r * cols + j] - m) * s); });
    if (!arrive(arrived + j, chunks)) return;
    dgamma[j] = add_in_order(partial + j, 2 * cols, chunks);
    dbeta[j] = add_in_order(partial + cols + j, 2 * cols, chunks);
}

__global__ void backward(float *dx, int64_t rows, int64_t cols, const float *dy, const float *x,
                         const float *gamma, const float *mean, const float *variance,
                         const float *dgamma, const float *dbeta, float eps) {
    const int64_t i = item(), j = i % cols;
    if (i >= rows * cols) return;
    const float n = static_cast<float>(rows), s = 1 / sqrtf(variance[j] + eps);
    dx[i] = gamma[j] * s * (dy[i] - dbeta[j] / n - (x[i] - mean[j]) * s * (dgamma[j] / n));
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_column_moments(halognn_cuda *c, float *mean, float *variance, int64_t rows,
                                int64_t cols, const float *x, float *scratch) {
    if (rows == 0 || cols == 0) return zero_both(c, mean, variance, cols);
    const dim3 grid = columns_by_chunk(rows, cols);
    if (int e = LAUNCH(c, means, grid, mean, rows, cols, x, scratch, c->arrived)) return e;
    return LAUNCH(c, variances, grid, variance, rows, cols, x, mean, scratch, c->arrived);
}

int halognn_cuda_batch_norm(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *x,
                            const float *gamma, const float *beta, const float *mean,
                            const float *variance, float eps, halognn_cuda_then then) {
    return rows > 0 && cols > 0 ? LAUNCH(c, forward, blocks(rows * cols), y, rows, cols, x, gamma,
                                         beta, mean, variance, eps, then)
                                : 0;
}

int halognn_cuda_batch_norm_backward(halognn_cuda *c, float *dx, float *dgamma, float *dbeta,
                                     int64_t rows, int64_t cols, float *dy, const float *x,
                                     const float *gamma, const float *mean, const float *variance,
                                     float eps, const float *y, halognn_cuda_then then,
                                     float *scratch) {
    if (rows == 0 || cols == 0) return zero_both(c, dgamma, dbeta, cols);
    if (int e = LAUNCH(c, parameter_sums, columns_by_chunk(rows, cols), dgamma, dbeta, rows, cols,
                       dy, x, mean, variance, eps, y, then, scratch, c->arrived))
        return e;
    return LAUNCH(c, backward, blocks(rows * cols), dx, rows, cols, dy, x, gamma, mean, variance,
                  dgamma, dbeta, eps);
}

}  // extern "C"
