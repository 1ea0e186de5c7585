/*
 * CPU kernels of halognn: the kernels of GNN layers that BLAS does not have.
 *
 * Plain C: no hidden state, no allocation, no threads. A caller tiles the rows over its threads;
 * every kernel works on the tile that it is given. Matrices are row-major without padding, of
 * float32 unless they are a halognn_matrix or halognn_result. Sums over edges and over rows are
 * made in order with one accumulator per output, so a result depends neither on the tile nor on the
 * vector width. Only layer_norm, which sums along a row, differs between "scalar" and the vector
 * levels in its last bits.
 *
 *   const halognn_cpu *k = halognn_cpu_open(NULL);        the best level of this machine
 *   halognn_segment_mean(k, out, 512, 100, indptr, indices, h);
 *
 * halognn_kernels.def specifies the kernels.
 */
#ifndef HALOGNN_CPU_H
#define HALOGNN_CPU_H

#include <stdint.h>

/* A table of feature rows. */
typedef struct {
    const void *base;
    int64_t rows;
} halognn_table;

/* The elements of rows: float32 if bytes is 4; float16 if 2 or, if bf16, bfloat16; int8 if 1.
 * Tables from wide on hold sums, whose elements have wide_bytes: float32 if 4, int16 if 2. Every
 * row begins at a multiple of the bytes of a row of the other tables. Column c of a result is
 * multiplied by scale[c], unless scale is NULL. */
typedef struct {
    int bytes, wide_bytes;
    int64_t wide;
    const float *scale;
    int bf16;
} halognn_elements;

/* A matrix that is read, and one that is written: float32 or, if bf16, bfloat16, to which numbers
 * are rounded to nearest, ties to even. */
typedef struct {
    const void *at;
    int bf16;
} halognn_matrix;
typedef struct {
    void *at;
    int bf16;
} halognn_result;

#define HALOGNN_NO_WIDE ((int64_t)1 << 16) /* no table has this number */

/* A row reference names a row of one of several tables: table << HALOGNN_REF_ROW_BITS | row. */
#define HALOGNN_REF_ROW_BITS 48

/* The numbers of vertices in one hop (src/topology/sample/labor.go): table[v] or, without a table, a mix
 * of the original id with now, or with next once turn + the vertex's phase reaches lasts. The
 * phase, in [0,lasts), is a mix of the original id with phases. */
typedef struct {
    const uint32_t *table;   /* [vertices], or NULL */
    const int32_t *original; /* [vertices] */
    int64_t vertices;
    uint64_t now, next, phases, turn, lasts;
} halognn_numbers;

/* The multipliers of the mix: SplitMix64's finaliser (src/base/random). */
#define HALOGNN_MIX_1 0xBF58476D1CE4E5B9u
#define HALOGNN_MIX_2 0x94D049BB133111EBu

/* draw_least keeps at most this many neighbours of a row as candidates; half of it is the
 * largest fanout. */
#define HALOGNN_CANDIDATES 128

/* The columns of a panel of a right factor, as many as a block of the product has. And the pairs
 * of a panel that one pass over the left factor reads: they stay in the second-level cache
 * beside it. */
#define HALOGNN_COLUMN_PANEL 64
#define HALOGNN_PAIRS_OF_PASS 512

/* The kernels of products of bfloat16. */
typedef struct {
    const char *isa;
#define PRODUCT_KERNEL(name, params, args) void(*name) params;
#include "halognn_kernels.def"
} halognn_products;

/* The kernels by AVX512-BF16, or NULL where the machine lacks it. If plain, the reference, which
 * keeps subnormal numbers. */
const halognn_products *halognn_products_open(int plain);
/* Whether they are faster than multiply-adds of float32. AMD's processors take one of them a
 * cycle, for twice the flops of multiply-adds; Intel's take one in two cycles, for half of them. */
int halognn_products_pay(void);
#define PRODUCT_KERNEL(name, params, args)                                              \
    static inline void halognn_##name(const halognn_products *by, HALOGNN_LIST params) { \
        by->name args;                                                                  \
    }
#include "halognn_kernels.def"

/* The kernels of one SIMD level. */
typedef struct {
    const char *level;
#define EACH_CPU_KERNEL(name, params, args) void(*name) params;
#include "halognn_kernels.def"
} halognn_cpu;

/* Opens a level by name: "scalar" (the plain reference kernels), "avx2" (AVX2, F16C), "avx512"
 * (F, BW, DQ, VL); NULL or "" is the best one. Returns NULL if the name is unknown or the
 * machine lacks the instructions. Nothing to close. */
const halognn_cpu *halognn_cpu_open(const char *level);

/* Checks. Each returns -1, or the position of the first error. The kernels do not check their
 * arguments. */

/* Checks that every of[i], i < n, refers to a row of a table. */
int64_t halognn_check_refs(const uint64_t *of, int64_t n, const halognn_table *tables,
                           int64_t ntables);
/* Checks that every ids[i], i < n, is in [0, limit). */
int64_t halognn_check_ids(const int32_t *ids, int64_t n, int64_t limit);
/* The same for indices of segment_rows, of which those that begin a group are inverted. */
int64_t halognn_check_sources(const int32_t *indices, int64_t n, int64_t limit);

/* Calls of the kernels, for callers that cannot call through a pointer. Those that read tables
 * of rows return 0, or the address that could not be read once halognn_catch_faults has been
 * called, because a mapped file has shrunk; the output is then garbage. halognn_catch_faults
 * handles SIGBUS for them and passes every other one on to the handler that it found; it returns
 * 0, or errno. */
int halognn_catch_faults(void);
#define KERNEL(name, params, args) \
    static inline void halognn_##name(const halognn_cpu *k, HALOGNN_LIST params) { k->name args; }
#define CPU_KERNEL KERNEL
#define CPU_TABLE_KERNEL(name, params, args) \
    uintptr_t halognn_##name(const halognn_cpu *k, HALOGNN_LIST params);
#include "halognn_kernels.def"

/* Losses: one version for every level, because exp and log of libm, in double, dominate their time.
 * Each returns the sum of the losses, unscaled, rows in order; dlogits, unless NULL, is the
 * gradient times scale. */

/* *correct = rows whose first largest logit is the label. labels[r] in [0,cols). */
double halognn_softmax_ce(float *dlogits, int64_t rows, int64_t cols, const float *logits,
                          const int32_t *labels, float scale, int64_t *correct);
/* counts = true positives, false positives, false negatives of logit > 0. targets 0 or 1. */
double halognn_sigmoid_bce(float *dlogits, int64_t n, const float *logits, const uint8_t *targets,
                           float scale, int64_t counts[3]);

/* Peak rates of the processor: loops of independent multiply-adds on registers, one for every
 * set of instructions and precision of factors (sums are float32). */
typedef struct {
    const char *isa;       /* "AVX2", "AVX-512", "AVX512-BF16", "AMX-BF16", "NEON" */
    const char *precision; /* "float32" or "bf16" */
} halognn_peak;

/* Loop i, from 0 on; NULL if there is none. */
const halognn_peak *halognn_peak_of(int i);
/* Runs the given number of rounds of loop i on the calling thread and returns the operations done,
 * a multiplication and an addition counted as two; 0 if this machine lacks the instructions. */
int64_t halognn_peak_run(int i, int64_t rounds);

#endif
