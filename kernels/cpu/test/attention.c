/* Attention over segments of edges, and what is done with its heads. */
#include "test.h"

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

typedef enum {
    DOT,
    DOT_BACKWARD,
    SOFTMAX,
    SOFTMAX_BACKWARD,
    COLLECT,
    DOT_SOFTMAX,
    DOT_SOFTMAX_BACKWARD,
    DOT_COLLECT,
    SUM,
    SUM_BF16,
    SUM_BACKWARD,
    MEAN,
    MEAN_BACKWARD,
    LARGEST,
    LARGEST_BACKWARD
} attention_kernel;

static outputs attention(const halognn_cpu *k, const input *in, attention_kernel which,
                         int64_t heads) {
    const shape *s = in->s;
    const int64_t width = s->cols / heads, stored = s->sources * s->cols,
                  numbers = in->edges * heads;
    const uint64_t before = random_state; /* both levels get the same numbers */
    float *src = floats(s->sources * heads), *dst = floats(s->segments * heads),
          *alpha = weights_of(numbers);
    float *de = floats(numbers), *x = NULL;
    outputs o = {0};
    switch (which) {
    case DOT:
        o = one(s->sources * heads, NULL);
        halognn_head_dot(k, o.at[0], s->sources, heads, width, in->h, in->gamma);
        break;
    case DOT_BACKWARD:
        o = (outputs){.at = {guarded(stored, in->h), guarded(s->cols, NULL)},
                      .len = {stored, s->cols}};
        halognn_head_dot_backward(k, o.at[0], o.at[1], s->sources, heads, width, src, in->h,
                                  in->gamma);
        break;
    case SOFTMAX:
        o = one(numbers, NULL);
        halognn_edge_softmax(k, o.at[0], s->segments, heads, in->indptr, in->indices, src, dst,
                             0.2f);
        break;
    case SOFTMAX_BACKWARD:
        o = (outputs){.at = {guarded(numbers, de), guarded(s->segments * heads, NULL)},
                      .len = {numbers, s->segments * heads}};
        halognn_edge_softmax_backward(k, o.at[0], o.at[1], s->segments, heads, in->indptr,
                                      in->indices, alpha, src, dst, 0.2f);
        break;
    case COLLECT:
        o = one(s->sources * heads, NULL);
        halognn_edge_collect(k, o.at[0], s->sources, heads, in->t_indptr, in->t_edges, de);
        break;
    case DOT_SOFTMAX:
        o = one(numbers, NULL);
        halognn_edge_dot_softmax(k, o.at[0], s->segments, heads, width, in->indptr, in->indices,
                                 in->h, in->x, in->gamma, 0.2f);
        break;
    case DOT_SOFTMAX_BACKWARD:
        o = (outputs){
            .at = {guarded(numbers, de), guarded(in->cells, NULL), guarded(s->cols, NULL)},
            .len = {numbers, in->cells, s->cols}};
        halognn_edge_dot_softmax_backward(k, o.at[0], o.at[1], o.at[2], s->segments, heads, width,
                                          in->indptr, in->indices, alpha, in->h, in->x, in->gamma,
                                          0.2f);
        break;
    case DOT_COLLECT:
        o = one(stored, in->h);
        halognn_edge_dot_collect(k, o.at[0], s->sources, heads, width, in->t_indptr, in->t_indices,
                                 in->t_edges, de, in->h, in->x, in->gamma, 0.2f);
        break;
    case SUM:
        o = one(in->cells, NULL);
        halognn_edge_sum(k, o.at[0], s->segments, heads, width, in->indptr, in->indices, alpha,
                         of_floats(in->h));
        break;
    case SUM_BF16:
        o = one(in->cells, NULL);
        halognn_edge_sum(k, o.at[0], s->segments, heads, width, in->indptr, in->indices, alpha,
                         of_bf16(in->half));
        break;
    case SUM_BACKWARD:
        o = (outputs){.at = {guarded(stored, NULL), guarded(numbers, NULL)},
                      .len = {stored, numbers}};
        halognn_edge_sum_backward(k, o.at[0], o.at[1], s->sources, heads, width, in->t_indptr,
                                  in->t_indices, in->t_edges, alpha, in->h, in->dy);
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
    random_state = before;
    free(src);
    free(dst);
    free(alpha);
    free(de);
    free(x);
    return o;
}

#define ATTENTION(name, which)                                         \
    static outputs name(const halognn_cpu *k, const input *in) {       \
        return attention(k, in, which, heads_of(in->s));               \
    }                                                                  \
    static outputs name##_one(const halognn_cpu *k, const input *in) { \
        return attention(k, in, which, 1);                             \
    }
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
ATTENTION(edge_sum_bf16, SUM_BF16)
ATTENTION(edge_sum_backward, SUM_BACKWARD)
ATTENTION(head_mean, MEAN)
ATTENTION(head_mean_backward, MEAN_BACKWARD)

const test attention_tests[] = {
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
    {"edge_sum of bfloat16", edge_sum_bf16, 0},
    {"edge_sum of bfloat16, one head", edge_sum_bf16_one, 0},
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
    {0},
};
