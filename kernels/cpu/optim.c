/* Optimiser updates, in one pass over parameters, gradient and state. These arrays must not
 * overlap. */
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

/* Number of columns of a row that are worked on at a time. Their sums stay in registers or in the
 * first-level cache. */
enum { STRIP = 64 };

/* sum [n] = the sum of the rows from[e] of grads over e < count. It sums n columns, of which column
 * 0 of grads is the first. */
ALWAYS_INLINE void add_gradients(float *restrict sum, int64_t n, int64_t cols,
                                 const int32_t *from, int64_t count, const float *grads) {
    const float *g = grads + from[0] * cols;
    for (int64_t j = 0; j < n; j++)
        sum[j] = g[j];
    for (int64_t e = 1; e < count; e++) {
        g = grads + from[e] * cols;
        for (int64_t j = 0; j < n; j++)
            sum[j] += g[j];
    }
}

void LEVEL(sparse_adam)(float *restrict p, float *restrict m, float *restrict v, int64_t n,
                        int64_t cols, const int32_t *rows, const int32_t *ptr,
                        const int32_t *indices, const float *grads, float first, float second,
                        float decay, float step, float eps) {
    float g[STRIP];
    for (int64_t i = 0; i < n; i++) {
        const int32_t *from = indices + ptr[i];
        const int64_t count = ptr[i + 1] - ptr[i], at = rows[i] * cols;
        float stays = 1;
        for (int64_t c = 0; c < cols && decay != 1; c += STRIP) {
            const int64_t w = cols - c < STRIP ? cols - c : STRIP;
            add_gradients(g, w, cols, from, count, grads + c);
            for (int64_t j = 0; j < w; j++)
                if (g[j] != 0)
                    stays = decay;
        }
        for (int64_t c = 0; c < cols; c += STRIP) {
            const int64_t w = cols - c < STRIP ? cols - c : STRIP;
            add_gradients(g, w, cols, from, count, grads + c);
            for (int64_t j = 0; j < w; j++) {
                const int64_t k = at + c + j;
                m[k] += (g[j] - m[k]) * first;
                v[k] += (g[j] * g[j] - v[k]) * second;
                p[k] = p[k] * stays + step * (m[k] / (sqrtf(v[k]) + eps));
            }
        }
    }
}
