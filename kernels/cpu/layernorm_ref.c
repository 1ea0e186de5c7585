#include <math.h>
#include <string.h>

#include "kernels.h"

void layer_norm_ref(float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                    const float *beta, float *mean, float *rstd, float eps) {
    for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
        float sum = 0, squares = 0;
        for (int64_t j = 0; j < cols; j++)
            sum += x[j];
        mean[r] = sum / (float)cols;
        for (int64_t j = 0; j < cols; j++)
            squares += (x[j] - mean[r]) * (x[j] - mean[r]);
        rstd[r] = 1.0f / sqrtf(squares / (float)cols + eps);
        for (int64_t j = 0; j < cols; j++)
            y[j] = (x[j] - mean[r]) * rstd[r] * gamma[j] + beta[j];
    }
}

/* With n = (x-mean)*rstd and g = dy*gamma:
 * dx = rstd * (g - mean(g) - n * mean(g*n)),  dgamma = dy*n,  dbeta = dy. */
void layer_norm_backward_ref(float *dx, float *dgamma, float *dbeta, int64_t rows, int64_t cols,
                             const float *dy, const float *x, const float *gamma, const float *mean,
                             const float *rstd) {
    memset(dgamma, 0, (size_t)cols * sizeof *dgamma);
    memset(dbeta, 0, (size_t)cols * sizeof *dbeta);
    for (int64_t r = 0; r < rows; r++, dx += cols, dy += cols, x += cols) {
        float sum = 0, dot = 0;
        for (int64_t j = 0; j < cols; j++) {
            sum += dy[j] * gamma[j];
            dot += dy[j] * gamma[j] * ((x[j] - mean[r]) * rstd[r]);
        }
        sum /= (float)cols;
        dot /= (float)cols;
        for (int64_t j = 0; j < cols; j++) {
            const float d = dy[j], n = (x[j] - mean[r]) * rstd[r];
            dgamma[j] += d * n;
            dbeta[j] += d;
            dx[j] = rstd[r] * (d * gamma[j] - sum - n * dot);
        }
    }
}
