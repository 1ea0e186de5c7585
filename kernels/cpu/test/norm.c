/* LayerNorm and BatchNorm. */
#include "test.h"

/* Row sums of up to 602 terms, reordered. */
#define LAYER_NORM_TOLERANCE 2e-5

static outputs layer_norm(const halognn_cpu *k, const input *in) {
    const int64_t rows = in->s->segments;
    const outputs o = {.at = {guarded(in->cells, NULL), guarded(rows, NULL), guarded(rows, NULL)},
                       .len = {in->cells, rows, rows}};
    halognn_layer_norm(k, o.at[0], rows, in->s->cols, in->x, in->gamma, in->beta, o.at[1], o.at[2],
                       1e-1f);
    return o;
}

static outputs layer_norm_backward(const halognn_cpu *k, const input *in) {
    const int64_t rows = in->s->segments, cols = in->s->cols;
    const outputs o = {.at = {guarded(in->cells, in->dy), guarded(cols, NULL), guarded(cols, NULL)},
                       .len = {in->cells, cols, cols}};
    float *mean = floats(rows), *rstd = floats(rows);
    for (int64_t r = 0; r < rows; r++) {
        mean[r] = 0.01f * (float)(r % 7);
        rstd[r] = 1.5f + 0.1f * (float)(r % 5);
    }
    halognn_layer_norm_backward(k, o.at[0], o.at[1], o.at[2], rows, cols, o.at[0], in->x, in->gamma,
                                mean, rstd);
    free(mean);
    free(rstd);
    return o;
}

/* Moments of columns: any will do. */
static float *moments(const input *in) {
    float *m = floats(2 * in->s->cols);
    for (int64_t j = 0; j < in->s->cols; j++)
        m[in->s->cols + j] = 0.5f + 0.1f * (float)(j % 5);
    for (int64_t j = 0; j < in->s->cols; j++)
        m[j] = 0.01f * (float)(j % 7);
    return m;
}

static outputs column_squares(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->cols, NULL);
    float *m = moments(in);
    halognn_column_squares(k, o.at[0], in->s->segments, in->s->cols, in->x, m);
    free(m);
    return o;
}

static outputs batch_norm(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    float *m = moments(in);
    halognn_batch_norm(k, o.at[0], in->s->segments, in->s->cols, o.at[0], in->gamma, in->beta, m,
                       m + in->s->cols, 1e-1f);
    free(m);
    return o;
}

static outputs batch_norm_sums(const halognn_cpu *k, const input *in) {
    const int64_t cols = in->s->cols;
    const outputs o = {.at = {guarded(cols, NULL), guarded(cols, NULL)}, .len = {cols, cols}};
    float *m = moments(in);
    halognn_batch_norm_sums(k, o.at[0], o.at[1], in->s->segments, cols, in->dy, in->x, m, m + cols,
                            1e-1f);
    free(m);
    return o;
}

static outputs batch_norm_backward(const halognn_cpu *k, const input *in) {
    const int64_t cols = in->s->cols;
    const outputs o = one(in->cells, in->dy);
    float *m = moments(in);
    halognn_batch_norm_backward(k, o.at[0], in->s->segments, cols, o.at[0], in->x, in->gamma, m,
                                m + cols, in->beta, in->gamma, 1e-1f, in->s->segments + 3);
    free(m);
    return o;
}

const test norm_tests[] = {
    {"layer_norm", layer_norm, LAYER_NORM_TOLERANCE},
    {"layer_norm_backward", layer_norm_backward, LAYER_NORM_TOLERANCE},
    {"column_squares", column_squares, 0},
    {"batch_norm", batch_norm, 0},
    {"batch_norm_sums", batch_norm_sums, 0},
    {"batch_norm_backward", batch_norm_backward, 0},
    {0},
};
