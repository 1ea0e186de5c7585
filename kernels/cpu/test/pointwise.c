/* Roundings and activations. */
#include "test.h"

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
    halognn_to_bf16(k, (uint16_t *)o.at[0], in->s->cols, in->s->segments, in->s->cols, in->x,
                    in->s->cols);
    return o;
}

static outputs from_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->sources * (in->s->cols - 1), NULL);
    halognn_from_bf16(k, o.at[0], in->s->sources, in->s->cols - 1, in->half + 1, in->s->cols);
    return o;
}

static outputs from_bf16_packed(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->s->sources * in->s->cols, NULL);
    halognn_from_bf16(k, o.at[0], in->s->sources, in->s->cols, in->half, in->s->cols);
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
    halognn_round_factors(k, o.at[0], width, in->s->segments, in->s->cols - 1, in->x + 1,
                          in->s->cols, 16);
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
    halognn_relu_dropout(k, o.at[0], in->s->segments, in->s->cols, 0x40000000, 4.0f / 3,
                         0x123456789abcdef0, vertices);
    free(vertices);
    return o;
}

static outputs relu_backward(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->dy);
    halognn_relu_backward(k, o.at[0], in->cells, of_floats(in->x), 1.25f);
    return o;
}

/* The gradients behind rows of bfloat16. */
static outputs backward_bf16(const halognn_cpu *k, const input *in) {
    const outputs o = one(in->cells, in->dy);
    uint16_t *y = must_alloc((size_t)in->cells * 2);
    halognn_to_bf16(k, y, in->cells, 1, in->cells, in->x, in->cells);
    halognn_relu_backward(k, o.at[0], in->cells / 2, of_bf16(y), 1.25f);
    halognn_elu_backward(k, o.at[0], in->s->segments, in->s->cols, of_bf16(y), 0, 1, 0, NULL);
    free(y);
    return o;
}

static outputs elu(const halognn_cpu *k, const input *in, uint32_t threshold, int backward) {
    const outputs o = one(in->cells, in->x);
    const float scale = threshold ? 4.0f / 3 : 1;
    int32_t *vertices = must_alloc((size_t)in->s->segments * 4);
    for (int64_t r = 0; r < in->s->segments; r++)
        vertices[r] = (int32_t)(r * 48611 % 2147483647);
    if (backward)
        halognn_elu_backward(k, o.at[0], in->s->segments, in->s->cols, of_floats(in->dy),
                             threshold, scale, 77, vertices);
    else
        halognn_elu(k, o.at[0], in->s->segments, in->s->cols, threshold, scale, 77, vertices);
    free(vertices);
    return o;
}
static outputs elu_plain(const halognn_cpu *k, const input *in) { return elu(k, in, 0, 0); }
static outputs elu_dropout(const halognn_cpu *k, const input *in) {
    return elu(k, in, 0x40000000, 0);
}
static outputs elu_backward_plain(const halognn_cpu *k, const input *in) {
    return elu(k, in, 0, 1);
}
static outputs elu_backward_dropout(const halognn_cpu *k, const input *in) {
    return elu(k, in, 0x40000000, 1);
}

const test pointwise_tests[] = {
    {"to_bf16", to_bf16, 0},
    {"to_bf16, packed", to_bf16_packed, 0},
    {"from_bf16", from_bf16, 0},
    {"from_bf16, packed", from_bf16_packed, 0},
    {"round_factors", round_factors, 0},
    {"round_factors, packed", round_factors_packed, 0},
    {"relu", relu, 0},
    {"relu_dropout", relu_dropout, 0},
    {"relu_backward", relu_backward, 0},
    {"relu_backward and elu_backward of bfloat16", backward_bf16, 0},
    {"elu", elu_plain, 0},
    {"elu dropout", elu_dropout, 0},
    {"elu_backward", elu_backward_plain, 0},
    {"elu_backward dropout", elu_backward_dropout, 0},
    {0},
};
