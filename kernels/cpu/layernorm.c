/*
 * LayerNorm by rows. A sum along a row is computed as WAYS interleaved partial sums (column j is
 * added to sum j mod WAYS), which are then added in the order of a fixed tree. WAYS is the number
 * of lanes of a 512-bit vector at every level, so that AVX2 and AVX-512 round alike.
 */
#include <math.h>

#include "simd.h"

#define WAYS 16
#define WAY_VECS (WAYS / LANES)

typedef struct {
    vec v[WAY_VECS];
} ways;

ALWAYS_INLINE float tree(const ways *sum, const float tail[WAYS]) {
    float lane[WAYS];
    UNROLL for (int k = 0; k < WAY_VECS; k++) store(lane + k * LANES, sum->v[k]);
    for (int k = 0; k < WAYS; k++)
        lane[k] += tail[k];
    UNROLL for (int half = WAYS / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    }
    return lane[0];
}

ALWAYS_INLINE float sum_of(const float *x, int64_t cols) {
    ways sum = {0};
    float tail[WAYS] = {0};
    int64_t j = 0;
    for (; j + WAYS <= cols; j += WAYS) {
        UNROLL for (int k = 0; k < WAY_VECS; k++) sum.v[k] += load(x + j + k * LANES);
    }
    for (int k = 0; j < cols; j++, k++)
        tail[k] = x[j];
    return tree(&sum, tail);
}

ALWAYS_INLINE float sum_of_squares(const float *x, int64_t cols, float mean) {
    ways sum = {0};
    float tail[WAYS] = {0};
    int64_t j = 0;
    for (; j + WAYS <= cols; j += WAYS) {
        UNROLL for (int k = 0; k < WAY_VECS; k++) {
            const vec d = load(x + j + k * LANES) - mean;
            sum.v[k] += d * d;
        }
    }
    for (int k = 0; j < cols; j++, k++)
        tail[k] = (x[j] - mean) * (x[j] - mean);
    return tree(&sum, tail);
}

void LEVEL(layer_norm)(float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                       const float *beta, float *mean, float *rstd, float eps) {
    for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
        const float m = sum_of(x, cols) / (float)cols;
        const float s = 1.0f / sqrtf(sum_of_squares(x, cols, m) / (float)cols + eps);
        mean[r] = m;
        rstd[r] = s;
        INDEPENDENT for (int64_t j = 0; j < cols; j++) y[j] = (x[j] - m) * s * gamma[j] + beta[j];
    }
}

/* sums computes sum(g) and sum(g*n) of a row, where g = dy*gamma and n = (x-mean)*rstd. */
ALWAYS_INLINE void sums(const float *dy, const float *x, const float *gamma, int64_t cols,
                        float mean, float rstd, float *sum_g, float *sum_gn) {
    ways a = {0}, b = {0};
    float tail_a[WAYS] = {0}, tail_b[WAYS] = {0};
    int64_t j = 0;
    for (; j + WAYS <= cols; j += WAYS) {
        UNROLL for (int k = 0; k < WAY_VECS; k++) {
            const int64_t i = j + k * LANES;
            const vec g = load(dy + i) * load(gamma + i);
            a.v[k] += g;
            b.v[k] += g * ((load(x + i) - mean) * rstd);
        }
    }
    for (int k = 0; j < cols; j++, k++) {
        tail_a[k] = dy[j] * gamma[j];
        tail_b[k] = tail_a[k] * ((x[j] - mean) * rstd);
    }
    *sum_g = tree(&a, tail_a);
    *sum_gn = tree(&b, tail_b);
}

void LEVEL(layer_norm_backward)(float *dx, float *dgamma, float *dbeta, int64_t rows, int64_t cols,
                                const float *dy, const float *x, const float *gamma,
                                const float *mean, const float *rstd) {
    memset(dgamma, 0, (size_t)cols * sizeof *dgamma);
    memset(dbeta, 0, (size_t)cols * sizeof *dbeta);
    for (int64_t r = 0; r < rows; r++, dx += cols, dy += cols, x += cols) {
        const float m = mean[r], s = rstd[r];
        float mean_g, mean_gn;
        sums(dy, x, gamma, cols, m, s, &mean_g, &mean_gn);
        mean_g /= (float)cols;
        mean_gn /= (float)cols;
        INDEPENDENT for (int64_t j = 0; j < cols; j++) {
            const float d = dy[j], n = (x[j] - m) * s;
            dgamma[j] += d * n;
            dbeta[j] += d;
            dx[j] = s * (d * gamma[j] - mean_g - n * mean_gn);
        }
    }
}
