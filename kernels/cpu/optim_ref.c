#include <math.h>

#include "kernels.h"

void adam_ref(float *p, float *m, float *v, int64_t n, const float *g, float l2, float decay,
              float beta1, float one_minus_beta1, float beta2, float one_minus_beta2, float step,
              float root, float eps) {
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] + l2 * p[i];
        m[i] = beta1 * m[i] + one_minus_beta1 * d;
        v[i] = beta2 * v[i] + one_minus_beta2 * d * d;
        p[i] = decay * p[i] - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

void sgd_ref(float *p, float *buf, int64_t n, const float *g, float l2, float momentum, float lr,
             int first) {
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] + l2 * p[i];
        buf[i] = first ? d : momentum * buf[i] + d;
        p[i] -= lr * buf[i];
    }
}

/* Returns the sum of column c over a row's gradients. */
static float gradient(const int32_t *from, const int32_t *end, const float *grads, int64_t cols,
                      int64_t c) {
    float sum = grads[*from * cols + c];
    while (++from < end)
        sum += grads[*from * cols + c];
    return sum;
}

void sparse_adam_ref(float *p, float *m, float *v, int64_t n, int64_t cols, const int32_t *rows,
                     const int32_t *ptr, const int32_t *indices, const float *grads, float first,
                     float second, float decay, float step, float eps) {
    for (int64_t i = 0; i < n; i++) {
        const int32_t *from = indices + ptr[i], *end = indices + ptr[i + 1];
        float stays = 1;
        for (int64_t c = 0; c < cols && decay != 1; c++)
            if (gradient(from, end, grads, cols, c) != 0)
                stays = decay;
        for (int64_t c = 0; c < cols; c++) {
            const float g = gradient(from, end, grads, cols, c);
            const int64_t k = rows[i] * cols + c;
            m[k] += (g - m[k]) * first;
            v[k] += (g * g - v[k]) * second;
            p[k] = p[k] * stays + step * (m[k] / (sqrtf(v[k]) + eps));
        }
    }
}
