/*
 * Reductions over segments of edges. A segment's columns are cut into strips of up to MAX_ACCUMULATORS vectors, and a
 * strip's sums stay in registers over all edges of the segment:
 *
 *	columns   |--vec--|--vec--| ... |--vec--|-tail-|
 *	                                    |--vec--|    the tail is read as a vector that ends at the last column; only its
 *	                                                 own lanes are stored
 *
 * One accumulator per output, edges in order: the bits are those of the reference at any width.
 * While the first strip of an edge is summed, the row of a later edge, in any segment, is
 * prefetched.
 */
#include "simd.h"

typedef enum { MATRIX, TABLES, HALF_TABLES, SUM, WEIGHTED, GRADIENT } source;

#define IS_MEAN(from) ((from) < SUM)
#define HAS_WEIGHTS(from) ((from) > SUM)

typedef struct {
    int64_t cols, row_bytes;
    const int32_t *indices;
    int64_t last, ahead; /* last edge of the tile; how many edges ahead to prefetch */
    const void *h;       /* the matrix, for sources other than tables */
    const halognn_table *tables; /* TABLES, HALF_TABLES */
    const uint64_t *of;
    const int64_t *degrees; /* GRADIENT: indptr of the forward segments */
    const float *weights;   /* WEIGHTED: of the edges */
    int add;
} edges;

ALWAYS_INLINE const void *row_of(source from, const edges *g, int64_t e) {
    const int32_t i = g->indices[e];
    if (from == TABLES || from == HALF_TABLES)
        return halognn_ref_row(g->tables, g->of[i], g->row_bytes);
    return (const char *)g->h + i * g->row_bytes;
}

ALWAYS_INLINE float weight_of(source from, const edges *g, int64_t e) {
    if (!HAS_WEIGHTS(from))
        return 1;
    if (from == WEIGHTED)
        return g->weights[e];
    const int64_t *d = g->degrees + g->indices[e];
    return 1.0f / (float)(d[1] - d[0]);
}

ALWAYS_INLINE vec load_from(source from, const void *row, int64_t j) {
    return from == HALF_TABLES ? load_half((const uint16_t *)row + j) : load((const float *)row + j);
}

ALWAYS_INLINE float element(source from, const void *row, int64_t j) {
    return from == HALF_TABLES ? halognn_half(((const uint16_t *)row)[j]) : ((const float *)row)[j];
}

ALWAYS_INLINE void prefetch_edge(source from, const edges *g, int64_t e) {
    e += g->ahead;
    prefetch_row(row_of(from, g, e < g->last ? e : g->last), g->row_bytes);
}

/* strip sums columns [j, j + n*LANES) of the edges [lo,hi); lanes beyond the last column are not
 * stored. */
ALWAYS_INLINE void strip(source from, const int n, const edges *g, int64_t lo, int64_t hi, int64_t j, float *out) {
    const int64_t end = j + (int64_t)n * LANES, foreign = end > g->cols ? end - g->cols : 0;
    const int64_t final = end - LANES - foreign;
    vec sum[MAX_ACCUMULATORS];
    UNROLL for (int k = 0; k < n; k++) sum[k] = (vec){0};
    for (int64_t e = lo; e < hi; e++) {
        if (j == 0)
            prefetch_edge(from, g, e);
        const void *row = row_of(from, g, e);
        const float w = weight_of(from, g, e);
        UNROLL for (int k = 0; k < n; k++) {
            const vec x = load_from(from, row, k < n - 1 ? j + k * LANES : final);
            sum[k] += HAS_WEIGHTS(from) ? x * w : x;
        }
    }
    if (!IS_MEAN(from)) {
        if (g->add) {
            UNROLL for (int k = 0; k < n; k++) sum[k] = load(out + (k < n - 1 ? j + k * LANES : final)) + sum[k];
        }
    } else if (hi > lo) {
        UNROLL for (int k = 0; k < n; k++) sum[k] /= (float)(hi - lo);
    }
    UNROLL for (int k = 0; k < n - 1; k++) store(out + j + k * LANES, sum[k]);
    if (foreign == 0) {
        store(out + final, sum[n - 1]);
    } else {
        float lanes[LANES];
        store(lanes, sum[n - 1]);
        memcpy(out + final + foreign, lanes + foreign, (size_t)(LANES - foreign) * sizeof *out);
    }
}

/* narrow sums rows of fewer columns than a vector has lanes. */
ALWAYS_INLINE void narrow(source from, const edges *g, int64_t lo, int64_t hi, float *out) {
    float sum[LANES] = {0};
    for (int64_t e = lo; e < hi; e++) {
        prefetch_edge(from, g, e);
        const void *row = row_of(from, g, e);
        const float w = weight_of(from, g, e);
        for (int64_t j = 0; j < g->cols; j++)
            sum[j] += HAS_WEIGHTS(from) ? element(from, row, j) * w : element(from, row, j);
    }
    for (int64_t j = 0; j < g->cols; j++) {
        if (!IS_MEAN(from))
            out[j] = g->add ? out[j] + sum[j] : sum[j];
        else
            out[j] = hi > lo ? sum[j] / (float)(hi - lo) : 0;
    }
}

ALWAYS_INLINE void segment(source from, const edges *g, int64_t lo, int64_t hi, float *out) {
    if (g->cols < LANES) {
        narrow(from, g, lo, hi, out);
        return;
    }
    for (int64_t j = 0; j < g->cols;) {
        const int64_t left = (g->cols - j + LANES - 1) / LANES, n = left < MAX_ACCUMULATORS ? left : MAX_ACCUMULATORS;
        switch (n) {
#define STRIP(n)                                                                                                       \
    case n:                                                                                                            \
        strip(from, n, g, lo, hi, j, out);                                                                             \
        break;
            STRIP(1) STRIP(2) STRIP(3) STRIP(4) STRIP(5) STRIP(6) STRIP(7) STRIP(8)
#if MAX_ACCUMULATORS > 8
            STRIP(9) STRIP(10) STRIP(11) STRIP(12) STRIP(13) STRIP(14) STRIP(15) STRIP(16)
#endif
#undef STRIP
        }
        j += n * LANES;
    }
}

ALWAYS_INLINE void reduce(source from, edges g, float *out, int64_t segments, const int64_t *indptr) {
    g.last = indptr[segments] - 1;
    g.ahead = rows_ahead(g.row_bytes);
    for (int64_t d = 0; d < segments; d++)
        segment(from, &g, indptr[d], indptr[d + 1], out + d * g.cols);
}

void LEVEL(segment_mean)(float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,
                         const float *h) {
    reduce(MATRIX, (edges){.cols = cols, .row_bytes = cols * 4, .indices = indices, .h = h}, out, segments, indptr);
}

void LEVEL(segment_sum)(float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,
                        const float *weights, const float *h, int add) {
    const edges g = {.cols = cols, .row_bytes = cols * 4, .indices = indices, .h = h, .weights = weights, .add = add};
    if (weights)
        reduce(WEIGHTED, g, out, segments, indptr);
    else
        reduce(SUM, g, out, segments, indptr);
}

void LEVEL(segment_mean_rows)(float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                              const int32_t *indices, int half, const halognn_table *tables, const uint64_t *of) {
    const edges g = {.cols = cols, .row_bytes = cols * (half ? 2 : 4), .indices = indices, .tables = tables, .of = of};
    if (half)
        reduce(HALF_TABLES, g, out, segments, indptr);
    else
        reduce(TABLES, g, out, segments, indptr);
}

void LEVEL(segment_mean_backward)(float *dh, int64_t segments, int64_t cols, const int64_t *t_indptr,
                                  const int32_t *t_indices, const int64_t *indptr, const float *dout, int add) {
    const edges g = {
        .cols = cols, .row_bytes = cols * 4, .indices = t_indices, .h = dout, .degrees = indptr, .add = add};
    reduce(GRADIENT, g, dh, segments, t_indptr);
}
