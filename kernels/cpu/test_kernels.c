/*
 * Compares the kernels of every SIMD level of this machine with the plain ones, on the shapes that
 * break kernels, with every output between sentinels (ASan and UBSan check the inputs: make test
 * SANITIZE=1). All must agree in every bit except LayerNorm, which adds along a row in another
 * order.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "halognn_cpu.h"
#include "rounding.h"

enum { GUARD = 16, TABLES = 3 };
#define SENTINEL 0x5ca1ab1e
#define LAYER_NORM_TOLERANCE 2e-5 /* relative to the largest element: row sums of up to 602 terms, reordered */

static int failures;
static uint64_t state = 20240229;

static uint32_t bits(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static int64_t below(int64_t n) { return n > 0 ? bits() % n : 0; }
static float uniform(void) { return (float)bits() * 0x1p-31f - 1; }

static void *must_alloc(size_t bytes) {
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        exit(2);
    return p;
}

/* An array of n floats between sentinels. */
static float *guarded(int64_t n, const float *from) {
    uint32_t *whole = must_alloc((size_t)(n + 2 * GUARD) * 4);
    for (int64_t i = 0; i < n + 2 * GUARD; i++)
        whole[i] = SENTINEL;
    if (from != NULL)
        memcpy(whole + GUARD, from, (size_t)n * 4);
    return (float *)(void *)whole + GUARD;
}

static int intact(const float *p, int64_t n) {
    for (int64_t i = 0; i < GUARD; i++) {
        uint32_t before, after;
        memcpy(&before, p - GUARD + i, 4);
        memcpy(&after, p + n + i, 4);
        if (before != SENTINEL || after != SENTINEL)
            return 0;
    }
    return 1;
}

static float *floats(int64_t n) {
    float *p = must_alloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        p[i] = uniform();
    return p;
}

typedef struct {
    const char *name;
    int64_t segments, sources, degree, cols; /* degree -1: one segment has all edges */
} shape;

static const shape shapes[] = {
    {"no segments", 0, 4, 3, 8},          {"no edges", 4, 4, 0, 8},
    {"one row", 1, 1, 1, 16},             {"one feature", 16, 64, 5, 1},
    {"narrower than a vector", 9, 33, 4, 7}, {"one vector", 16, 64, 5, 16},
    {"width no multiple of a vector", 16, 64, 5, 37}, {"one more than a strip", 7, 40, 3, 257},
    {"products", 513, 900, 11, 100},      {"hub", 5, 1000, -1, 64},
    {"reddit", 13, 50, 6, 602},           {"even strips", 33, 70, 4, 512},
};

/* A kernel's outputs at one level: up to three arrays, and where they end. */
typedef struct {
    float *at[3];
    int64_t len[3];
} outputs;

static void compare(const shape *s, const char *kernel, const char *level, outputs got, outputs want, double tolerance) {
    for (int o = 0; o < 3 && got.at[o] != NULL; o++) {
        double worst = 0, scale = 1;
        int64_t differ = 0;
        for (int64_t i = 0; i < got.len[o]; i++) {
            const double off = fabs((double)got.at[o][i] - want.at[o][i]);
            differ += memcmp(got.at[o] + i, want.at[o] + i, 4) != 0;
            worst = off <= worst ? worst : isnan(worst) ? worst : off; /* fmax would drop a NaN */
            scale = fmax(scale, fabs(want.at[o][i]));
        }
        const int stayed = intact(got.at[o], got.len[o]), close = tolerance > 0 && worst <= tolerance * scale;
        if (!stayed || (differ > 0 && !close)) {
            failures++;
            printf("FAIL %s, %s, %s, output %d: %lld elements differ, by up to %g; stayed in its output: %d\n", kernel, level,
                   s->name, o, (long long)differ, worst, stayed);
        }
    }
    for (int o = 0; o < 3 && got.at[o] != NULL; o++) {
        free(got.at[o] - GUARD);
        free(want.at[o] - GUARD);
    }
}

/* The inputs of the kernels for one shape. */
typedef struct {
    const shape *s;
    int64_t edges, cells; /* cells = segments * cols */
    int64_t *indptr, *t_indptr;
    int32_t *indices, *t_indices, *t_edges, *ids;
    int32_t *grouped; /* indices, of which a third begin groups */
    float *h, *x, *dy, *gamma, *beta, *weights;
    uint16_t *half;
    uint64_t *refs;
    halognn_table tables[TABLES], half_tables[TABLES];
} input;

static void build_edges(input *in) {
    const shape *s = in->s;
    in->indptr = must_alloc((size_t)(s->segments + 1) * 8);
    in->indptr[0] = 0;
    for (int64_t d = 0; d < s->segments; d++) {
        const int64_t degree = s->degree >= 0 ? below(2 * s->degree + 1) : d == 1 ? s->sources : 0;
        in->indptr[d + 1] = in->indptr[d] + degree;
    }
    in->edges = in->indptr[s->segments];
    in->indices = must_alloc((size_t)in->edges * 4);
    in->t_indptr = calloc((size_t)s->sources + 2, 8);
    in->t_indices = must_alloc((size_t)in->edges * 4);
    in->t_edges = must_alloc((size_t)in->edges * 4);
    in->grouped = must_alloc((size_t)in->edges * 4);
    for (int64_t e = 0; e < in->edges; e++) {
        in->indices[e] = (int32_t)below(s->sources);
        in->grouped[e] = below(3) == 0 ? ~in->indices[e] : in->indices[e];
        in->t_indptr[in->indices[e] + 2]++;
    }
    for (int64_t i = 1; i < s->sources; i++)
        in->t_indptr[i + 1] += in->t_indptr[i];
    for (int64_t d = 0; d < s->segments; d++)
        for (int64_t e = in->indptr[d]; e < in->indptr[d + 1]; e++) {
            const int64_t at = in->t_indptr[in->indices[e] + 1]++;
            in->t_indices[at] = (int32_t)d;
            in->t_edges[at] = (int32_t)e;
        }
}

static input build(const shape *s) {
    input in = {.s = s, .cells = s->segments * s->cols};
    const int64_t stored = s->sources * s->cols;
    build_edges(&in);
    in.h = floats(stored);
    in.x = floats(in.cells);
    in.dy = floats(in.cells);
    in.weights = floats(in.edges);
    in.gamma = floats(s->cols);
    in.beta = floats(s->cols);
    in.half = must_alloc((size_t)stored * 2);
    for (int64_t i = 0; i < stored; i++)
        in.half[i] = (uint16_t)(bits() % 0x7c00 | (bits() & 1) << 15); /* finite, subnormals too */
    in.refs = must_alloc((size_t)s->sources * 8);
    in.ids = must_alloc((size_t)s->sources * 4);
    const int64_t part = s->sources / TABLES;
    for (int t = 0; t < TABLES; t++) {
        const int64_t rows = t < TABLES - 1 ? part : s->sources - part * (TABLES - 1);
        in.tables[t] = (halognn_table){in.h + t * part * s->cols, rows};
        in.half_tables[t] = (halognn_table){in.half + t * part * s->cols, rows};
    }
    for (int64_t i = 0; i < s->sources; i++) {
        int t = (int)below(TABLES);
        if (in.tables[t].rows == 0)
            t = TABLES - 1;
        in.refs[i] = (uint64_t)t << HALOGNN_REF_ROW_BITS | (uint64_t)below(in.tables[t].rows);
        in.ids[i] = (int32_t)below(s->sources);
    }
    return in;
}

static void release(input *in) {
    void *all[] = {in->indptr, in->t_indptr, in->indices, in->grouped, in->t_indices, in->ids,  in->h,
                   in->x,      in->dy,       in->gamma,   in->beta,      in->half, in->refs,
                   in->weights, in->t_edges};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static outputs one(int64_t n, const float *from) { return (outputs){.at = {guarded(n, from)}, .len = {n}}; }

static outputs gather(const halognn_cpu *k, const input *in, int half) {
    const outputs o = one(in->s->sources * in->s->cols, NULL);
    halognn_gather_rows(k, o.at[0], in->s->sources, in->s->cols, half, half ? in->half_tables : in->tables, in->refs);
    return o;
}
static outputs gather_float(const halognn_cpu *k, const input *in) { return gather(k, in, 0); }
static outputs gather_half(const halognn_cpu *k, const input *in) { return gather(k, in, 1); }

static outputs slice(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->sources * in->s->cols, NULL);
    halognn_slice_rows(k, (uint8_t *)o.at[0], in->s->sources, in->s->cols * 4, (const uint8_t *)in->h, in->ids);
    return o;
}

static outputs mean(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, NULL);
    halognn_segment_mean(k, o.at[0], in->s->segments, in->s->cols, in->indptr, in->indices, in->h);
    return o;
}

static outputs rows_of(const halognn_cpu *k, const input *in, int how, const int32_t *counts,
                       const float *weights, int half, int64_t wide) {
    const outputs o = one(in->cells, NULL);
    halognn_segment_rows(k, o.at[0], in->s->segments, in->s->cols, in->indptr, in->grouped, how,
                         counts, weights, half, wide, half ? in->half_tables : in->tables, in->refs);
    return o;
}
static outputs rows(const halognn_cpu *k, const input *in, int how, const float *weights,
                    int half) {
    return rows_of(k, in, how, NULL, weights, half, -1);
}
/* Means over other numbers than those of the edges; the float16 table 0 has float32 rows. */
static outputs mean_mixed_rows(const halognn_cpu *k, const input *in) {
    int32_t *counts = must_alloc((size_t)in->s->segments * 4);
    for (int64_t d = 0; d < in->s->segments; d++)
        counts[d] = (int32_t)(3 + d % 5);
    const outputs o = rows_of(k, in, HALOGNN_MEAN, counts, NULL, 1, 0);
    free(counts);
    return o;
}
static outputs max_mixed_rows(const halognn_cpu *k, const input *in) {
    return rows_of(k, in, HALOGNN_MAX, NULL, NULL, 1, 0);
}
static outputs mean_rows(const halognn_cpu *k, const input *in) { return rows(k, in, HALOGNN_MEAN, NULL, 0); }
static outputs mean_half_rows(const halognn_cpu *k, const input *in) { return rows(k, in, HALOGNN_MEAN, NULL, 1); }
static outputs sum_rows(const halognn_cpu *k, const input *in) { return rows(k, in, HALOGNN_SUM, NULL, 0); }
static outputs weighted_half_rows(const halognn_cpu *k, const input *in) {
    return rows(k, in, HALOGNN_SUM, in->weights, 1);
}
static outputs max_rows(const halognn_cpu *k, const input *in) { return rows(k, in, HALOGNN_MAX, NULL, 0); }
static outputs max_half_rows(const halognn_cpu *k, const input *in) { return rows(k, in, HALOGNN_MAX, NULL, 1); }

/* Rows of few different numbers, and a NaN: most columns have several maxima. */
static float *coarse(const input *in) {
    const int64_t n = in->s->sources * in->s->cols;
    float *h = must_alloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        h[i] = i % 101 == 100 ? NAN : nearbyintf(2 * in->h[i]);
    return h;
}

static outputs max(const halognn_cpu *k, const input *in, int with_arg) {
    const outputs o = {.at = {guarded(in->cells, NULL), with_arg ? guarded(in->cells, NULL) : NULL},
                       .len = {in->cells, in->cells}};
    float *h = coarse(in);
    halognn_segment_max(k, o.at[0], (int32_t *)(void *)o.at[1], in->s->segments, in->s->cols, in->indptr, in->indices, h);
    free(h);
    return o;
}
static outputs max_alone(const halognn_cpu *k, const input *in) { return max(k, in, 0); }
static outputs max_with_arg(const halognn_cpu *k, const input *in) { return max(k, in, 1); }

static outputs max_backward(const halognn_cpu *k, const input *in) {
    const int64_t half = in->s->sources / 2, cols = in->s->cols; /* two tiles */
    const outputs o = one(in->s->sources * cols, NULL), found = max(k, in, 1);
    const int32_t *arg = (const int32_t *)(const void *)found.at[1];
    halognn_segment_max_backward(k, o.at[0], half, cols, 0, in->t_indptr, in->t_indices, arg, in->dy);
    halognn_segment_max_backward(k, o.at[0] + half * cols, in->s->sources - half, cols, half, in->t_indptr + half,
                                 in->t_indices, arg, in->dy);
    free(found.at[0] - GUARD);
    free(found.at[1] - GUARD);
    return o;
}

static outputs sum(const halognn_cpu *k, const input *in, int weighted, int add) {
    const outputs o = one(in->cells, in->x);
    halognn_segment_sum(k, o.at[0], in->s->segments, in->s->cols, in->indptr, in->indices, weighted ? in->weights : NULL, in->h, add);
    return o;
}
static outputs sum_set(const halognn_cpu *k, const input *in) { return sum(k, in, 0, 0); }
static outputs sum_weighted(const halognn_cpu *k, const input *in) { return sum(k, in, 1, 0); }
static outputs sum_weighted_add(const halognn_cpu *k, const input *in) { return sum(k, in, 1, 1); }

static outputs mean_backward(const halognn_cpu *k, const input *in, int add) {
    const outputs o = one(in->s->sources * in->s->cols, in->h);
    halognn_segment_mean_backward(k, o.at[0], in->s->sources, in->s->cols, in->t_indptr, in->t_indices, in->indptr,
                                  in->dy, add);
    return o;
}
static outputs mean_backward_set(const halognn_cpu *k, const input *in) { return mean_backward(k, in, 0); }
static outputs mean_backward_add(const halognn_cpu *k, const input *in) { return mean_backward(k, in, 1); }

static outputs add_bias(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_add_bias(k, o.at[0], in->s->segments, in->s->cols, in->beta);
    return o;
}

static outputs column_sum(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->cols, NULL);
    halognn_column_sum(k, o.at[0], in->s->segments, in->s->cols, in->x);
    return o;
}

static outputs add_into(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_add_into(k, o.at[0], in->cells, in->dy);
    return o;
}

/* Columns from the second on, in rows a little longer. */
static outputs to_bf16(const halognn_cpu *k, const input *in) {
    const int64_t width = in->s->cols + 3;
    const outputs o = one((in->s->segments * width + 1) / 2, NULL);
    halognn_to_bf16(k, (uint16_t *)o.at[0], width, in->s->segments, in->s->cols - 1, in->x + 1,
                    in->s->cols);
    return o;
}

static outputs to_bf16_packed(const halognn_cpu *k, const input *in) {
    const outputs o = one((in->cells + 1) / 2, NULL);
    halognn_to_bf16(k, (uint16_t *)o.at[0], in->s->cols, in->s->segments, in->s->cols, in->x, in->s->cols);
    return o;
}

static outputs round_factors_packed(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, NULL);
    halognn_round_factors(k, o.at[0], in->s->cols, in->s->segments, in->s->cols, in->x, in->s->cols,
                          13);
    return o;
}

static outputs round_factors(const halognn_cpu *k, const input *in) {
    const int64_t width = in->s->cols + 3;
    const outputs o = one(in->s->segments * width, NULL);
    halognn_round_factors(k, o.at[0], width, in->s->segments, in->s->cols - 1, in->x + 1, in->s->cols,
                          16);
    return o;
}

static outputs relu(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_relu(k, o.at[0], in->cells);
    return o;
}

static outputs relu_dropout(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    int32_t *vertices = must_alloc((size_t)in->s->segments * 4);
    for (int64_t r = 0; r < in->s->segments; r++)
        vertices[r] = (int32_t)(r * 48611 % 2147483647);
    halognn_relu_dropout(k, o.at[0], in->s->segments, in->s->cols, 0x40000000, 4.0f / 3, 0x123456789abcdef0, vertices);
    free(vertices);
    return o;
}

static outputs relu_backward(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->dy);
    halognn_relu_backward(k, o.at[0], in->cells, in->x, 1.25f);
    return o;
}

static outputs add_scaled(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_add_scaled(k, o.at[0], in->cells, o.at[0], in->dy, in->gamma);
    return o;
}

static outputs columns(const halognn_cpu *k, const input *in, int add) {
    const int64_t cols = in->s->cols, n = cols - cols / 3;
    const outputs o = one(in->cells, in->x);
    halognn_copy_columns(k, o.at[0] + cols / 3, in->s->segments, n, cols, in->dy, cols, add);
    return o;
}
static outputs columns_set(const halognn_cpu *k, const input *in) { return columns(k, in, 0); }
static outputs columns_add(const halognn_cpu *k, const input *in) { return columns(k, in, 1); }

static outputs column_dot(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->cols, NULL);
    halognn_column_dot(k, o.at[0], in->s->segments, in->s->cols, in->x, in->dy);
    return o;
}

static outputs elu(const halognn_cpu *k, const input *in, uint32_t threshold, int backward) {
    const outputs o = one(in->cells, in->x);
    const float scale = threshold ? 4.0f / 3 : 1;
    int32_t *vertices = must_alloc((size_t)in->s->segments * 4);
    for (int64_t r = 0; r < in->s->segments; r++)
        vertices[r] = (int32_t)(r * 48611 % 2147483647);
    if (backward)
        halognn_elu_backward(k, o.at[0], in->s->segments, in->s->cols, in->dy, threshold, scale, 77, vertices);
    else
        halognn_elu(k, o.at[0], in->s->segments, in->s->cols, threshold, scale, 77, vertices);
    free(vertices);
    return o;
}
static outputs elu_plain(const halognn_cpu *k, const input *in) { return elu(k, in, 0, 0); }
static outputs elu_dropout(const halognn_cpu *k, const input *in) { return elu(k, in, 0x40000000, 0); }
static outputs elu_backward_plain(const halognn_cpu *k, const input *in) { return elu(k, in, 0, 1); }
static outputs elu_backward_dropout(const halognn_cpu *k, const input *in) { return elu(k, in, 0x40000000, 1); }

/* The number of heads of a shape, chosen to cover every alignment of heads and vectors. */
static int64_t heads_of(const shape *s) {
    static const int64_t tried[] = {8, 5, 4, 3, 7, 2};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        if (s->cols % tried[i] == 0)
            return tried[i];
    return 1;
}

/* Arrays of n numbers of either sign, and attention weights, all between 0 and 1. */
static float *weights_of(int64_t n) {
    float *p = floats(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = fabsf(p[i]);
    return p;
}

typedef enum { DOT, DOT_BACKWARD, SOFTMAX, SOFTMAX_BACKWARD, COLLECT, DOT_SOFTMAX, DOT_SOFTMAX_BACKWARD,
               DOT_COLLECT, SUM, SUM_BACKWARD, MEAN, MEAN_BACKWARD,
               LARGEST, LARGEST_BACKWARD } attention_kernel;

static outputs attention(const halognn_cpu *k, const input *in, attention_kernel which, int64_t heads) {
    const shape *s = in->s;
    const int64_t width = s->cols / heads, stored = s->sources * s->cols, numbers = in->edges * heads;
    const uint64_t before = state; /* both levels get the same numbers */
    float *src = floats(s->sources * heads), *dst = floats(s->segments * heads), *alpha = weights_of(numbers);
    float *de = floats(numbers), *x = NULL;
    outputs o = {0};
    switch (which) {
    case DOT:
        o = one(s->sources * heads, NULL);
        halognn_head_dot(k, o.at[0], s->sources, heads, width, in->h, in->gamma);
        break;
    case DOT_BACKWARD:
        o = (outputs){.at = {guarded(stored, in->h), guarded(s->cols, NULL)}, .len = {stored, s->cols}};
        halognn_head_dot_backward(k, o.at[0], o.at[1], s->sources, heads, width, src, in->h, in->gamma);
        break;
    case SOFTMAX:
        o = one(numbers, NULL);
        halognn_edge_softmax(k, o.at[0], s->segments, heads, in->indptr, in->indices, src, dst, 0.2f);
        break;
    case SOFTMAX_BACKWARD:
        o = (outputs){.at = {guarded(numbers, de), guarded(s->segments * heads, NULL)},
                      .len = {numbers, s->segments * heads}};
        halognn_edge_softmax_backward(k, o.at[0], o.at[1], s->segments, heads, in->indptr, in->indices, alpha, src, dst,
                                      0.2f);
        break;
    case COLLECT:
        o = one(s->sources * heads, NULL);
        halognn_edge_collect(k, o.at[0], s->sources, heads, in->t_indptr, in->t_edges, de);
        break;
    case DOT_SOFTMAX:
        o = one(numbers, NULL);
        halognn_edge_dot_softmax(k, o.at[0], s->segments, heads, width, in->indptr, in->indices, in->h, in->x,
                                 in->gamma, 0.2f);
        break;
    case DOT_SOFTMAX_BACKWARD:
        o = (outputs){.at = {guarded(numbers, de), guarded(in->cells, NULL), guarded(s->cols, NULL)},
                      .len = {numbers, in->cells, s->cols}};
        halognn_edge_dot_softmax_backward(k, o.at[0], o.at[1], o.at[2], s->segments, heads, width, in->indptr,
                                          in->indices, alpha, in->h, in->x, in->gamma, 0.2f);
        break;
    case DOT_COLLECT:
        o = one(stored, in->h);
        halognn_edge_dot_collect(k, o.at[0], s->sources, heads, width, in->t_indptr, in->t_indices, in->t_edges, de,
                                 in->h, in->x, in->gamma, 0.2f);
        break;
    case SUM:
        o = one(in->cells, NULL);
        halognn_edge_sum(k, o.at[0], s->segments, heads, width, in->indptr, in->indices, alpha, in->h);
        break;
    case SUM_BACKWARD:
        o = (outputs){.at = {guarded(stored, NULL), guarded(numbers, NULL)}, .len = {stored, numbers}};
        halognn_edge_sum_backward(k, o.at[0], o.at[1], s->sources, heads, width, in->t_indptr, in->t_indices, in->t_edges,
                                  alpha, in->h, in->dy);
        break;
    case MEAN:
        o = one(s->sources * width, NULL);
        halognn_head_mean(k, o.at[0], s->sources, heads, width, in->h);
        break;
    case MEAN_BACKWARD:
        o = one(stored, NULL);
        halognn_head_mean_backward(k, o.at[0], s->sources, heads, width, in->h);
        break;
    case LARGEST:
        o = one(s->sources * width, NULL);
        x = coarse(in);
        halognn_head_max(k, o.at[0], s->sources, heads, width, x);
        break;
    case LARGEST_BACKWARD:
        o = one(stored, NULL);
        x = coarse(in);
        halognn_head_max_backward(k, o.at[0], s->sources, heads, width, in->h, x);
        break;
    }
    state = before;
    free(src);
    free(dst);
    free(alpha);
    free(de);
    free(x);
    return o;
}

#define ATTENTION(name, which)                                                                                       \
    static outputs name(const halognn_cpu *k, const input *in) { return attention(k, in, which, heads_of(in->s)); } \
    static outputs name##_one(const halognn_cpu *k, const input *in) { return attention(k, in, which, 1); }
ATTENTION(head_max, LARGEST)
ATTENTION(head_max_backward, LARGEST_BACKWARD)
ATTENTION(head_dot, DOT)
ATTENTION(head_dot_backward, DOT_BACKWARD)
ATTENTION(edge_softmax, SOFTMAX)
ATTENTION(edge_softmax_backward, SOFTMAX_BACKWARD)
ATTENTION(edge_collect, COLLECT)
ATTENTION(edge_dot_softmax, DOT_SOFTMAX)
ATTENTION(edge_dot_softmax_backward, DOT_SOFTMAX_BACKWARD)
ATTENTION(edge_dot_collect, DOT_COLLECT)
ATTENTION(edge_sum, SUM)
ATTENTION(edge_sum_backward, SUM_BACKWARD)
ATTENTION(head_mean, MEAN)
ATTENTION(head_mean_backward, MEAN_BACKWARD)

static outputs layer_norm(const halognn_cpu *k, const input *in) {
    const int64_t rows = in->s->segments;
    const outputs o = {.at = {guarded(in->cells, NULL), guarded(rows, NULL), guarded(rows, NULL)},
                       .len = {in->cells, rows, rows}};
    halognn_layer_norm(k, o.at[0], rows, in->s->cols, in->x, in->gamma, in->beta, o.at[1], o.at[2], 1e-1f);
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
    halognn_layer_norm_backward(k, o.at[0], o.at[1], o.at[2], rows, cols, o.at[0], in->x, in->gamma, mean, rstd);
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
    halognn_batch_norm(k, o.at[0], in->s->segments, in->s->cols, o.at[0], in->gamma, in->beta, m, m + in->s->cols, 1e-1f);
    free(m);
    return o;
}

static outputs batch_norm_sums(const halognn_cpu *k, const input *in) {
    const int64_t cols = in->s->cols;
    const outputs o = {.at = {guarded(cols, NULL), guarded(cols, NULL)}, .len = {cols, cols}};
    float *m = moments(in);
    halognn_batch_norm_sums(k, o.at[0], o.at[1], in->s->segments, cols, in->dy, in->x, m, m + cols, 1e-1f);
    free(m);
    return o;
}

static outputs batch_norm_backward(const halognn_cpu *k, const input *in) {
    const int64_t cols = in->s->cols;
    const outputs o = one(in->cells, in->dy);
    float *m = moments(in);
    halognn_batch_norm_backward(k, o.at[0], in->s->segments, cols, o.at[0], in->x, in->gamma, m, m + cols, in->beta,
                                in->gamma, 1e-1f, in->s->segments + 3);
    free(m);
    return o;
}

static outputs adam(const halognn_cpu *k, const input *in) {
    const int64_t n = in->cells;
    const outputs o = {.at = {guarded(n, in->x), guarded(n, in->dy), guarded(n, in->dy)}, .len = {n, n, n}};
    for (int64_t i = 0; i < n; i++)
        o.at[2][i] = o.at[2][i] * o.at[2][i];
    halognn_adam(k, o.at[0], o.at[1], o.at[2], n, in->dy, 0.01f, 0.999f, 0.9f, 0.1f, 0.999f, 0.001f, 0.003f, 2.0f,
                 1e-8f);
    return o;
}

static outputs sgd(const halognn_cpu *k, const input *in, int first) {
    const outputs o = {.at = {guarded(in->cells, in->x), guarded(in->cells, in->dy)}, .len = {in->cells, in->cells}};
    halognn_sgd(k, o.at[0], o.at[1], in->cells, in->dy, 0.01f, 0.9f, 0.05f, first);
    return o;
}
static outputs sgd_first(const halognn_cpu *k, const input *in) { return sgd(k, in, 1); }
static outputs sgd_later(const halognn_cpu *k, const input *in) { return sgd(k, in, 0); }

static const struct {
    const char *name;
    outputs (*run)(const halognn_cpu *, const input *);
    double tolerance;
} kernels[] = {
    {"gather_rows float32", gather_float, 0},
    {"gather_rows float16", gather_half, 0},
    {"slice_rows", slice, 0},
    {"segment_mean", mean, 0},
    {"segment_rows mean", mean_rows, 0},
    {"segment_rows mean of float16", mean_half_rows, 0},
    {"segment_rows mean of float16 and float32", mean_mixed_rows, 0},
    {"segment_rows max of float16 and float32", max_mixed_rows, 0},
    {"segment_rows sum", sum_rows, 0},
    {"segment_rows weighted sum of float16", weighted_half_rows, 0},
    {"segment_rows max", max_rows, 0},
    {"segment_rows max of float16", max_half_rows, 0},
    {"segment_max", max_alone, 0},
    {"segment_max with arg", max_with_arg, 0},
    {"segment_max_backward", max_backward, 0},
    {"segment_sum", sum_set, 0},
    {"segment_sum weighted", sum_weighted, 0},
    {"segment_sum weighted add", sum_weighted_add, 0},
    {"segment_mean_backward", mean_backward_set, 0},
    {"segment_mean_backward add", mean_backward_add, 0},
    {"add_bias", add_bias, 0},
    {"column_sum", column_sum, 0},
    {"to_bf16", to_bf16, 0},
    {"to_bf16, packed", to_bf16_packed, 0},
    {"round_factors", round_factors, 0},
    {"round_factors, packed", round_factors_packed, 0},
    {"add_into", add_into, 0},
    {"relu", relu, 0},
    {"relu_dropout", relu_dropout, 0},
    {"relu_backward", relu_backward, 0},
    {"add_scaled", add_scaled, 0},
    {"copy_columns", columns_set, 0},
    {"copy_columns add", columns_add, 0},
    {"column_dot", column_dot, 0},
    {"elu", elu_plain, 0},
    {"elu dropout", elu_dropout, 0},
    {"elu_backward", elu_backward_plain, 0},
    {"elu_backward dropout", elu_backward_dropout, 0},
    {"head_dot", head_dot, 0},
    {"head_dot one head", head_dot_one, 0},
    {"head_dot_backward", head_dot_backward, 0},
    {"head_dot_backward one head", head_dot_backward_one, 0},
    {"edge_softmax", edge_softmax, 0},
    {"edge_softmax one head", edge_softmax_one, 0},
    {"edge_softmax_backward", edge_softmax_backward, 0},
    {"edge_softmax_backward one head", edge_softmax_backward_one, 0},
    {"edge_collect", edge_collect, 0},
    {"edge_collect one head", edge_collect_one, 0},
    {"edge_dot_softmax", edge_dot_softmax, 0},
    {"edge_dot_softmax one head", edge_dot_softmax_one, 0},
    {"edge_dot_softmax_backward", edge_dot_softmax_backward, 0},
    {"edge_dot_softmax_backward one head", edge_dot_softmax_backward_one, 0},
    {"edge_dot_collect", edge_dot_collect, 0},
    {"edge_dot_collect one head", edge_dot_collect_one, 0},
    {"edge_sum", edge_sum, 0},
    {"edge_sum one head", edge_sum_one, 0},
    {"edge_sum_backward", edge_sum_backward, 0},
    {"edge_sum_backward one head", edge_sum_backward_one, 0},
    {"head_mean", head_mean, 0},
    {"head_mean one head", head_mean_one, 0},
    {"head_mean_backward", head_mean_backward, 0},
    {"head_mean_backward one head", head_mean_backward_one, 0},
    {"head_max", head_max, 0},
    {"head_max one head", head_max_one, 0},
    {"head_max_backward", head_max_backward, 0},
    {"head_max_backward one head", head_max_backward_one, 0},
    {"layer_norm", layer_norm, LAYER_NORM_TOLERANCE},
    {"layer_norm_backward", layer_norm_backward, LAYER_NORM_TOLERANCE},
    {"column_squares", column_squares, 0},
    {"batch_norm", batch_norm, 0},
    {"batch_norm_sums", batch_norm_sums, 0},
    {"batch_norm_backward", batch_norm_backward, 0},
    {"adam", adam, 0},
    {"sgd, first step", sgd_first, 0},
    {"sgd", sgd_later, 0},
};

/* Every kernel of the table is tested: the name of a test is a kernel's name and, after a blank or
 * comma, the variant. */
static void test_all_are_tested(void) {
    static const char *const table[] = {
#define EACH_CPU_KERNEL(name, params, args) #name,
#include "halognn_kernels.def"
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int tested = 0;
        for (size_t f = 0; f < sizeof kernels / sizeof *kernels; f++) {
            const size_t n = strcspn(kernels[f].name, " ,");
            tested |= n == strlen(table[i]) && strncmp(kernels[f].name, table[i], n) == 0;
        }
        if (!tested) {
            failures++;
            printf("FAIL there is no test of %s\n", table[i]);
        }
    }
}

static void check(int ok, const char *what) {
    if (!ok) {
        failures++;
        printf("FAIL %s\n", what);
    }
}

/* Compares every float16 with its arithmetic definition. */
static void test_half(void) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
        const double sign = h & 0x8000 ? -1 : 1, got = halognn_half((uint16_t)h);
        if (exponent == 31) {
            check(fraction == 0 ? got == sign * INFINITY : isnan(got), "float16 infinity or NaN");
            continue;
        }
        const double want = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, (int)exponent - 25);
        check(got == sign * want && signbit(got) == (sign < 0), "float16 conversion");
    }
}

/* Every bfloat16, and numbers between it and the next one, which round to the nearer of the two,
 * ties to the one whose last bit is 0. Infinity, after the largest, counts as 2^128. */
static void test_bf16(void) {
    static const uint32_t between[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t upper = 0; upper < 0x10000; upper++) {
        for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
            const uint32_t bits = upper << 16 | between[i];
            const int up = between[i] > 0x8000 || (between[i] == 0x8000 && upper % 2 == 1);
            float x, rounded;
            memcpy(&x, &bits, 4);
            rounded = halognn_rounded(x, HALOGNN_BF16_DROPPED);
            const uint16_t got = halognn_bf16(x);
            check(isnan(x) ? isnan(rounded) : got == (uint16_t)(upper + up), "rounding to bfloat16");
            uint32_t kept;
            memcpy(&kept, &rounded, 4);
            check(kept == (uint32_t)got << 16, "bfloat16 and its float32");
        }
    }
}

static void test_checks(void) {
    const int32_t ids[] = {0, 4, 2, -1, 9};
    const halognn_table tables[] = {{ids, 3}, {ids, 0}};
    const uint64_t one = (uint64_t)1 << HALOGNN_REF_ROW_BITS, refs[] = {2, 0, 3}, empty[] = {one}, beyond[] = {2 * one};
    check(halognn_check_ids(ids, 0, 0) == -1, "check_ids: none");
    check(halognn_check_ids(ids, 3, 5) == -1, "check_ids: in range");
    check(halognn_check_ids(ids, 3, 4) == 1, "check_ids: one too large");
    check(halognn_check_ids(ids, 5, 5) == 3, "check_ids: negative");
    check(halognn_check_sources(ids, 3, 5) == -1, "check_sources: in range");
    check(halognn_check_sources(ids, 3, 4) == 1, "check_sources: one too large");
    check(halognn_check_sources(ids + 3, 1, 1) == -1, "check_sources: one that begins a group is row 0");
    check(halognn_check_refs(refs, 2, tables, 2) == -1, "check_refs: in range");
    check(halognn_check_refs(refs, 3, tables, 2) == 2, "check_refs: row too large");
    check(halognn_check_refs(empty, 1, tables, 2) == 0, "check_refs: empty table");
    check(halognn_check_refs(beyond, 1, tables, 2) == 0, "check_refs: no such table");
    check(halognn_cpu_open("sse9") == NULL, "an unknown level opens");
}

int main(void) {
    static const char *const levels[] = {"avx2", "avx512"};
    const halognn_cpu *plain = halognn_cpu_open("scalar");
    test_half();
    test_bf16();
    test_checks();
    test_all_are_tested();
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        const halognn_cpu *k = halognn_cpu_open(levels[l]);
        if (k == NULL) {
            printf("skipped %s: this machine does not have it\n", levels[l]);
            continue;
        }
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            input in = build(&shapes[i]);
            for (size_t f = 0; f < sizeof kernels / sizeof *kernels; f++)
                compare(&shapes[i], kernels[f].name, levels[l], kernels[f].run(k, &in), kernels[f].run(plain, &in),
                        kernels[f].tolerance);
            release(&in);
        }
        printf("tested %s\n", k->level);
    }
    printf(failures == 0 ? "ok\n" : "%d failures\n", failures);
    return failures > 0;
}
