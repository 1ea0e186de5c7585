/*
 * CPU kernels of halognn: everything irregular that a GNN layer needs and BLAS does not have.
 *
 * Plain C: no hidden state, no allocation, no threads. A caller tiles the rows over its threads; every kernel works on
 * the tile it is given. Matrices are row-major float32 without padding. Sums over edges and over rows are made in order
 * with one accumulator per output, so a result depends neither on tile nor on vector width; only layer_norm, which sums
 * along a row, differs between "scalar" and the vector levels in its last bits.
 *
 *   const halognn_cpu *k = halognn_cpu_open(NULL);        best level of this machine
 *   halognn_segment_mean(k, out, 512, 100, indptr, indices, h);
 */
#ifndef HALOGNN_CPU_H
#define HALOGNN_CPU_H

#include <stdint.h>

/* The kernels compiled for one SIMD level. */
typedef struct halognn_cpu halognn_cpu;

/* Opens a level by name: "scalar" (the plain reference kernels), "avx2" (AVX2, F16C), "avx512" (F, BW, DQ, VL); NULL or ""
 * is the best one. Returns NULL if the name is unknown or the machine lacks the instructions. Nothing to close. */
const halognn_cpu *halognn_cpu_open(const char *level);
const char *halognn_cpu_level(const halognn_cpu *k);

/* A table of feature rows. */
typedef struct {
    const void *base;
    int64_t rows;
} halognn_table;

/* A row reference names a row of one of several tables: table << HALOGNN_REF_ROW_BITS | row. */
#define HALOGNN_REF_ROW_BITS 48

/* Checks. Each returns -1, or the position of the first fault. The kernels trust their arguments. */

/* Every of[i], i < n, names a table and a row of it. */
int64_t halognn_check_refs(const uint64_t *of, int64_t n, const halognn_table *tables, int64_t ntables);
/* Every ids[i], i < n, is in [0, limit). */
int64_t halognn_check_ids(const int32_t *ids, int64_t n, int64_t limit);

/* Kernels that read tables of rows. The tables may be files mapped into memory, and a mapped file may shrink: these three
 * return 0, or the address that could not be read once halognn_catch_faults has been called; the output is then garbage.
 * halognn_catch_faults handles SIGBUS for them and passes every other one on to the handler it found; 0, or errno. */
int halognn_catch_faults(void);

/* dst[i,:] = row of[i], i < n, as float32; half: the tables hold float16. dst [n,cols]. */
uintptr_t halognn_gather_rows(const halognn_cpu *k, float *dst, int64_t n, int64_t cols, int half,
                              const halognn_table *tables, const uint64_t *of);
/* dst[i] = table[ids[i]], rows of row_bytes bytes. */
uintptr_t halognn_slice_rows(const halognn_cpu *k, uint8_t *dst, int64_t n, int64_t row_bytes, const uint8_t *table,
                             const int32_t *ids);
/* out[d,:] = mean of the rows of[indices[e]], e in [indptr[d], indptr[d+1]), d < segments; zero for an empty segment.
 * out [segments,cols]. */
uintptr_t halognn_segment_mean_rows(const halognn_cpu *k, float *out, int64_t segments, int64_t cols,
                                    const int64_t *indptr, const int32_t *indices, int half,
                                    const halognn_table *tables, const uint64_t *of);

/* The same of the rows indices[e] of a matrix h. */
void halognn_segment_mean(const halognn_cpu *k, float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                          const int32_t *indices, const float *h);
/* out[d,:] = (add ? out[d,:] : 0) + sum over e in [indptr[d], indptr[d+1]) of h[indices[e],:] * weights[e], or of h[indices[e],:] if
 * weights is NULL. The same of the transpose is its gradient. out [segments,cols]. */
void halognn_segment_sum(const halognn_cpu *k, float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                         const int32_t *indices, const float *weights, const float *h, int add);
/* dh[s,:] = (add ? dh[s,:] : 0) + sum over e in segment s of the transpose of dout[t,:] * (1/degree(t)), t = t_indices[e],
 * degree(t) = indptr[t+1] - indptr[t]. dh [segments,cols]. */
void halognn_segment_mean_backward(const halognn_cpu *k, float *dh, int64_t segments, int64_t cols,
                                   const int64_t *t_indptr, const int32_t *t_indices, const int64_t *indptr,
                                   const float *dout, int add);

/* y[r,:] += b */
void halognn_add_bias(const halognn_cpu *k, float *y, int64_t rows, int64_t cols, const float *b);
/* sum[:] = sum of the rows of x, in order; zero for no rows. */
void halognn_column_sum(const halognn_cpu *k, float *sum, int64_t rows, int64_t cols, const float *x);
/* sum[i] += x[i] */
void halognn_add_into(const halognn_cpu *k, float *sum, int64_t n, const float *x);

/* y = y < 0 ? 0 : y, so that NaN stays NaN. */
void halognn_relu(const halognn_cpu *k, float *y, int64_t n);
/* The same, then elements whose bits are below threshold become 0 and the others are multiplied by scale. The bits follow
 * from (key, vertices[r], column) as compute.DropoutRow.Bits defines. */
void halognn_relu_dropout(const halognn_cpu *k, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale,
                          uint64_t key, const int32_t *vertices);
/* dy = y > 0 ? dy * scale : 0 */
void halognn_relu_backward(const halognn_cpu *k, float *dy, int64_t n, const float *y, float scale);

/* y = (x - mean) * rstd * gamma + beta by rows, rstd = 1/sqrt(var + eps), biased variance; y may be x. mean, rstd [rows]. */
void halognn_layer_norm(const halognn_cpu *k, float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                        const float *beta, float *mean, float *rstd, float eps);
/* dx, and dgamma, dbeta [cols] = the sums over these rows, in order; dx may be dy. */
void halognn_layer_norm_backward(const halognn_cpu *k, float *dx, float *dgamma, float *dbeta, int64_t rows,
                                 int64_t cols, const float *dy, const float *x, const float *gamma, const float *mean,
                                 const float *rstd);

/* Losses: one version for every level, because exp and log of libm, in double, are all of their time.
 * Each returns the sum of the losses, unscaled, rows in order; dlogits, unless NULL, is the gradient times scale. */

/* *correct = rows whose first largest logit is the label. labels[r] in [0,cols). */
double halognn_softmax_ce(float *dlogits, int64_t rows, int64_t cols, const float *logits, const int32_t *labels,
                          float scale, int64_t *correct);
/* counts = true positives, false positives, false negatives of logit > 0. targets 0 or 1. */
double halognn_sigmoid_bce(float *dlogits, int64_t n, const float *logits, const uint8_t *targets, float scale,
                           int64_t counts[3]);

/* g += l2*p;  m = beta1*m + (1-beta1)*g;  v = beta2*v + (1-beta2)*g*g;  p = decay*p - step * m / (sqrt(v)*root + eps) */
void halognn_adam(const halognn_cpu *k, float *p, float *m, float *v, int64_t n, const float *g, float l2, float decay,
                  float beta1, float one_minus_beta1, float beta2, float one_minus_beta2, float step, float root,
                  float eps);
/* g += l2*p;  buf = first ? g : momentum*buf + g;  p -= lr*buf */
void halognn_sgd(const halognn_cpu *k, float *p, float *buf, int64_t n, const float *g, float l2, float momentum,
                 float lr, int first);

#endif
