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

const test optimizer_tests[] = {
    {"adam", adam, 0},
    {"sgd, first step", sgd_first, 0},
    {"sgd", sgd_later, 0},
    {0},
};
