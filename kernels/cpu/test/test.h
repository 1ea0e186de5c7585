/* The tests of the kernels, a file for each family of them: functions that call a kernel at a
 * level, on the inputs of a shape, and return its outputs, which main.c compares between levels. */
#ifndef HALOGNN_TEST_H
#define HALOGNN_TEST_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "halognn_cpu.h"

enum { GUARD = 16, TABLES = 3 };

typedef struct {
    const char *name;
    int64_t segments, sources, degree, cols; /* degree -1: one segment has all edges */
} shape;

extern const shape shapes[]; /* the last has no name */

/* A kernel's outputs at one level: up to three arrays, and where they end. */
typedef struct {
    float *at[3];
    int64_t len[3];
} outputs;

/* The inputs of the kernels for one shape. */
typedef struct {
    const shape *s;
    int64_t edges, cells; /* cells = segments * cols */
    int64_t *indptr, *t_indptr;
    int32_t *indices, *t_indices, *t_edges, *ids;
    int32_t *grouped; /* indices, of which a third begin groups */
    float *h, *x, *dy, *gamma, *beta, *weights;
    uint16_t *half;
    int8_t *bytes;
    float *scale; /* [cols] */
    uint64_t *refs;
    halognn_table tables[TABLES], half_tables[TABLES], byte_tables[TABLES];
} input;

typedef struct {
    const char *name; /* the kernel's name and, after a blank or comma, the variant */
    outputs (*run)(const halognn_cpu *, const input *);
    double tolerance; /* 0: every bit agrees; else a share of the largest element */
} test;

/* A table for each family; the last test has no name. */
extern const test draw_tests[], rows_tests[], segment_tests[], pointwise_tests[],
    attention_tests[], norm_tests[], optimizer_tests[];

int test_products(void); /* returns the number of failures */

extern uint64_t random_state; /* state of the functions that draw */

/* What rows of elements of so many bytes are, and where they lie. */
halognn_elements elements_of(const input *in, int bytes, int64_t wide, int wide_bytes);
const halognn_table *tables_of(const input *in, int bytes);

void *must_alloc(size_t bytes); /* ends the program if there is no memory */
float *floats(int64_t n);       /* n random numbers between -1 and 1 */

/* An array of n floats between sentinels, copied unless from is NULL; free it at -GUARD. intact
 * reports whether the sentinels are still there. */
float *guarded(int64_t n, const float *from);
int intact(const float *p, int64_t n);

/* Matrices of either type. */
static inline halognn_matrix of_floats(const float *x) { return (halognn_matrix){.at = x}; }
static inline halognn_matrix of_bf16(const uint16_t *x) {
    return (halognn_matrix){.at = x, .bf16 = 1};
}
static inline halognn_result wide(float *y) { return (halognn_result){.at = y}; }
static inline halognn_result narrow(float *y) { return (halognn_result){.at = y, .bf16 = 1}; }

/* An output of n floats. */
outputs one(int64_t n, const float *from);

/* Rows of few different numbers, and a NaN: most columns have several maxima. */
float *coarse(const input *in);

/* Random inputs for a shape. */
input build(const shape *s);
void release(input *in);

#endif
