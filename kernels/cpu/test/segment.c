/* Sums, means and maxima over segments of edges. */
#include "test.h"

static outputs mean(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, NULL);
    halognn_segment_mean(k, wide(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->indices,
                         of_floats(in->h));
    return o;
}

/* Means of rows of bfloat16, which half holds as well as float16, as bfloat16. */
static outputs mean_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one((in->cells + 1) / 2, NULL);
    halognn_segment_mean(k, narrow(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->indices,
                         of_bf16(in->half));
    return o;
}

static outputs rows_of(const halognn_cpu *k, const input *in, int how, const int32_t *counts,
                       const float *weights, int bytes, int64_t first_wide,
                       int wide_bytes) {
    const outputs o = one(in->cells, NULL);
    halognn_segment_rows(k, wide(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->grouped,
                         how, counts, weights, elements_of(in, bytes, first_wide, wide_bytes),
                         tables_of(in, bytes), in->refs);
    return o;
}
/* The same to bfloat16. */
static outputs to_bf16(const halognn_cpu *k, const input *in, int how, int bytes,
                       int64_t first_wide) {
    const outputs o = one((in->cells + 1) / 2, NULL);
    halognn_segment_rows(k, narrow(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->grouped,
                         how, NULL, NULL, elements_of(in, bytes, first_wide, 2),
                         tables_of(in, bytes), in->refs);
    return o;
}
static outputs mean_to_bf16(const halognn_cpu *k, const input *in) {
    return to_bf16(k, in, HALOGNN_MEAN, 4, HALOGNN_NO_WIDE);
}
static outputs sum_bytes_to_bf16(const halognn_cpu *k, const input *in) {
    return to_bf16(k, in, HALOGNN_SUM, 1, HALOGNN_NO_WIDE);
}
static outputs mean_shorts_to_bf16(const halognn_cpu *k, const input *in) {
    return to_bf16(k, in, HALOGNN_MEAN, 1, TABLES - 1);
}
static outputs max_half_to_bf16(const halognn_cpu *k, const input *in) {
    return to_bf16(k, in, HALOGNN_MAX, 2, HALOGNN_NO_WIDE);
}
static outputs rows(const halognn_cpu *k, const input *in, int how, const float *weights,
                    int bytes) {
    return rows_of(k, in, how, NULL, weights, bytes, HALOGNN_NO_WIDE, 4);
}
/* Means by counts other than the numbers of edges; the last float16 table has float32 rows. */
static outputs mean_mixed_rows(const halognn_cpu *k, const input *in) {
    int32_t *counts = must_alloc((size_t)in->s->segments * 4);
    for (int64_t d = 0; d < in->s->segments; d++)
        counts[d] = (int32_t)(3 + d % 5);
    const outputs o = rows_of(k, in, HALOGNN_MEAN, counts, NULL, 2, TABLES - 1, 4);
    free(counts);
    return o;
}
static outputs max_mixed_rows(const halognn_cpu *k, const input *in) {
    return rows_of(k, in, HALOGNN_MAX, NULL, NULL, 2, TABLES - 1, 4);
}
static outputs mean_rows(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_MEAN, NULL, 4);
}
static outputs mean_half_rows(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_MEAN, NULL, 2);
}
/* Rows of bfloat16; with_wide: the last table has float32 rows. */
static outputs of_bf16_rows(const halognn_cpu *k, const input *in, int how, const float *weights,
                            int with_wide) {
    halognn_elements as = elements_of(in, 2, with_wide ? TABLES - 1 : HALOGNN_NO_WIDE, 4);
    as.bf16 = 1;
    const outputs o = one(in->cells, NULL);
    halognn_segment_rows(k, wide(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->grouped,
                         how, NULL, weights, as, tables_of(in, 2), in->refs);
    return o;
}
static outputs mean_bf16_rows(const halognn_cpu *k, const input *in) {
    return of_bf16_rows(k, in, HALOGNN_MEAN, NULL, 1);
}
static outputs weighted_bf16_rows(const halognn_cpu *k, const input *in) {
    return of_bf16_rows(k, in, HALOGNN_SUM, in->weights, 0);
}
static outputs max_bf16_rows(const halognn_cpu *k, const input *in) {
    return of_bf16_rows(k, in, HALOGNN_MAX, NULL, 0);
}
static outputs sum_rows(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_SUM, NULL, 4);
}
static outputs weighted_half_rows(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_SUM, in->weights, 2);
}
static outputs max_rows(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_MAX, NULL, 4);
}
static outputs max_half_rows(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_MAX, NULL, 2);
}
static outputs mean_bytes(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_MEAN, NULL, 1);
}
static outputs weighted_bytes(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_SUM, in->weights, 1);
}
static outputs max_bytes(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_MAX, NULL, 1);
}
/* The last int8 table has int16 rows. Float32 rows of random bytes would be arbitrary numbers. */
static outputs mean_shorts(const halognn_cpu *k, const input *in) {
    return rows_of(k, in, HALOGNN_MEAN, NULL, NULL, 1, TABLES - 1, 2);
}

static outputs max(const halognn_cpu *k, const input *in, int with_arg) {
    const outputs o = {.at = {guarded(in->cells, NULL), with_arg ? guarded(in->cells, NULL) : NULL},
                       .len = {in->cells, in->cells}};
    float *h = coarse(in);
    halognn_segment_max(k, wide(o.at[0]), (int32_t *)(void *)o.at[1], in->s->segments, in->s->cols,
                        in->indptr, in->indices, of_floats(h));
    free(h);
    return o;
}
static outputs max_alone(const halognn_cpu *k, const input *in) { return max(k, in, 0); }
static outputs max_with_arg(const halognn_cpu *k, const input *in) { return max(k, in, 1); }

static outputs max_backward(const halognn_cpu *k, const input *in) {
    const int64_t half = in->s->sources / 2, cols = in->s->cols; /* two tiles */
    const outputs o = one(in->s->sources * cols, NULL), found = max(k, in, 1);
    const int32_t *arg = (const int32_t *)(const void *)found.at[1];
    halognn_segment_max_backward(k, o.at[0], half, cols, 0, in->t_indptr, in->t_indices, arg,
                                 in->dy);
    halognn_segment_max_backward(k, o.at[0] + half * cols, in->s->sources - half, cols, half,
                                 in->t_indptr + half, in->t_indices, arg, in->dy);
    free(found.at[0] - GUARD);
    free(found.at[1] - GUARD);
    return o;
}

static outputs sum(const halognn_cpu *k, const input *in, int weighted, int add) {
    const outputs o = one(in->cells, in->x);
    halognn_segment_sum(k, wide(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->indices,
                        weighted ? in->weights : NULL, of_floats(in->h),
                        of_floats(NULL), 0, NULL, add);
    return o;
}
static outputs sum_bf16_add(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_segment_sum(k, wide(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->indices,
                        in->weights, of_bf16(in->half), of_floats(NULL), 0, NULL, 1);
    return o;
}
/* With own rows, to either type. */
static outputs sum_own(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_segment_sum(k, wide(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->indices,
                        NULL, of_floats(in->h),
                        of_floats(in->dy), in->s->segments / 2, in->gamma, 1);
    return o;
}
static outputs sum_own_to_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one((in->cells + 1) / 2, NULL);
    halognn_segment_sum(k, narrow(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->indices,
                        in->weights, of_floats(in->h), of_floats(in->dy), in->s->segments,
                        in->gamma, 0);
    return o;
}
static outputs sum_own_unscaled(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_segment_sum(k, wide(o.at[0]), in->s->segments, in->s->cols, in->indptr, in->indices,
                        in->weights, of_floats(in->h), of_floats(in->dy), in->s->segments / 2, NULL,
                        0);
    return o;
}
static outputs sum_set(const halognn_cpu *k, const input *in) { return sum(k, in, 0, 0); }
static outputs sum_weighted(const halognn_cpu *k, const input *in) { return sum(k, in, 1, 0); }
static outputs sum_weighted_add(const halognn_cpu *k, const input *in) { return sum(k, in, 1, 1); }

static outputs mean_backward(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->sources * in->s->cols, in->h);
    halognn_segment_mean_backward(k, wide(o.at[0]), in->s->sources, in->s->cols, in->t_indptr,
                                  in->t_indices, in->indptr, in->dy, of_floats(NULL), 0);
    return o;
}
static outputs mean_backward_own(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->sources * in->s->cols, in->h);
    halognn_segment_mean_backward(k, wide(o.at[0]), in->s->sources, in->s->cols, in->t_indptr,
                                  in->t_indices, in->indptr, in->dy, of_floats(in->h),
                                  in->s->sources / 2);
    return o;
}
static outputs mean_backward_own_to_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one((in->s->sources * in->s->cols + 1) / 2, NULL);
    halognn_segment_mean_backward(k, narrow(o.at[0]), in->s->sources, in->s->cols, in->t_indptr,
                                  in->t_indices, in->indptr, in->dy, of_floats(in->h),
                                  in->s->sources / 2);
    return o;
}

const test segment_tests[] = {
    {"segment_mean", mean, 0},
    {"segment_mean of bfloat16", mean_bf16, 0},
    {"segment_sum of bfloat16, weighted add", sum_bf16_add, 0},
    {"segment_rows mean to bfloat16", mean_to_bf16, 0},
    {"segment_rows sum of int8 to bfloat16", sum_bytes_to_bf16, 0},
    {"segment_rows mean of int8 and int16 to bfloat16", mean_shorts_to_bf16, 0},
    {"segment_rows max of float16 to bfloat16", max_half_to_bf16, 0},
    {"segment_rows mean", mean_rows, 0},
    {"segment_rows mean of float16", mean_half_rows, 0},
    {"segment_rows mean of bfloat16 and float32", mean_bf16_rows, 0},
    {"segment_rows weighted sum of bfloat16", weighted_bf16_rows, 0},
    {"segment_rows max of bfloat16", max_bf16_rows, 0},
    {"segment_rows mean of float16 and float32", mean_mixed_rows, 0},
    {"segment_rows max of float16 and float32", max_mixed_rows, 0},
    {"segment_rows sum", sum_rows, 0},
    {"segment_rows weighted sum of float16", weighted_half_rows, 0},
    {"segment_rows max", max_rows, 0},
    {"segment_rows max of float16", max_half_rows, 0},
    {"segment_rows mean of int8", mean_bytes, 0},
    {"segment_rows weighted sum of int8", weighted_bytes, 0},
    {"segment_rows max of int8", max_bytes, 0},
    {"segment_rows mean of int8 and int16", mean_shorts, 0},
    {"segment_max", max_alone, 0},
    {"segment_max with arg", max_with_arg, 0},
    {"segment_max_backward", max_backward, 0},
    {"segment_sum", sum_set, 0},
    {"segment_sum weighted", sum_weighted, 0},
    {"segment_sum weighted add", sum_weighted_add, 0},
    {"segment_sum, own rows", sum_own, 0},
    {"segment_sum, own rows, to bfloat16", sum_own_to_bf16, 0},
    {"segment_sum, own rows without a scale", sum_own_unscaled, 0},
    {"segment_mean_backward", mean_backward, 0},
    {"segment_mean_backward, own rows", mean_backward_own, 0},
    {"segment_mean_backward, own rows, to bfloat16", mean_backward_own_to_bf16, 0},
    {0},
};
