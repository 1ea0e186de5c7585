/* Optimiser updates: one pass over parameters, gradient and state. The arrays are distinct. */
#include <math.h>

#include "simd.h"

void LEVEL(adam)(float *restrict p, float *restrict m, float *restrict v, int64_t n,
                 const float *restrict g, float l2, float decay, float beta1, float one_minus_beta1,
                 float beta2, float one_minus_beta2, float step, float root, float eps) {
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] + l2 * p[i];
        m[i] = beta1 * m[i] + one_minus_beta1 * d;
        v[i] = beta2 * v[i] + one_minus_beta2 * d * d;
        p[i] = decay * p[i] - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

void LEVEL(sgd)(float *restrict p, float *restrict buf, int64_t n, const float *restrict g,
                float l2, float momentum, float lr, int first) {
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] + l2 * p[i];
        buf[i] = first ? d : momentum * buf[i] + d;
        p[i] -= lr * buf[i];
    }
}
