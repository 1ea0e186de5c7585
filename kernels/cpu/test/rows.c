/* Rows and columns: gathered, copied, added. */
#include "test.h"

static outputs gather(const halognn_cpu *k, const input *in, int bytes) {
    const outputs o = one(in->s->sources * in->s->cols, NULL);
    halognn_gather_rows(k, wide(o.at[0]), in->s->sources, in->s->cols,
                        elements_of(in, bytes, HALOGNN_NO_WIDE, 4), tables_of(in, bytes), in->refs);
    return o;
}
static outputs gather_to_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one((in->s->sources * in->s->cols + 1) / 2, NULL);
    halognn_gather_rows(k, narrow(o.at[0]), in->s->sources, in->s->cols,
                        elements_of(in, 1, HALOGNN_NO_WIDE, 4), tables_of(in, 1), in->refs);
    return o;
}
static outputs gather_float(const halognn_cpu *k, const input *in) { return gather(k, in, 4); }
static outputs gather_bf16(const halognn_cpu *k, const input *in, halognn_result to, outputs o) {
    halognn_elements as = elements_of(in, 2, HALOGNN_NO_WIDE, 4);
    as.bf16 = 1;
    halognn_gather_rows(k, to, in->s->sources, in->s->cols, as, tables_of(in, 2), in->refs);
    return o;
}
static outputs gather_widened(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->sources * in->s->cols, NULL);
    return gather_bf16(k, in, wide(o.at[0]), o);
}
static outputs gather_as_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one((in->s->sources * in->s->cols + 1) / 2, NULL);
    return gather_bf16(k, in, narrow(o.at[0]), o);
}
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
    halognn_copy_columns(k, o.at[0] + cols / 3, in->s->segments, n, cols, of_floats(in->dy), cols,
                         add);
    return o;
}
static outputs columns_bf16(const halognn_cpu *k, const input *in) {
    const int64_t cols = in->s->cols;
    const outputs o = one(in->cells, in->x);
    uint16_t *rounded = must_alloc((size_t)in->cells * 2);
    halognn_to_bf16(k, rounded, in->cells, 1, in->cells, in->dy, in->cells);
    halognn_copy_columns(k, o.at[0], in->s->segments, cols / 2, cols, of_bf16(rounded), cols, 0);
    halognn_copy_columns(k, o.at[0] + cols / 2, in->s->segments, cols - cols / 2, cols,
                         of_bf16(rounded), cols, 1);
    free(rounded);
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
    halognn_add_scaled(k, wide(o.at[0]), in->cells, of_floats(o.at[0]), of_floats(in->dy),
                       in->gamma);
    return o;
}
static outputs add_scaled_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->x);
    uint16_t *rounded = must_alloc((size_t)in->cells * 2);
    halognn_to_bf16(k, rounded, in->cells, 1, in->cells, in->dy, in->cells);
    halognn_add_scaled(k, wide(o.at[0]), in->cells, of_bf16(rounded), of_floats(in->dy), in->gamma);
    halognn_add_scaled(k, wide(o.at[0]), in->cells, of_floats(o.at[0]), of_bf16(rounded),
                       in->gamma);
    free(rounded);
    return o;
}
static outputs add_scaled_to_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one((in->cells + 1) / 2, NULL);
    halognn_add_scaled(k, narrow(o.at[0]), in->cells, of_floats(in->x), of_floats(in->dy),
                       in->gamma);
    return o;
}

static outputs column_dot(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->cols, NULL);
    halognn_column_dot(k, o.at[0], in->s->segments, in->s->cols, in->x,
                       of_floats(in->dy));
    return o;
}

const test rows_tests[] = {
    {"gather_rows float32", gather_float, 0},
    {"gather_rows float16", gather_half, 0},
    {"gather_rows bfloat16 to float32", gather_widened, 0},
    {"gather_rows bfloat16", gather_as_bf16, 0},
    {"gather_rows int8", gather_byte, 0},
    {"gather_rows int8 to bfloat16", gather_to_bf16, 0},
    {"slice_rows", slice, 0},
    {"add_bias", add_bias, 0},
    {"column_sum", column_sum, 0},
    {"add_into", add_into, 0},
    {"add_scaled", add_scaled, 0},
    {"add_scaled of bfloat16", add_scaled_bf16, 0},
    {"add_scaled to bfloat16", add_scaled_to_bf16, 0},
    {"copy_columns", columns_set, 0},
    {"copy_columns of bfloat16", columns_bf16, 0},
    {"copy_columns add", columns_add, 0},
    {"transpose", turned, 0},
    {"column_dot", column_dot, 0},
    {0},
};
