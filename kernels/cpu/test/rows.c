/* Rows and columns: gathered, copied, added. */
#include "test.h"

static outputs gather(const halognn_cpu *k, const input *in, int bytes) {
    const outputs o = one(in->s->sources * in->s->cols, NULL);
    halognn_gather_rows(k, o.at[0], in->s->sources, in->s->cols, elements_of(in, bytes, HALOGNN_NO_WIDE, 4),
                        tables_of(in, bytes), in->refs);
    return o;
}
static outputs gather_float(const halognn_cpu *k, const input *in) { return gather(k, in, 4); }
static outputs gather_half(const halognn_cpu *k, const input *in) { return gather(k, in, 2); }
static outputs gather_byte(const halognn_cpu *k, const input *in) { return gather(k, in, 1); }

static outputs slice(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->sources * in->s->cols, NULL);
    halognn_slice_rows(k, (uint8_t *)o.at[0], in->s->sources, in->s->cols * 4,
                       (const uint8_t *)in->h, in->ids);
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

static outputs turned(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_transpose(k, o.at[0], in->s->cols, in->s->segments, in->dy, in->s->cols);
    return o;
}

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

static outputs add_scaled(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    halognn_add_scaled(k, o.at[0], in->cells, o.at[0], in->dy, in->gamma);
    return o;
}

static outputs column_dot(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->cols, NULL);
    halognn_column_dot(k, o.at[0], in->s->segments, in->s->cols, in->x, in->dy);
    return o;
}

const test rows_tests[] = {
    {"gather_rows float32", gather_float, 0},
    {"gather_rows float16", gather_half, 0},
    {"gather_rows int8", gather_byte, 0},
    {"slice_rows", slice, 0},
    {"add_bias", add_bias, 0},
    {"column_sum", column_sum, 0},
    {"add_into", add_into, 0},
    {"add_scaled", add_scaled, 0},
    {"copy_columns", columns_set, 0},
    {"copy_columns add", columns_add, 0},
    {"transpose", turned, 0},
    {"column_dot", column_dot, 0},
    {0},
};
