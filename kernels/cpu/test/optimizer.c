/* Steps of optimisers. */
#include "test.h"

static outputs adam(const halognn_cpu *k, const input *in) {
    const int64_t n = in->cells;
    const outputs o = {.at = {guarded(n, in->x), guarded(n, in->dy), guarded(n, in->dy)},
                       .len = {n, n, n}};
    for (int64_t i = 0; i < n; i++)
        o.at[2][i] = o.at[2][i] * o.at[2][i];
    halognn_adam(k, o.at[0], o.at[1], o.at[2], n, in->dy, 0.01f, 0.999f, 0.9f, 0.1f, 0.999f, 0.001f,
                 0.003f, 2.0f, 1e-8f);
    return o;
}

static outputs sgd(const halognn_cpu *k, const input *in, int first) {
    const outputs o = {.at = {guarded(in->cells, in->x), guarded(in->cells, in->dy)},
                       .len = {in->cells, in->cells}};
    halognn_sgd(k, o.at[0], o.at[1], in->cells, in->dy, 0.01f, 0.9f, 0.05f, first);
    return o;
}
static outputs sgd_first(const halognn_cpu *k, const input *in) { return sgd(k, in, 1); }
static outputs sgd_later(const halognn_cpu *k, const input *in) { return sgd(k, in, 0); }

/* Every second row of p [2*segments,cols] has the sum of one to three gradients. */
static outputs sparse(const halognn_cpu *k, const input *in, float decay) {
    const int64_t n = in->s->segments, cols = in->s->cols;
    const outputs o = {.at = {guarded(2 * in->cells, NULL), guarded(2 * in->cells, NULL),
                              guarded(2 * in->cells, NULL)},
                       .len = {2 * in->cells, 2 * in->cells, 2 * in->cells}};
    int32_t *rows = must_alloc((size_t)(n + 1) * 4), *ptr = must_alloc((size_t)(n + 1) * 4),
            *indices = must_alloc((size_t)(3 * n + 1) * 4);
    ptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        rows[i] = (int32_t)(2 * i);
        ptr[i + 1] = ptr[i] + 1 + (int32_t)(i % 3);
        for (int32_t e = ptr[i]; e < ptr[i + 1]; e++)
            indices[e] = (int32_t)((i + e) % n);
    }
    for (int64_t i = 0; i < 2 * in->cells; i++) {
        o.at[0][i] = in->x[i % in->cells];
        o.at[1][i] = in->dy[i / 2];
        o.at[2][i] = o.at[1][i] * o.at[1][i];
    }
    halognn_sparse_adam(k, o.at[0], o.at[1], o.at[2], n, cols, rows, ptr, indices, in->dy, 0.1f,
                        0.001f, decay, -0.003f, 1e-8f);
    free(rows);
    free(ptr);
    free(indices);
    return o;
}
static outputs sparse_adam(const halognn_cpu *k, const input *in) { return sparse(k, in, 1); }
static outputs sparse_decay(const halognn_cpu *k, const input *in) { return sparse(k, in, 0.9f); }

const test optimizer_tests[] = {
    {"adam", adam, 0},
    {"sgd, first step", sgd_first, 0},
    {"sgd", sgd_later, 0},
    {"sparse_adam", sparse_adam, 0},
    {"sparse_adam, decay", sparse_decay, 0},
    {0},
};
