/* Which kernels run: one table per level, chosen by name or by what the machine has. */
#include <string.h>

#include "kernels.h"

#define ENTRY(name, params) .name = name##_ref,
static const halognn_cpu scalar = {.level = "scalar", HALOGNN_EACH_KERNEL(ENTRY)};
#undef ENTRY

#ifdef __x86_64__
#define ENTRY(name, params) .name = name##_avx2,
static const halognn_cpu avx2 = {.level = "avx2", HALOGNN_EACH_KERNEL(ENTRY)};
#undef ENTRY
#define ENTRY(name, params) .name = name##_avx512,
static const halognn_cpu avx512 = {.level = "avx512", HALOGNN_EACH_KERNEL(ENTRY)};
#undef ENTRY

/* __builtin_cpu_supports also asks the operating system whether it saves the registers. Every processor with AVX2 has F16C,
 * which not every compiler can ask for. */
static int has_avx2(void) { return __builtin_cpu_supports("avx2"); }
static int has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_avx2();
}
#endif

const halognn_cpu *halognn_cpu_open(const char *level) {
    const int any = level == NULL || *level == '\0';
#ifdef __x86_64__
    __builtin_cpu_init();
    if ((any || strcmp(level, "avx512") == 0) && has_avx512())
        return &avx512;
    if ((any || strcmp(level, "avx2") == 0) && has_avx2())
        return &avx2;
#endif
    return any || strcmp(level, "scalar") == 0 ? &scalar : NULL;
}

const char *halognn_cpu_level(const halognn_cpu *k) { return k->level; }

int64_t halognn_check_refs(const uint64_t *of, int64_t n, const halognn_table *tables, int64_t ntables) {
    for (int64_t i = 0; i < n; i++) {
        const uint64_t table = of[i] >> HALOGNN_REF_ROW_BITS;
        const uint64_t row = of[i] & (((uint64_t)1 << HALOGNN_REF_ROW_BITS) - 1);
        if (table >= (uint64_t)ntables || row >= (uint64_t)tables[table].rows)
            return i;
    }
    return -1;
}

int64_t halognn_check_ids(const int32_t *ids, int64_t n, int64_t limit) {
    uint32_t largest = 0; /* as unsigned, a negative id is larger than any limit */
    for (int64_t i = 0; i < n; i++)
        largest = (uint32_t)ids[i] > largest ? (uint32_t)ids[i] : largest;
    if (n == 0 || largest < (uint64_t)limit)
        return -1;
    for (int64_t i = 0;; i++)
        if ((uint32_t)ids[i] >= (uint64_t)limit)
            return i;
}

void halognn_segment_mean(const halognn_cpu *k, float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                          const int32_t *indices, const float *h) {
    k->segment_mean(out, segments, cols, indptr, indices, h);
}

void halognn_segment_sum(const halognn_cpu *k, float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                         const int32_t *indices, const float *weights, const float *h, int add) {
    k->segment_sum(out, segments, cols, indptr, indices, weights, h, add);
}

void halognn_segment_mean_backward(const halognn_cpu *k, float *dh, int64_t segments, int64_t cols,
                                   const int64_t *t_indptr, const int32_t *t_indices, const int64_t *indptr,
                                   const float *dout, int add) {
    k->segment_mean_backward(dh, segments, cols, t_indptr, t_indices, indptr, dout, add);
}

void halognn_add_bias(const halognn_cpu *k, float *y, int64_t rows, int64_t cols, const float *b) {
    k->add_bias(y, rows, cols, b);
}

void halognn_column_sum(const halognn_cpu *k, float *sum, int64_t rows, int64_t cols, const float *x) {
    k->column_sum(sum, rows, cols, x);
}

void halognn_add_into(const halognn_cpu *k, float *sum, int64_t n, const float *x) { k->add_into(sum, n, x); }

void halognn_relu(const halognn_cpu *k, float *y, int64_t n) { k->relu(y, n); }

void halognn_relu_dropout(const halognn_cpu *k, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale,
                          uint64_t key, const int32_t *vertices) {
    k->relu_dropout(y, rows, cols, threshold, scale, key, vertices);
}

void halognn_relu_backward(const halognn_cpu *k, float *dy, int64_t n, const float *y, float scale) {
    k->relu_backward(dy, n, y, scale);
}

void halognn_layer_norm(const halognn_cpu *k, float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                        const float *beta, float *mean, float *rstd, float eps) {
    k->layer_norm(y, rows, cols, x, gamma, beta, mean, rstd, eps);
}

void halognn_layer_norm_backward(const halognn_cpu *k, float *dx, float *dgamma, float *dbeta, int64_t rows,
                                 int64_t cols, const float *dy, const float *x, const float *gamma, const float *mean,
                                 const float *rstd) {
    k->layer_norm_backward(dx, dgamma, dbeta, rows, cols, dy, x, gamma, mean, rstd);
}

void halognn_adam(const halognn_cpu *k, float *p, float *m, float *v, int64_t n, const float *g, float l2, float decay,
                  float beta1, float one_minus_beta1, float beta2, float one_minus_beta2, float step, float root,
                  float eps) {
    k->adam(p, m, v, n, g, l2, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step, root, eps);
}

void halognn_sgd(const halognn_cpu *k, float *p, float *buf, int64_t n, const float *g, float l2, float momentum,
                 float lr, int first) {
    k->sgd(p, buf, n, g, l2, momentum, lr, first);
}
