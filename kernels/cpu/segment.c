/*
 * Reductions over segments of edges. A segment's columns are cut into strips of up to
 * MAX_ACCUMULATORS vectors, and a strip's sums stay in registers over all edges of the segment:
 *
 *	columns   |--vec--|--vec--| ... |--vec--|-tail-|
 *	                                    |--vec--|    the tail is read as a vector that ends at
 *	                                                 the last column; only its own lanes are stored
 *
 * One accumulator per output, edges in order: the bits are those of the reference at any width.
 * Rows of tables are added group by group, each group from its first row, and then the groups, from
 * the first: so a group that another rank has added gives the same bits.
 * While the first strip of an edge is summed, the row of a later edge, in any segment, is
 * prefetched.
 */
#include "rounding.h"
#include "simd.h"

#define LARGER(x, most) ((most) == (most) && !((x) <= (most))) /* a NaN is larger, and stays */

/* Where rows lie, and what is made of them. */
typedef enum { MATRIX, BF16_MATRIX, TABLES, HALF_TABLES, BF16_TABLES, BYTE_TABLES } source;
typedef enum { MEAN, SUM, WEIGHTED, GRADIENT } reduction;

#define NOINLINE __attribute__((noinline))
#define HAS_WEIGHTS(how) ((how) > SUM)
#define HAS_GROUPS(from) ((from) > BF16_MATRIX)

typedef struct {
    int64_t cols, row_bytes;
    const int32_t *indices;
    int64_t last, ahead; /* last edge of the tile; how many edges ahead to prefetch */
    const void *h;       /* the matrix, for sources other than tables */
    const halognn_table *tables; /* sources with groups */
    const uint64_t *of; /* NULL: row i is row i of the first table */
    halognn_elements as;
    const int32_t *counts;   /* MEAN: divisors of the sums; NULL: the numbers of edges */
    const int64_t *degrees;  /* GRADIENT: indptr of the forward segments */
    const float *weights;   /* WEIGHTED: weights of the edges */
    int add;
    halognn_matrix own; /* except for MEAN: rows that are added to the first `rows` sums */
    int64_t rows;
    float factor; /* own is multiplied by this */
} edges;

ALWAYS_INLINE uint64_t ref_of(const edges *g, int64_t e) {
    return halognn_ref_at(g->of, source_of(g->indices[e]));
}

ALWAYS_INLINE const void *row_of(source from, const edges *g, int64_t e) {
    const int32_t i = g->indices[e];
    if (HAS_GROUPS(from))
        return halognn_ref_row(g->tables, ref_of(g, e), g->row_bytes);
    return (const char *)g->h + i * g->row_bytes;
}

ALWAYS_INLINE float weight_of(reduction how, const edges *g, int64_t e) {
    if (!HAS_WEIGHTS(how))
        return 1;
    if (how == WEIGHTED)
        return g->weights[e];
    const int64_t *d = g->degrees + g->indices[e];
    return 1.0f / (float)(d[1] - d[0]);
}

/* What the elements of an edge's row are. */
ALWAYS_INLINE element element_in(source from, const edges *g, int64_t e) {
    if (from == BF16_MATRIX)
        return BF16;
    if (from <= TABLES)
        return FLOAT;
    if ((int64_t)(ref_of(g, e) >> HALOGNN_REF_ROW_BITS) < g->as.wide)
        return from == HALF_TABLES ? HALF : from == BF16_TABLES ? BF16 : BYTE;
    return from != BYTE_TABLES || g->as.wide_bytes == 4 ? FLOAT : SHORT;
}

/* The number that the sum of segment d is divided by. */
ALWAYS_INLINE float count_of(const edges *g, int64_t d, int64_t lo, int64_t hi) {
    return (float)(g->counts ? g->counts[d] : hi - lo);
}

ALWAYS_INLINE void prefetch_edge(source from, const edges *g, int64_t e) {
    e += g->ahead;
    if (HAS_GROUPS(from) && g->of != NULL) { /* the reference to a row is itself far away */
        const int64_t later = e + g->ahead;
        __builtin_prefetch(g->of + source_of(g->indices[later < g->last ? later : g->last]));
    }
    prefetch_row(row_of(from, g, e < g->last ? e : g->last), g->row_bytes);
}

/* add_edge adds the columns of strip's vectors of an edge's row, or sets sum to them. */
ALWAYS_INLINE void add_edge(source from, reduction how, const int n, const edges *g, int64_t e,
                            int64_t j, int64_t final, int set, vec *sum) {
    if (j == 0)
        prefetch_edge(from, g, e);
    const void *row = row_of(from, g, e);
    const float w = weight_of(how, g, e);
#define ADD(load, type)                                                        \
    UNROLL for (int k = 0; k < n; k++) {                                       \
        vec x = load((const type *)row + (k < n - 1 ? j + k * LANES : final)); \
        if (HAS_WEIGHTS(how))                                                  \
            x = x * w;                                                         \
        sum[k] = set ? x : sum[k] + x;                                         \
    }
    switch (element_in(from, g, e)) {
    case HALF:
        ADD(load_half, uint16_t)
        break;
    case BYTE:
        ADD(load_byte, int8_t)
        break;
    case SHORT:
        ADD(load_short, int16_t)
        break;
    case BF16:
        ADD(load_bf16, uint16_t)
        break;
    default:
        ADD(load, float)
    }
#undef ADD
}

/* end_of_group returns the end of the group that begins with edge e. */
ALWAYS_INLINE int64_t end_of_group(const edges *g, int64_t e, int64_t hi) {
    do
        e++;
    while (e < hi && g->indices[e] >= 0);
    return e;
}

/* What a row of results is stored in: float32 or, if that is not NULL, bfloat16. */
typedef struct {
    float *wide;
    uint16_t *bf16;
} row;

ALWAYS_INLINE row row_at(halognn_result out, int64_t element) {
    return out.bf16 ? (row){.bf16 = (uint16_t *)out.at + element}
                    : (row){.wide = (float *)out.at + element};
}

ALWAYS_INLINE void put(row out, int64_t j, vec x) {
    if (out.bf16)
        store_bf16(out.bf16 + j, x);
    else
        store(out.wide + j, x);
}

ALWAYS_INLINE void put_one(row out, int64_t j, float x) {
    if (out.bf16)
        out.bf16[j] = halognn_bf16(x);
    else
        out.wide[j] = x;
}

/* own_vector returns elements [j, j+LANES) of row d of the added rows, times the factor. */
ALWAYS_INLINE vec own_vector(const edges *g, int64_t d, int64_t j) {
    const int64_t at = d * g->cols + j;
    const vec x = g->own.bf16 ? load_bf16((const uint16_t *)g->own.at + at)
                              : load((const float *)g->own.at + at);
    return g->factor * x;
}

/* strip sums columns [j, j + n*LANES) of the edges [lo,hi) of segment d. If these exceed the
 * row, the last vector ends at the last column, and its first lanes repeat columns before it. */
ALWAYS_INLINE void strip(source from, reduction how, const int n, const edges *g, int64_t d,
                         int64_t lo, int64_t hi, int64_t j, row out) {
    const int64_t end = j + (int64_t)n * LANES, foreign = end > g->cols ? end - g->cols : 0;
    const int64_t final = end - LANES - foreign;
    vec sum[MAX_ACCUMULATORS],
        before[MAX_ACCUMULATORS]; /* sums of the group, and of the groups before */
    UNROLL for (int k = 0; k < n; k++) sum[k] = (vec){0};
    if (HAS_GROUPS(from)) {
        int64_t stop = lo < hi ? end_of_group(g, lo, hi) : hi;
        if (lo < hi)
            add_edge(from, how, n, g, lo, j, final, 1, sum);
        for (int64_t e = lo + 1; e < stop; e++)
            add_edge(from, how, n, g, e, j, final, 0, sum);
        while (stop < hi) { /* most segments have one group, which needs half of the registers */
            const int64_t begin = stop;
            UNROLL for (int k = 0; k < n; k++) before[k] = sum[k];
            stop = end_of_group(g, begin, hi);
            add_edge(from, how, n, g, begin, j, final, 1, sum);
            for (int64_t e = begin + 1; e < stop; e++)
                add_edge(from, how, n, g, e, j, final, 0, sum);
            UNROLL for (int k = 0; k < n; k++) sum[k] = before[k] + sum[k];
        }
    } else {
        for (int64_t e = lo; e < hi; e++)
            add_edge(from, how, n, g, e, j, final, 0, sum);
    }
    if (how != MEAN) {
        if (g->add) {
            UNROLL for (int k = 0; k < n; k++)
                sum[k] = load(out.wide + (k < n - 1 ? j + k * LANES : final)) + sum[k];
        }
        if (d < g->rows) {
            UNROLL for (int k = 0; k < n; k++)
                sum[k] += own_vector(g, d, k < n - 1 ? j + k * LANES : final);
        }
    } else if (hi > lo) {
        UNROLL for (int k = 0; k < n; k++) sum[k] /= count_of(g, d, lo, hi);
    }
    if (HAS_GROUPS(from) && g->as.scale) {
        UNROLL for (int k = 0; k < n; k++)
            sum[k] *= load(g->as.scale + (k < n - 1 ? j + k * LANES : final));
    }
    UNROLL for (int k = 0; k < n - 1; k++) put(out, j + k * LANES, sum[k]);
    if (foreign == 0) {
        put(out, final, sum[n - 1]);
        return;
    }
    float lanes[LANES];
    store(lanes, sum[n - 1]);
    if (out.bf16) {
        for (int64_t i = foreign; i < LANES; i++) put_one(out, final + i, lanes[i]);
    } else {
        memcpy(out.wide + final + foreign, lanes + foreign,
               (size_t)(LANES - foreign) * sizeof *lanes);
    }
}

/* narrow sums rows of fewer columns than a vector has lanes. */
ALWAYS_INLINE void narrow(source from, reduction how, const edges *g, int64_t d, int64_t lo,
                          int64_t hi, row out) {
    float sum[LANES] = {0}, before[LANES] = {0};
    int64_t begin = lo; /* first edge of the group, if there are groups */
    for (int64_t e = lo; e < hi; e++) {
        prefetch_edge(from, g, e);
        const void *row = row_of(from, g, e);
        const float w = weight_of(how, g, e);
        if (HAS_GROUPS(from) && e > lo && g->indices[e] < 0) {
            for (int64_t j = 0; j < g->cols; j++)
                before[j] = begin > lo ? before[j] + sum[j] : sum[j];
            begin = e;
        }
        const int set = HAS_GROUPS(from) && e == begin;
        const element is = element_in(from, g, e);
        for (int64_t j = 0; j < g->cols; j++) {
            float x = halognn_element(is, row, j);
            x = HAS_WEIGHTS(how) ? x * w : x;
            sum[j] = set ? x : sum[j] + x;
        }
    }
    for (int64_t j = 0; begin > lo && j < g->cols; j++)
        sum[j] = before[j] + sum[j];
    for (int64_t j = 0; j < g->cols; j++) {
        float x = sum[j];
        if (how != MEAN) {
            x = g->add ? out.wide[j] + x : x;
            if (d < g->rows)
                x += g->factor * halognn_get(g->own, d * g->cols + j);
        } else {
            x = hi > lo ? x / count_of(g, d, lo, hi) : 0;
        }
        put_one(out, j, HAS_GROUPS(from) && g->as.scale ? x * g->as.scale[j] : x);
    }
}

/* Sums of int8 rows, and of int16 rows among them, are whole numbers, exact in any order: up to
 * SHORTEST int8 rows are added in int16; if there are int16 rows among them, in float32. The
 * sums of up to PANEL columns stay in L1. ABREAST rows are read at once, and for each cache line
 * of them a line of a later row is prefetched, which keeps memory busy. */
#define SHORTEST (INT16_MIN / INT8_MIN)
#define BYTE_LANES (2 * LANES)
#define PANEL 4096
#define ABREAST 5

ALWAYS_INLINE int in_shorts(source from, reduction how, const edges *g, int64_t rows, row out) {
    return (!out.bf16 || g->cols <= PANEL) && from == BYTE_TABLES && how <= SUM &&
           rows <= SHORTEST && g->cols >= BYTE_LANES &&
           (g->as.wide == HALOGNN_NO_WIDE || g->as.wide_bytes == 2);
}

/* add_vector adds the columns from c on of n int8 rows to sum, or sets sum to them. */
ALWAYS_INLINE void add_vector(const int n, const int8_t *const *rows, int64_t c, int set,
                              int16_t *sum) {
    shorts x = load_bytes(rows[0] + c);
    UNROLL for (int i = 1; i < n; i++) x += load_bytes(rows[i] + c);
    if (!set)
        x += *(shorts *)sum;
    *(shorts *)sum = x;
}

/* add_bytes adds columns [j, end) of n int8 rows to sum, or sets sum to them, and prefetches these
 * columns of n later rows. The last vector ends at the last column and repeats some before it. */
ALWAYS_INLINE void add_bytes(const int n, const int8_t *const *rows, const int8_t *const *later,
                             int64_t j, int64_t end, int set, int16_t *sum) {
    for (; j + CACHE_LINE <= end; j += CACHE_LINE) {
        UNROLL for (int i = 0; i < n; i++) __builtin_prefetch(later[i] + j);
        UNROLL for (int k = 0; k < CACHE_LINE; k += BYTE_LANES, sum += BYTE_LANES)
            add_vector(n, rows, j + k, set, sum);
    }
    if (j < end) {
        UNROLL for (int i = 0; i < n; i++) __builtin_prefetch(later[i] + j);
    }
    for (; j < end; j += BYTE_LANES, sum += BYTE_LANES)
        add_vector(n, rows, j + BYTE_LANES <= end ? j : end - BYTE_LANES, set, sum);
}

/* panel_in_shorts sets columns [j, end) of out to the sums of a segment's int8 rows, divided by
 * count and multiplied by scale, unless that is NULL. */
ALWAYS_INLINE void panel_in_shorts(const edges *g, int64_t lo, int64_t hi, int64_t j, int64_t end,
                                   float count, const float *scale, float *out) {
    const int8_t *rows[ABREAST], *later[ABREAST];
    int16_t sum[PANEL];
    const int64_t far = g->ahead < 2 * ABREAST ? 2 * ABREAST : g->ahead;
    int n = 0, set = 1;
    for (int64_t e = lo; e < hi; e++) {
        if (element_in(BYTE_TABLES, g, e) == BYTE) {
            rows[n] = row_of(BYTE_TABLES, g, e);
            later[n++] = row_of(BYTE_TABLES, g, e + far < g->last ? e + far : g->last);
        } else {
            prefetch_edge(BYTE_TABLES, g, e);
        }
        if (n < ABREAST && (n == 0 || e + 1 < hi))
            continue;
        switch (n) {
        case 1:
            add_bytes(1, rows, later, j, end, set, sum);
            break;
        case 2:
            add_bytes(2, rows, later, j, end, set, sum);
            break;
        case 3:
            add_bytes(3, rows, later, j, end, set, sum);
            break;
        case 4:
            add_bytes(4, rows, later, j, end, set, sum);
            break;
        default:
            add_bytes(ABREAST, rows, later, j, end, set, sum);
        }
        n = set = 0;
    }
    if (set)
        memset(sum, 0, sizeof sum);
    for (int64_t c = j; c < end; c += BYTE_LANES) {
        const int64_t at = c + BYTE_LANES <= end ? c : end - BYTE_LANES;
        UNROLL for (int k = 0; k < BYTE_LANES; k += LANES) {
            const vec x = load_short(sum + (c - j) + k) / count;
            store(out + at + k, scale ? x * load(scale + at + k) : x);
        }
    }
}

/* segment_in_shorts reduces the rows of segment d, for which in_shorts holds. */
TARGET static void segment_in_shorts(reduction how, const edges *g, int64_t d, int64_t lo,
                                     int64_t hi, float *out) {
    const int mixed = g->as.wide != HALOGNN_NO_WIDE;
    const float count = how == MEAN && hi > lo ? count_of(g, d, lo, hi) : 1;
    const float *scale = g->as.scale;
    for (int64_t j = 0; j < g->cols; j += PANEL)
        panel_in_shorts(g, lo, hi, j, g->cols - j < PANEL ? g->cols : j + PANEL,
                        mixed ? 1 : count, mixed ? NULL : scale, out);
    if (!mixed)
        return;
    for (int64_t e = lo; e < hi; e++) {
        if (element_in(BYTE_TABLES, g, e) != SHORT)
            continue;
        const int16_t *row = row_of(BYTE_TABLES, g, e);
        int64_t j = 0;
        for (; j + LANES <= g->cols; j += LANES)
            store(out + j, load(out + j) + load_short(row + j));
        for (; j < g->cols; j++)
            out[j] += halognn_element(SHORT, row, j);
    }
    INDEPENDENT for (int64_t j = 0; j < g->cols; j++) {
        const float x = out[j] / count;
        out[j] = scale ? x * scale[j] : x;
    }
}

/* narrow_row stores numbers as bfloat16. */
ALWAYS_INLINE void narrow_row(uint16_t *out, const float *x, int64_t cols) {
    INDEPENDENT for (int64_t j = 0; j < cols; j++) out[j] = halognn_bf16(x[j]);
}

/* Each source, reduction and number of vectors of a strip has a function of its own: in one
 * function they take the compiler four times as long. */
typedef void stripper(const edges *g, int64_t d, int64_t lo, int64_t hi, int64_t j, row out);
typedef void reducer(const edges *g, halognn_result out, int64_t segments, const int64_t *indptr);

ALWAYS_INLINE void segment(source from, reduction how, stripper *const *strips, const edges *g,
                           int64_t d, int64_t lo, int64_t hi, row out) {
    if (in_shorts(from, how, g, hi - lo, out)) {
        float wide[PANEL];
        segment_in_shorts(how, g, d, lo, hi, out.bf16 ? wide : out.wide);
        if (out.bf16)
            narrow_row(out.bf16, wide, g->cols);
        return;
    }
    if (g->cols < LANES) {
        narrow(from, how, g, d, lo, hi, out);
        return;
    }
    for (int64_t j = 0; j < g->cols;) {
        const int64_t left = (g->cols - j + LANES - 1) / LANES,
                      n = left < MAX_ACCUMULATORS ? left : MAX_ACCUMULATORS;
        strips[n](g, d, lo, hi, j, out);
        j += n * LANES;
    }
}

/* EACH repeats DO for each number of vectors of a strip. */
#define EACH_TO_4(DO, from, how)                                                              \
    DO(from, how, 1)                                                                          \
    DO(from, how, 2)                                                                          \
    DO(from, how, 3)                                                                          \
    DO(from, how, 4)
#define EACH_TO_8(DO, from, how)                                                              \
    EACH_TO_4(DO, from, how)                                                                  \
    DO(from, how, 5) DO(from, how, 6) DO(from, how, 7) DO(from, how, 8)
#if MAX_ACCUMULATORS > 8
#define EACH(DO, from, how)                                                                   \
    EACH_TO_8(DO, from, how)                                                                  \
    DO(from, how, 9)                                                                          \
    DO(from, how, 10)                                                                         \
    DO(from, how, 11)                                                                         \
    DO(from, how, 12) DO(from, how, 13) DO(from, how, 14) DO(from, how, 15) DO(from, how, 16)
#elif MAX_ACCUMULATORS > 4
#define EACH EACH_TO_8
#else
#define EACH EACH_TO_4
#endif

#define STRIP(from, how, n)                                                                   \
    TARGET static NOINLINE void strip_##from##_##how##_##n(                                   \
        const edges *g, int64_t d, int64_t lo, int64_t hi, int64_t j, row out) {              \
        strip(from, how, n, g, d, lo, hi, j, out);                                            \
    }
#define NAMED(from, how, n) [n] = strip_##from##_##how##_##n,
#define REDUCER(from, how)                                                                    \
    EACH(STRIP, from, how)                                                                    \
    TARGET static NOINLINE void reduce_##from##_##how(                                        \
        const edges *g, halognn_result out, int64_t segments, const int64_t *indptr) {        \
        static stripper *const strips[] = {EACH(NAMED, from, how)};                           \
        for (int64_t d = 0; d < segments; d++)                                                \
            segment(from, how, strips, g, d, indptr[d], indptr[d + 1],                        \
                    row_at(out, d * g->cols));                                                \
    }
#define REDUCERS(from) REDUCER(from, MEAN) REDUCER(from, SUM) REDUCER(from, WEIGHTED)
REDUCERS(MATRIX)
REDUCER(MATRIX, GRADIENT)
REDUCERS(BF16_MATRIX)
REDUCERS(TABLES)
REDUCERS(HALF_TABLES)
REDUCERS(BF16_TABLES)
REDUCERS(BYTE_TABLES)

#define REDUCERS_OF(from)                                                                     \
    {[MEAN] = reduce_##from##_MEAN,                                                           \
     [SUM] = reduce_##from##_SUM,                                                             \
     [WEIGHTED] = reduce_##from##_WEIGHTED}
static reducer *const reducers[][WEIGHTED + 1] = {[MATRIX] = REDUCERS_OF(MATRIX),
                                                  [BF16_MATRIX] = REDUCERS_OF(BF16_MATRIX),
                                                  [TABLES] = REDUCERS_OF(TABLES),
                                                  [HALF_TABLES] = REDUCERS_OF(HALF_TABLES),
                                                  [BF16_TABLES] = REDUCERS_OF(BF16_TABLES),
                                                  [BYTE_TABLES] = REDUCERS_OF(BYTE_TABLES)};

/* aimed returns g with what prefetching needs to know of the tile. */
TARGET static edges aimed(edges g, int64_t segments, const int64_t *indptr) {
    g.last = indptr[segments] - 1;
    g.ahead = rows_ahead(g.row_bytes);
    return g;
}

/* most_of finds the maxima of columns [c, end) of segment d and, if at is not NULL, the rows that
 * they are in. The maximum so far lies in out, which stays in L1: rows come from further away. */
ALWAYS_INLINE void most_of(source from, const edges *g, int64_t c, int64_t end, int64_t lo,
                           int64_t hi, float *out, int32_t *at) {
    const int64_t n = end - c;
    if (lo == hi) {
        memset(out, 0, (size_t)n * sizeof *out);
        if (at != NULL)
            memset(at, -1, (size_t)n * sizeof *at);
    }
    for (int64_t e = lo; e < hi; e++) {
        prefetch_edge(from, g, e);
        const void *row = row_of(from, g, e);
        const int32_t i = g->indices[e];
        const element is = element_in(from, g, e);
        if (e == lo) {
            for (int64_t j = 0; j < n; j++)
                out[j] = halognn_element(is, row, c + j);
            for (int64_t j = 0; at != NULL && j < n; j++)
                at[j] = i;
        } else if (at == NULL) {
            INDEPENDENT for (int64_t j = 0; j < n; j++) {
                const float x = halognn_element(is, row, c + j);
                out[j] = LARGER(x, out[j]) ? x : out[j];
            }
        } else {
            INDEPENDENT for (int64_t j = 0; j < n; j++) {
                const float x = halognn_element(is, row, c + j);
                at[j] = LARGER(x, out[j]) ? i : at[j];
                out[j] = LARGER(x, out[j]) ? x : out[j];
            }
        }
    }
    for (int64_t j = 0; HAS_GROUPS(from) && g->as.scale && j < n; j++)
        out[j] *= g->as.scale[c + j];
}

/* largest finds maxima and, if arg is not NULL, the rows that they are in. */
ALWAYS_INLINE void largest(source from, edges g, halognn_result out, int32_t *arg,
                           int64_t segments, const int64_t *indptr) {
    float wide[PANEL];
    g = aimed(g, segments, indptr);
    for (int64_t d = 0; d < segments; d++) {
        for (int64_t c = 0; c < g.cols; c += PANEL) {
            const int64_t end = g.cols - c < PANEL ? g.cols : c + PANEL;
            const row to = row_at(out, d * g.cols + c);
            most_of(from, &g, c, end, indptr[d], indptr[d + 1], to.bf16 ? wide : to.wide,
                    arg != NULL ? arg + d * g.cols + c : NULL);
            if (to.bf16)
                narrow_row(to.bf16, wide, end - c);
        }
    }
}

/* reduce_matrix reduces rows of a matrix of either type. */
TARGET static void reduce_matrix(reduction how, edges g, halognn_matrix h, halognn_result out,
                                 int64_t segments, const int64_t *indptr) {
    g.h = h.at;
    g.row_bytes = g.cols * (h.bf16 ? 2 : 4);
    g = aimed(g, segments, indptr);
    reducers[h.bf16 ? BF16_MATRIX : MATRIX][how](&g, out, segments, indptr);
}

void LEVEL(segment_mean)(halognn_result out, int64_t segments, int64_t cols, const int64_t *indptr,
                         const int32_t *indices, halognn_matrix h) {
    const edges g = {.cols = cols, .indices = indices};
    reduce_matrix(MEAN, g, h, out, segments, indptr);
}

void LEVEL(segment_sum)(halognn_result out, int64_t segments, int64_t cols, const int64_t *indptr,
                        const int32_t *indices, const float *weights, halognn_matrix h,
                        halognn_matrix own, int64_t rows, const float *scale, int add) {
    const edges g = {.cols = cols, .indices = indices, .weights = weights, .add = add, .own = own,
                     .rows = rows, .factor = scale != NULL ? 1 + *scale : 1};
    if (weights)
        reduce_matrix(WEIGHTED, g, h, out, segments, indptr);
    else
        reduce_matrix(SUM, g, h, out, segments, indptr);
}

void LEVEL(segment_max)(halognn_result out, int32_t *arg, int64_t segments, int64_t cols,
                        const int64_t *indptr, const int32_t *indices, halognn_matrix h) {
    const edges g = {.cols = cols, .row_bytes = cols * (h.bf16 ? 2 : 4), .indices = indices,
                     .h = h.at};
    if (h.bf16)
        largest(BF16_MATRIX, g, out, arg, segments, indptr);
    else
        largest(MATRIX, g, out, arg, segments, indptr);
}

ALWAYS_INLINE void reduce_rows(source from, edges g, int how, halognn_result out, int64_t segments,
                               const int64_t *indptr) {
    if (how == HALOGNN_MAX) {
        largest(from, g, out, NULL, segments, indptr);
        return;
    }
    g = aimed(g, segments, indptr);
    const reduction with = how == HALOGNN_MEAN ? MEAN : g.weights ? WEIGHTED : SUM;
    reducers[from][with](&g, out, segments, indptr);
}

void LEVEL(segment_rows)(halognn_result out, int64_t segments, int64_t cols, const int64_t *indptr,
                         const int32_t *indices, int how, const int32_t *counts,
                         const float *weights, halognn_elements as, const halognn_table *tables,
                         const uint64_t *of) {
    const edges g = {.cols = cols,
                     .row_bytes = cols * as.bytes,
                     .indices = indices,
                     .counts = counts,
                     .weights = weights,
                     .as = as,
                     .tables = tables,
                     .of = of};
    switch (as.bytes) {
    case 1:
        reduce_rows(BYTE_TABLES, g, how, out, segments, indptr);
        break;
    case 2:
        if (as.bf16)
            reduce_rows(BF16_TABLES, g, how, out, segments, indptr);
        else
            reduce_rows(HALF_TABLES, g, how, out, segments, indptr);
        break;
    default:
        reduce_rows(TABLES, g, how, out, segments, indptr);
    }
}

void LEVEL(segment_mean_backward)(halognn_result dh, int64_t segments, int64_t cols,
                                  const int64_t *t_indptr, const int32_t *t_indices,
                                  const int64_t *indptr, const float *dout, halognn_matrix own,
                                  int64_t rows) {
    const edges g = aimed((edges){.cols = cols,
                                  .row_bytes = cols * 4,
                                  .indices = t_indices,
                                  .h = dout,
                                  .degrees = indptr,
                                  .own = own,
                                  .rows = rows,
                                  .factor = 1},
                          segments, t_indptr);
    reduce_MATRIX_GRADIENT(&g, dh, segments, t_indptr);
}

void LEVEL(segment_max_backward)(float *dh, int64_t segments, int64_t cols, int64_t first,
                                 const int64_t *t_indptr, const int32_t *t_indices,
                                 const int32_t *arg, const float *dout) {
    const edges g = {.cols = cols, .row_bytes = cols * 4, .indices = t_indices, .h = dout,
                     .last = t_indptr[segments] - 1, .ahead = rows_ahead(cols * 4)};
    for (int64_t s = 0; s < segments; s++, dh += cols) {
        const int32_t source = (int32_t)(first + s);
        memset(dh, 0, (size_t)cols * sizeof *dh);
        for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++) {
            prefetch_edge(MATRIX, &g, e);
            if (e > t_indptr[s] && t_indices[e] == t_indices[e - 1])
                continue;
            const float *from = dout + t_indices[e] * cols;
            const int32_t *at = arg + t_indices[e] * cols;
            INDEPENDENT for (int64_t j = 0; j < cols; j++) dh[j] += at[j] == source ? from[j] : 0;
        }
    }
}
