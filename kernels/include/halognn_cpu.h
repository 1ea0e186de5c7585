/*
 * CPU kernels of halognn: the kernels of GNN layers that BLAS does not have.
 *
 * Plain C: no hidden state, no allocation, no threads. A caller tiles the rows over its threads;
 * every kernel works on the tile that it is given. Matrices are row-major without padding, of
 * float32 unless they are a halognn_matrix or halognn_result. Sums over edges and over rows are
 * computed in order with one accumulator for each output, so a result depends neither on the tile
 * nor on the vector width. Only layer_norm, which sums along a row, differs between "scalar" and
 * the vector levels in its last bits.
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

/* The elements of feature rows. With bytes 4 they are float32, with bytes 1 int8, with bytes 2
 * float16, or bfloat16 if bf16 is set. Tables from number `wide` on hold sums, whose elements have
 * wide_bytes bytes: float32 if 4, int16 if 2. Every row begins at a multiple of the bytes of a row
 * in the other tables. Column c of a result is multiplied by scale[c], unless scale is NULL. */
typedef struct {
    int bytes, wide_bytes;
    int64_t wide;
    const float *scale;
    int bf16;
} halognn_elements;

/* A matrix that a kernel reads, and one that it writes. The elements are float32 or, if bf16 is
 * set, bfloat16. Numbers are rounded to bfloat16 to nearest, ties to even. */
typedef struct {
    const void *at;
    int bf16;
} halognn_matrix;
typedef struct {
    void *at;
    int bf16;
} halognn_result;

#define HALOGNN_NO_WIDE ((int64_t)1 << 16) /* larger than the number of any table */

/* A row reference names a row of one of several tables: table << HALOGNN_REF_ROW_BITS | row. */
#define HALOGNN_REF_ROW_BITS 48

/* The random numbers of vertices in one hop (src/topology/sample/labor.go). With a table the number
 * of v is table[v]. Without a table it is a mix of v's original id with the word now, or with the
 * word next if turn plus the vertex's phase is at least lasts. The phase, in [0,lasts), is a mix of
 * the original id with the word phases. */
typedef struct {
    const uint32_t *table;   /* [vertices], or NULL */
    const int32_t *original; /* [vertices] */
    int64_t vertices;
    uint64_t now, next, phases, turn, lasts;
} halognn_numbers;

/* The multipliers of the mix: SplitMix64's finaliser (src/base/random). */
#define HALOGNN_MIX_1 0xBF58476D1CE4E5B9u
#define HALOGNN_MIX_2 0x94D049BB133111EBu

/* draw_least keeps at most so many neighbours of a row as candidates. The largest fanout that it
 * supports is half of this. */
#define HALOGNN_CANDIDATES 128

/* COLUMN_PANEL is the number of columns in a panel of a right factor, and in a block of the
 * product. PAIRS_OF_PASS is the number of pairs of a panel that are used in one pass over the left
 * factor. They stay in the second-level cache during the pass. */
#define HALOGNN_COLUMN_PANEL 64
#define HALOGNN_PAIRS_OF_PASS 512

/* The kernels of products of bfloat16. */
typedef struct {
    const char *isa;
#define PRODUCT_KERNEL(name, params, args) void(*name) params;
#include "halognn_kernels.def"
} halognn_products;

/* Returns the kernels by AVX512-BF16, or NULL if the machine lacks these instructions. If plain is
 * set, it returns the plain reference kernels, which, unlike the others, keep subnormal numbers. */
const halognn_products *halognn_products_open(int plain);
/* Returns whether the AVX512-BF16 kernels are faster than multiply-adds of float32. AMD's
 * processors start such an instruction every cycle, which gives twice the operations of float32
 * multiply-adds. Intel's start one in two cycles, which gives half the operations. */
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

/* Opens a level by name: "scalar" (the plain reference kernels), "avx2" (AVX2, F16C), "avx512" (F,
 * BW, DQ, VL); NULL or "" stands for the best level of the machine. Returns NULL if the name is
 * unknown or the machine lacks the instructions. A level need not be closed. */
const halognn_cpu *halognn_cpu_open(const char *level);

/* Functions that check arguments. The kernels themselves do not check theirs. Each returns -1, or
 * the position of the first wrong element. */

/* Checks that every of[i], i < n, refers to a row of a table. */
int64_t halognn_check_refs(const uint64_t *of, int64_t n, const halognn_table *tables,
                           int64_t ntables);
/* Checks that every ids[i], i < n, is in [0, limit). */
int64_t halognn_check_ids(const int32_t *ids, int64_t n, int64_t limit);
/* The same for the indices of segment_rows, in which an index i that begins a group is given as
 * ~i. */
int64_t halognn_check_sources(const int32_t *indices, int64_t n, int64_t limit);

/* Functions that call the kernels of a level, for callers that cannot call through a pointer. Those
 * for kernels that read tables of rows return 0. If memory cannot be read, because a mapped file
 * has shrunk, they return its address, and the output is garbage. For this halognn_catch_faults
 * must have been called before. It installs a handler of SIGBUS for these kernels, which passes
 * every other SIGBUS on to the handler that was installed before. It returns 0, or errno. */
int halognn_catch_faults(void);
#define KERNEL(name, params, args) \
    static inline void halognn_##name(const halognn_cpu *k, HALOGNN_LIST params) { k->name args; }
#define CPU_KERNEL KERNEL
#define CPU_TABLE_KERNEL(name, params, args) \
    uintptr_t halognn_##name(const halognn_cpu *k, HALOGNN_LIST params);
#include "halognn_kernels.def"

/* Losses. All levels use the same functions, because most of their time is spent in exp and log of
 * libm, in double. Each function returns the sum of the losses, added row by row and not multiplied
 * by scale. dlogits, unless NULL, becomes the gradient times scale. */

/* *correct = number of rows in which the label's logit is the first of the largest logits.
 * labels[r] must be in [0,cols). */
double halognn_softmax_ce(float *dlogits, int64_t rows, int64_t cols, const float *logits,
                          const int32_t *labels, float scale, int64_t *correct);
/* counts = numbers of true positives, false positives and false negatives, where logit > 0 predicts
 * 1. targets must be 0 or 1. */
double halognn_sigmoid_bce(float *dlogits, int64_t n, const float *logits, const uint8_t *targets,
                           float scale, int64_t counts[3]);

/* Peak rates of the processor: loops of independent multiply-adds on registers, one for every
 * set of instructions and precision of factors (sums are float32). */
typedef struct {
    const char *isa;       /* "AVX2", "AVX-512", "AVX512-BF16", "AMX-BF16", "NEON" */
    const char *precision; /* "float32" or "bf16" */
} halognn_peak;

/* Returns the description of loop i, counted from 0, or NULL if there is no such loop. */
const halognn_peak *halognn_peak_of(int i);
/* Runs the given number of rounds of loop i on the calling thread. Returns the number of operations
 * done; a multiplication and an addition count as two. Returns 0 if this machine lacks the
 * instructions. */
int64_t halognn_peak_run(int i, int64_t rounds);

#endif
