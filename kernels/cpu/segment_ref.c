#include <string.h>

#include "half.h"
#include "kernels.h"
#include "rounding.h"

static float divided(float x, int64_t count) { return count > 0 ? x / (float)count : x; }

void segment_mean_ref(halognn_result out, int64_t segments, int64_t cols, const int64_t *indptr,
                      const int32_t *indices, halognn_matrix h) {
    for (int64_t d = 0; d < segments; d++) {
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
                sum += halognn_get(h, indices[e] * cols + j);
            halognn_put(out, d * cols + j, divided(sum, indptr[d + 1] - indptr[d]));
        }
    }
}

/* larger reports whether x is the new maximum. A NaN is larger than any number, and is never
 * replaced. */
static int larger(float x, float most) { return most == most && !(x <= most); }

/* The rows of a group are added up first, and then their sum is added to the sum of the groups
 * before. */
void segment_rows_ref(halognn_result out, int64_t segments, int64_t cols, const int64_t *indptr,
                      const int32_t *indices, int how, const int32_t *counts, const float *weights,
                      halognn_elements as, const halognn_table *tables, const uint64_t *of) {
    for (int64_t d = 0; d < segments; d++) {
        const int64_t lo = indptr[d], hi = indptr[d + 1];
        for (int64_t j = 0; j < cols; j++) {
            float all = 0, group = 0;
            int groups = 0;
            for (int64_t e = lo; e < hi; e++) {
                const uint64_t ref = halognn_ref_at(of, source_of(indices[e]));
                const void *row = halognn_ref_row(tables, ref, cols * as.bytes);
                const float x = halognn_element(element_of(&as, ref), row, j);
                if (how == HALOGNN_MAX) {
                    if (e == lo || larger(x, all))
                        all = x;
                    continue;
                }
                const float term = weights ? x * weights[e] : x;
                if (e > lo && indices[e] >= 0) {
                    group += term;
                    continue;
                }
                if (e > lo)
                    all = groups++ == 0 ? group : all + group;
                group = term;
            }
            if (how != HALOGNN_MAX)
                all = groups == 0 ? group : all + group;
            if (how == HALOGNN_MEAN && hi > lo)
                all = divided(all, counts ? counts[d] : hi - lo);
            halognn_put(out, d * cols + j, as.scale ? all * as.scale[j] : all);
        }
    }
}

void segment_max_ref(halognn_result out, int32_t *arg, int64_t segments, int64_t cols,
                     const int64_t *indptr, const int32_t *indices, halognn_matrix h) {
    for (int64_t d = 0; d < segments; d++) {
        for (int64_t j = 0; j < cols; j++) {
            float most = 0;
            int32_t at = -1;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++) {
                const float x = halognn_get(h, indices[e] * cols + j);
                if (at < 0 || larger(x, most)) {
                    most = x;
                    at = indices[e];
                }
            }
            halognn_put(out, d * cols + j, most);
            if (arg != NULL)
                arg[d * cols + j] = at;
        }
    }
}

void segment_max_backward_ref(float *dh, int64_t segments, int64_t cols, int64_t first,
                              const int64_t *t_indptr, const int32_t *t_indices, const int32_t *arg,
                              const float *dout) {
    memset(dh, 0, (size_t)(segments * cols) * sizeof *dh);
    for (int64_t s = 0; s < segments; s++, dh += cols)
        for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++)
            for (int64_t j = 0; j < cols && (e == t_indptr[s] || t_indices[e] != t_indices[e - 1]);
                 j++)
                if (arg[t_indices[e] * cols + j] == first + s)
                    dh[j] += dout[t_indices[e] * cols + j];
}

void segment_sum_ref(halognn_result out, int64_t segments, int64_t cols, const int64_t *indptr,
                     const int32_t *indices, const float *weights, halognn_matrix h,
                     halognn_matrix own, int64_t rows, const float *scale, int add) {
    for (int64_t d = 0; d < segments; d++) {
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0;
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++) {
                const float x = halognn_get(h, indices[e] * cols + j);
                sum += weights ? x * weights[e] : x;
            }
            if (add)
                sum = ((float *)out.at)[d * cols + j] + sum;
            if (d < rows)
                sum += (scale != NULL ? 1 + *scale : 1) * halognn_get(own, d * cols + j);
            halognn_put(out, d * cols + j, sum);
        }
    }
}

void segment_mean_backward_ref(halognn_result dh, int64_t segments, int64_t cols,
                               const int64_t *t_indptr, const int32_t *t_indices,
                               const int64_t *indptr, const float *dout, halognn_matrix own,
                               int64_t rows) {
    for (int64_t s = 0; s < segments; s++) {
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0;
            for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++) {
                const int32_t t = t_indices[e];
                sum += dout[t * cols + j] * (1.0f / (float)(indptr[t + 1] - indptr[t]));
            }
            if (s < rows)
                sum += halognn_get(own, s * cols + j);
            halognn_put(dh, s * cols + j, sum);
        }
    }
}
