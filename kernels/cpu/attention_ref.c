#include <string.h>

#include "exp.h"
#include "kernels.h"
#include "rounding.h"

/* Sums over the columns of a head are computed as WAYS interleaved partial sums, as in
 * layer_norm. */
enum { WAYS = 16 };

static float tree(float sum[WAYS]) {
    for (int half = WAYS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            sum[k] += sum[k + half];
    return sum[0];
}

static float dot(const float *x, const float *y, int64_t n) {
    float sum[WAYS] = {0};
    for (int64_t j = 0; j < n; j++)
        sum[j % WAYS] += x[j] * y[j];
    return tree(sum);
}

void head_dot_ref(float *s, int64_t rows, int64_t heads, int64_t width, const float *z,
                  const float *a) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            s[r * heads + h] = dot(z + (r * heads + h) * width, a + h * width, width);
}

void head_dot_backward_ref(float *dz, float *da, int64_t rows, int64_t heads, int64_t width,
                           const float *ds, const float *z, const float *a) {
    const int64_t cols = heads * width;
    memset(da, 0, (size_t)cols * sizeof *da);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) {
            dz[r * cols + j] += ds[r * heads + j / width] * a[j];
            da[j] += ds[r * heads + j / width] * z[r * cols + j];
        }
}

static float leaky(float v, float slope) { return v > 0 ? v : v * slope; }

/* softmax turns the scores of each segment's edges into weights. */
static void softmax(float *alpha, int64_t segments, int64_t heads, const int64_t *indptr) {
    for (int64_t d = 0; d < segments; d++)
        for (int64_t h = 0; h < heads; h++) {
            float most = 0, sum = 0;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
                most = e == indptr[d] || alpha[e * heads + h] > most ? alpha[e * heads + h] : most;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++) {
                alpha[e * heads + h] = halognn_exp(alpha[e * heads + h] - most);
                sum += alpha[e * heads + h];
            }
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
                alpha[e * heads + h] /= sum;
        }
}

void edge_softmax_ref(float *alpha, int64_t segments, int64_t heads, const int64_t *indptr,
                      const int32_t *indices, const float *src, const float *dst, float slope) {
    for (int64_t d = 0; d < segments; d++)
        for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
            for (int64_t h = 0; h < heads; h++)
                alpha[e * heads + h] =
                    leaky(src[indices[e] * heads + h] + dst[d * heads + h], slope);
    softmax(alpha, segments, heads, indptr);
}

void edge_softmax_backward_ref(float *de, float *ddst, int64_t segments, int64_t heads,
                               const int64_t *indptr, const int32_t *indices, const float *alpha,
                               const float *src, const float *dst, float slope) {
    for (int64_t d = 0; d < segments; d++)
        for (int64_t h = 0; h < heads; h++) {
            float mean = 0, sum = 0;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
                mean += alpha[e * heads + h] * de[e * heads + h];
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++) {
                const float v = src[indices[e] * heads + h] + dst[d * heads + h];
                const float g = alpha[e * heads + h] * (de[e * heads + h] - mean);
                de[e * heads + h] = v > 0 ? g : g * slope;
                sum += de[e * heads + h];
            }
            ddst[d * heads + h] = sum;
        }
}

void edge_collect_ref(float *dsrc, int64_t segments, int64_t heads, const int64_t *t_indptr,
                      const int32_t *t_edges, const float *de) {
    for (int64_t s = 0; s < segments; s++)
        for (int64_t h = 0; h < heads; h++) {
            float sum = 0;
            for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++)
                sum += de[t_edges[e] * heads + h];
            dsrc[s * heads + h] = sum;
        }
}

void edge_dot_softmax_ref(float *alpha, int64_t segments, int64_t heads, int64_t width,
                          const int64_t *indptr, const int32_t *indices, const float *src,
                          const float *dst, const float *a, float slope) {
    for (int64_t d = 0; d < segments; d++)
        for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
            for (int64_t h = 0; h < heads; h++) {
                float sum[WAYS] = {0};
                const float *from = src + (indices[e] * heads + h) * width,
                            *to = dst + (d * heads + h) * width;
                for (int64_t j = 0; j < width; j++)
                    sum[j % WAYS] += leaky(from[j] + to[j], slope) * a[h * width + j];
                alpha[e * heads + h] = tree(sum);
            }
    softmax(alpha, segments, heads, indptr);
}

void edge_dot_softmax_backward_ref(float *de, float *ddst, float *da, int64_t segments,
                                   int64_t heads, int64_t width, const int64_t *indptr,
                                   const int32_t *indices, const float *alpha, const float *src,
                                   const float *dst, const float *a, float slope) {
    const int64_t cols = heads * width;
    memset(da, 0, (size_t)cols * sizeof *da);
    for (int64_t d = 0; d < segments; d++) {
        for (int64_t h = 0; h < heads; h++) {
            float mean = 0;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
                mean += alpha[e * heads + h] * de[e * heads + h];
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
                de[e * heads + h] = alpha[e * heads + h] * (de[e * heads + h] - mean);
        }
        for (int64_t j = 0; j < cols; j++) {
            float row = 0, vector = 0;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++) {
                const float u = src[indices[e] * cols + j] + dst[d * cols + j];
                const float g = de[e * heads + j / width];
                row += u > 0 ? g : g * slope;
                vector += (u > 0 ? g : g * slope) * u;
            }
            ddst[d * cols + j] = row * a[j];
            da[j] += vector;
        }
    }
}

void edge_dot_collect_ref(float *dsrc, int64_t segments, int64_t heads, int64_t width,
                          const int64_t *t_indptr, const int32_t *t_indices, const int32_t *t_edges,
                          const float *de, const float *src, const float *dst, const float *a,
                          float slope) {
    const int64_t cols = heads * width;
    for (int64_t s = 0; s < segments; s++)
        for (int64_t j = 0; j < cols; j++) {
            float row = 0;
            for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++) {
                const float u = dst[t_indices[e] * cols + j] + src[s * cols + j];
                const float g = de[t_edges[e] * heads + j / width];
                row += u > 0 ? g : g * slope;
            }
            dsrc[s * cols + j] += row * a[j];
        }
}

void edge_sum_ref(float *y, int64_t segments, int64_t heads, int64_t width, const int64_t *indptr,
                  const int32_t *indices, const float *alpha, halognn_matrix z) {
    const int64_t cols = heads * width;
    for (int64_t d = 0; d < segments; d++)
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
                sum += halognn_get(z, indices[e] * cols + j) * alpha[e * heads + j / width];
            y[d * cols + j] = sum;
        }
}

void edge_sum_backward_ref(float *dz, float *dalpha, int64_t segments, int64_t heads, int64_t width,
                           const int64_t *t_indptr, const int32_t *t_indices,
                           const int32_t *t_edges, const float *alpha, const float *z,
                           const float *dy) {
    const int64_t cols = heads * width;
    for (int64_t s = 0; s < segments; s++) {
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0;
            for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++)
                sum += dy[t_indices[e] * cols + j] * alpha[t_edges[e] * heads + j / width];
            dz[s * cols + j] = sum;
        }
        for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++)
            for (int64_t h = 0; h < heads; h++)
                dalpha[t_edges[e] * heads + h] =
                    dot(dy + t_indices[e] * cols + h * width, z + s * cols + h * width, width);
    }
}
