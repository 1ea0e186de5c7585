/*
 * Matrix products of bfloat16 factors by AVX512-BF16. Its instruction multiplies pairs: it adds
 * a[2p] b[2p,j] + a[2p+1] b[2p+1,j] to lane j of a sum. So the factor b is stored as pairs of rows,
 * in panels of columns. A block of 6 rows by 64 columns of the product stays in 24 registers, while
 * both factors are read once, in order. Every element is a sum over pairs in the same order, so it
 * does not depend on its block.
 *
 *   a [m,k] rows, or aᵀ as pairs  ─┐
 *                                  ├─> blocks of 6 x 64 sums ──> c [m,n]
 *   b [k,n] pairs in panels of 64 ─┘
 */
#include "rounding.h"
#include "simd.h"

#define PRODUCTS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c" WIDE)))
#define PRODUCTS_INLINE PRODUCTS static inline __attribute__((always_inline))

enum {
    ROWS = 6,
    COLUMNS = HALOGNN_COLUMN_PANEL,
    VECTORS = COLUMNS / LANES,
    PASS = HALOGNN_PAIRS_OF_PASS,
    /* Number of rows that are prefetched: reading two rows at a time is a pattern that few
     * processors predict. */
    AHEAD_ROWS = 8,
};

static __mmask16 first_lanes(int64_t n) {
    return n >= LANES ? 0xffff : (__mmask16)((1u << (n > 0 ? n : 0)) - 1);
}

/* Returns lanes whose upper half is a bfloat16, rounded as halognn_bf16 rounds. The lower half is
 * not cleared. */
PRODUCTS_INLINE __m512i rounded_lanes(vec v) {
    const __m512i x = (__m512i)v, one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), one);
    const __m512i r = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(r, nan, x, _mm512_set1_epi32(0x400000));
}

PRODUCTS_INLINE __m512i pairs_of_floats(vec even, vec odd) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(rounded_lanes(even), 16),
                                   rounded_lanes(odd));
}

/* Loads n numbers of a row: a whole vector if n >= LANES, otherwise the first n lanes. A masked
 * load costs many cycles, so only the last load of a row is masked. */
PRODUCTS_INLINE vec float_lanes(const float *x, int64_t n) {
    return n >= LANES ? load(x) : (vec)_mm512_maskz_loadu_ps(first_lanes(n), x);
}
PRODUCTS_INLINE __m512i half_lanes(const uint16_t *x, int64_t n) {
    return _mm512_cvtepu16_epi32(n >= LANES ? _mm256_loadu_si256((const __m256i *)x)
                                            : _mm256_maskz_loadu_epi16(first_lanes(n), x));
}

/* Returns n pairs of elements from two rows. odd is NULL if `even` is the last row of the
 * factor. */
PRODUCTS_INLINE __m512i pairs_at(int bf16, const void *even, const void *odd, int64_t n) {
    if (bf16) { /* already bfloat16 */
        const __m512i upper = odd == NULL ? _mm512_setzero_si512() : half_lanes(odd, n);
        return _mm512_or_si512(half_lanes(even, n), _mm512_slli_epi32(upper, 16));
    }
    return pairs_of_floats(float_lanes(even, n), odd == NULL ? (vec){0} : float_lanes(odd, n));
}

/* Turns rows into pairs. The rows are read once, in order, which is fastest. The panels are written
 * to the cache. */
PRODUCTS_INLINE void pair(uint32_t *to, int64_t panel, int64_t rows, int64_t cols, int bf16,
                          const char *x, int64_t stride) {
    const int64_t apart = (rows + 1) / 2 * panel, size = bf16 ? 2 : 4, row = stride * size;
    for (int64_t r = 0; r < rows; r += 2, to += panel, x += 2 * row) {
        uint32_t *pairs = to;
        for (int64_t first = 0; first < cols; first += panel, pairs += apart)
            for (int64_t j = 0; j < panel; j += LANES) {
                const char *even = x + (first + j) * size, *odd = even + row;
                const int64_t n = cols - first - j;
                __builtin_prefetch(even + AHEAD_ROWS * row);
                __builtin_prefetch(odd + AHEAD_ROWS * row);
                const __m512i v = n > 0 ? pairs_at(bf16, even, r + 1 < rows ? odd : NULL, n)
                                        : _mm512_setzero_si512();
                if (panel - j >= LANES)
                    _mm512_storeu_si512(pairs + j, v);
                else
                    _mm512_mask_storeu_epi32(pairs + j, first_lanes(panel - j), v);
            }
    }
}

PRODUCTS void pair_rows_avx512bf16(uint32_t *to, int64_t panel, int64_t rows, int64_t cols,
                                   halognn_matrix x, int64_t stride) {
    if (x.bf16)
        pair(to, panel, rows, cols, 1, x.at, stride);
    else
        pair(to, panel, rows, cols, 0, x.at, stride);
}

/* How the left factor is stored: pair p of row i begins at byte at + i*row + p*pair. If half is
 * set, the first half of one more pair follows. */
typedef struct {
    const char *at;
    int64_t row, pair, pairs;
    int half;
} left_factor;

typedef struct {
    float *at;
    int64_t stride;
    __mmask16 last; /* lanes of the last vector */
    int add;
} sums_to;

/* Computes one block of the product. Where this function is inlined, rows and vectors are
 * constants. */
PRODUCTS_INLINE void block(int rows, int vectors, sums_to c, left_factor a, const uint32_t *b) {
    __m512 sum[ROWS][VECTORS];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = _mm512_setzero_ps();
    for (int64_t p = 0; p < a.pairs; p++, a.at += a.pair, b += COLUMNS) {
        __m512bh right[VECTORS];
        UNROLL for (int v = 0; v < vectors; v++)
            right[v] = (__m512bh)_mm512_loadu_si512(b + v * LANES);
        UNROLL for (int i = 0; i < rows; i++) {
            uint32_t pair;
            memcpy(&pair, a.at + i * a.row, sizeof pair);
            const __m512bh left = (__m512bh)_mm512_set1_epi32((int)pair);
            UNROLL for (int v = 0; v < vectors; v++)
                sum[i][v] = _mm512_dpbf16_ps(sum[i][v], left, right[v]);
        }
    }
    if (a.half)
        UNROLL for (int i = 0; i < rows; i++) {
            uint16_t last;
            memcpy(&last, a.at + i * a.row, sizeof last);
            const __m512bh left = (__m512bh)_mm512_set1_epi32(last);
            UNROLL for (int v = 0; v < vectors; v++)
                sum[i][v] = _mm512_dpbf16_ps(
                    sum[i][v], left, (__m512bh)_mm512_loadu_si512(b + v * LANES));
        }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < vectors; v++) {
            float *to = c.at + i * c.stride + v * LANES;
            const __mmask16 lanes = v + 1 < vectors ? 0xffff : c.last;
            if (c.add)
                sum[i][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), sum[i][v]);
            _mm512_mask_storeu_ps(to, lanes, sum[i][v]);
        }
}

/* Computes all blocks for one panel of b, which is the given number of vectors wide. For the first
 * panel the rows of a are not in the cache yet, so they are prefetched while the block before them
 * is multiplied. */
PRODUCTS_INLINE void blocks(int vectors, sums_to c, int64_t m, left_factor a, int64_t next,
                            const uint32_t *b, int first) {
    for (; m >= ROWS; m -= ROWS, a.at += next, c.at += ROWS * c.stride) {
        if (first && m >= 2 * ROWS && a.pair == 4)
            for (int i = 0; i < ROWS; i++)
                prefetch_row(a.at + next + i * a.row, a.pairs * a.pair);
        block(ROWS, vectors, c, a, b);
    }
    switch (m) {
    case 5: block(5, vectors, c, a, b); break;
    case 4: block(4, vectors, c, a, b); break;
    case 3: block(3, vectors, c, a, b); break;
    case 2: block(2, vectors, c, a, b); break;
    case 1: block(1, vectors, c, a, b); break;
    }
}

/* Computes the product of a and all panels of b. The blocks of rows of a lie `next` bytes apart.
 * Each panel of b has b_pairs rows of pairs. */
PRODUCTS_INLINE void product(sums_to c, int64_t m, int64_t n, left_factor a, int64_t next,
                             const uint32_t *b, int64_t b_pairs) {
    for (int first = 1; n > 0;
         n -= COLUMNS, c.at += COLUMNS, b += b_pairs * COLUMNS, first = 0) {
        const int64_t vectors = n >= COLUMNS ? VECTORS : (n + LANES - 1) / LANES;
        c.last = first_lanes(n - (vectors - 1) * LANES);
        switch (vectors) {
        case 4: blocks(4, c, m, a, next, b, first); break;
        case 3: blocks(3, c, m, a, next, b, first); break;
        case 2: blocks(2, c, m, a, next, b, first); break;
        case 1: blocks(1, c, m, a, next, b, first); break;
        }
    }
}

/* Computes the product in several passes, each over some of the rows of b. */
PRODUCTS_INLINE void passes(sums_to c, int64_t m, int64_t n, left_factor a, const uint32_t *b) {
    const int64_t half = a.half, b_pairs = a.pairs + half;
    for (int64_t rest = b_pairs;; rest -= PASS) {
        a.half = half && rest <= PASS;
        a.pairs = (rest > PASS ? PASS : rest) - a.half;
        product(c, m, n, a, ROWS * a.row, b, b_pairs);
        if (rest <= PASS)
            return;
        b += PASS * COLUMNS, a.at += PASS * a.pair, c.add = 1;
    }
}

PRODUCTS void product_of_rows_avx512bf16(float *c, int64_t stride, int64_t m, int64_t n, int64_t k,
                                         const uint16_t *a, const uint32_t *b, int add) {
    passes((sums_to){.at = c, .stride = stride, .add = add}, m, n,
           (left_factor){
               .at = (const char *)a, .row = 2 * k, .pair = 4, .pairs = k / 2, .half = k % 2},
           b);
}

PRODUCTS void product_of_pairs_avx512bf16(float *c, int64_t stride, int64_t m, int64_t n,
                                          int64_t k, const uint32_t *a, const uint32_t *b,
                                          int add) {
    passes((sums_to){.at = c, .stride = stride, .add = add}, m, n,
           (left_factor){.at = (const char *)a, .row = 4, .pair = 4 * m, .pairs = (k + 1) / 2}, b);
}
