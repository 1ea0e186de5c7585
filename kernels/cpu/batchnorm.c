/* BatchNorm, and the sums of columns and maps of columns that it needs. Each takes one pass over
 * memory. */
#include <math.h>

#include "simd.h"

void LEVEL(column_squares)(float *sq, int64_t rows, int64_t cols, const float *x,
                           const float *mean) {
    memset(sq, 0, (size_t)cols * sizeof *sq);
    for (int64_t r = 0; r < rows; r++, x += cols) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++)
            sq[j] += (x[j] - mean[j]) * (x[j] - mean[j]);
    }
}

void LEVEL(batch_norm)(float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                       const float *beta, const float *mean, const float *variance, float eps) {
    for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++)
            y[j] = (x[j] - mean[j]) * (1.0f / sqrtf(variance[j] + eps)) * gamma[j] + beta[j];
    }
}

void LEVEL(batch_norm_sums)(float *dgamma, float *dbeta, int64_t rows, int64_t cols,
                            const float *dy, const float *x, const float *mean,
                            const float *variance, float eps) {
    memset(dgamma, 0, (size_t)cols * sizeof *dgamma);
    memset(dbeta, 0, (size_t)cols * sizeof *dbeta);
    for (int64_t r = 0; r < rows; r++, x += cols, dy += cols) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) {
            dgamma[j] += dy[j] * ((x[j] - mean[j]) * (1.0f / sqrtf(variance[j] + eps)));
            dbeta[j] += dy[j];
        }
    }
}

void LEVEL(batch_norm_backward)(float *dx, int64_t rows, int64_t cols, const float *dy,
                                const float *x, const float *gamma, const float *mean,
                                const float *variance, const float *dgamma, const float *dbeta,
                                float eps, int64_t all) {
    const float n = (float)all;
    for (int64_t r = 0; r < rows; r++, x += cols, dy += cols, dx += cols) {
        INDEPENDENT for (int64_t j = 0; j < cols; j++) {
            const float s = 1.0f / sqrtf(variance[j] + eps);
            dx[j] = gamma[j] * s * (dy[j] - dbeta[j] / n - (x[j] - mean[j]) * s * (dgamma[j] / n));
        }
    }
}
