#include <math.h>
#include <string.h>

#include "kernels.h"

void column_squares_ref(float *sq, int64_t rows, int64_t cols, const float *x, const float *mean) {
    memset(sq, 0, (size_t)cols * sizeof *sq);
    for (int64_t r = 0; r < rows; r++, x += cols) {
        for (int64_t j = 0; j < cols; j++)
            sq[j] += (x[j] - mean[j]) * (x[j] - mean[j]);
    }
}

void batch_norm_ref(float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                    const float *beta, const float *mean, const float *variance, float eps) {
    for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
        for (int64_t j = 0; j < cols; j++)
            y[j] = (x[j] - mean[j]) * (1.0f / sqrtf(variance[j] + eps)) * gamma[j] + beta[j];
    }
}

void batch_norm_sums_ref(float *dgamma, float *dbeta, int64_t rows, int64_t cols, const float *dy,
                         const float *x, const float *mean, const float *variance, float eps) {
    memset(dgamma, 0, (size_t)cols * sizeof *dgamma);
    memset(dbeta, 0, (size_t)cols * sizeof *dbeta);
    for (int64_t r = 0; r < rows; r++, x += cols, dy += cols) {
        for (int64_t j = 0; j < cols; j++) {
            dgamma[j] += dy[j] * ((x[j] - mean[j]) * (1.0f / sqrtf(variance[j] + eps)));
            dbeta[j] += dy[j];
        }
    }
}

void batch_norm_backward_ref(float *dx, int64_t rows, int64_t cols, const float *dy, const float *x,
                             const float *gamma, const float *mean, const float *variance,
                             const float *dgamma, const float *dbeta, float eps, int64_t all) {
    const float n = (float)all;
    for (int64_t r = 0; r < rows; r++, x += cols, dy += cols, dx += cols) {
        for (int64_t j = 0; j < cols; j++) {
            const float s = 1.0f / sqrtf(variance[j] + eps);
            dx[j] = gamma[j] * s * (dy[j] - dbeta[j] / n - (x[j] - mean[j]) * s * (dgamma[j] / n));
        }
    }
}
