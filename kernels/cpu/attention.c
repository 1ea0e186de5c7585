/*
 * Attention over segments of edges. The columns of a row lie head by head, and the weight of an
 * edge differs from head to head:
 *
 *	columns   |--vec--|--vec--| ... |--vec--|-tail-|      of a row of z
 *	heads     |--0--|--1--|--2--| ...                     a vector has lanes of up to LANES heads
 *	alpha     [e,0] [e,1] [e,2] ...                       spread over the lanes by one permutation
 *
 * A strip is a number of vectors side by side. As in segment.c, a strip's sums stay in registers
 * over all edges of a segment. The tail of a row is read as a vector that ends at the last column.
 * While an edge is summed, the row of a later edge is prefetched.
 */
#include "exp.h"
#include "simd.h"

#define WAYS 16
#define WAY_VECS (WAYS / LANES)

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

#if LANES == 8
/* first_lanes returns a vector whose first n lanes have all bits set, and the other lanes none. */
ALWAYS_INLINE __m256i first_lanes(int64_t n) {
    static const int32_t lanes[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(lanes + LANES - n));
}
#endif

/* load_first reads n <= LANES numbers into the first lanes. The memory after them is not read, and
 * the other lanes are zero. */
ALWAYS_INLINE vec load_first(const float *p, int64_t n) {
#if LANES == 16
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
    return (vec)_mm256_maskload_ps(p, first_lanes(n));
#endif
}

/* store_first writes the first n <= LANES lanes. */
ALWAYS_INLINE void store_first(float *p, vec v, int64_t n) {
#if LANES == 16
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#else
    _mm256_maskstore_ps(p, first_lanes(n), (__m256)v);
#endif
}

/* first_of returns the first n lanes of a and the other lanes of b. */
ALWAYS_INLINE vec first_of(vec a, vec b, int64_t n) {
#if LANES == 16
    return (vec)_mm512_mask_blend_ps((__mmask16)((1u << n) - 1), (__m512)b, (__m512)a);
#else
    return (vec)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)first_lanes(n));
#endif
}

/* spread returns the vector whose lane i is lane from[i] of v. */
ALWAYS_INLINE vec spread(vec v, ivec from) {
#if LANES == 16
    return (vec)_mm512_permutexvar_ps((__m512i)from, (__m512)v);
#else
    return (vec)_mm256_permutevar8x32_ps((__m256)v, (__m256i)from);
#endif
}

/* tree adds the WAYS partial sums of a row in the order of a fixed tree, so that all SIMD levels
 * round alike. */
ALWAYS_INLINE float tree(const vec sum[WAY_VECS]) {
#if LANES == 16
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)sum[0]),
                                _mm512_extractf32x8_ps((__m512)sum[0], 1));
#else
    __m256 half = (__m256)(sum[0] + sum[1]);
#endif
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}

/* choose returns the lanes of a where u is above 0, and the lanes of b elsewhere. */
ALWAYS_INLINE vec choose(vec u, vec a, vec b) {
#if LANES == 16
    return (vec)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)u, _mm512_setzero_ps(), _CMP_GT_OQ),
                                     (__m512)b, (__m512)a);
#else
    return (vec)_mm256_blendv_ps((__m256)b, (__m256)a,
                                 _mm256_cmp_ps((__m256)u, _mm256_setzero_ps(), _CMP_GT_OQ));
#endif
}

/* factors says what the terms of a dot product are: x * y, or LeakyReLU(x + y) * a. */
typedef struct {
    int scores; /* whether the terms are LeakyReLU(x + y) * a */
    const float *a;
    float slope;
} factors;

ALWAYS_INLINE vec product(const factors *f, const float *x, const float *y, int64_t j, int64_t n) {
    const vec u = n == LANES ? load(x + j) : load_first(x + j, n);
    const vec v = n == LANES ? load(y + j) : load_first(y + j, n);
    if (!f->scores)
        return u * v;
    return choose(u + v, u + v, (u + v) * f->slope) * load_first(f->a + j, n);
}

/* If the width of heads is a small power of two, the columns of a head are a group of lanes in a
 * vector. All groups are summed by the same tree: first the lane half a group away is added to each
 * lane, then the lane a quarter of a group away, and so on. */
typedef struct {
    int steps;       /* number of steps of the tree; -1 if the width is no small power of two */
    ivec partner[4]; /* for each step: which lane is added to each lane */
    ivec first;      /* the first lane of each group */
} groups;

ALWAYS_INLINE void set_groups(groups *g, int64_t width) {
    g->steps = -1;
    if (width < 1 || width > LANES || (width & (width - 1)) != 0)
        return;
    int32_t lane[LANES];
    g->steps = 0;
    for (int64_t half = width / 2; half > 0; half /= 2, g->steps++) {
        for (int32_t i = 0; i < LANES; i++)
            lane[i] = i ^ (int32_t)half;
        memcpy(&g->partner[g->steps], lane, sizeof lane);
    }
    for (int32_t i = 0; i < LANES; i++)
        lane[i] = i * (int32_t)width % LANES;
    memcpy(&g->first, lane, sizeof lane);
}

/* dots sets to[h] to the sum of the products of head h, in WAYS interleaved partial sums. */
ALWAYS_INLINE void dots(float *to, const float *x, const float *y, int64_t heads, int64_t width,
                        const factors *f, const groups *g) {
    if (g->steps >= 0) {
        const int64_t cols = heads * width, whole = LANES / width;
        for (int64_t j = 0; j < cols; j += LANES, to += whole) {
            const int64_t n = cols - j < LANES ? cols - j : LANES;
            /* + 0 turns -0 into 0, as a sum that begins with 0 is never -0. */
            vec sum = product(f, x, y, j, n) + (vec){0};
            for (int k = 0; k < g->steps; k++)
                sum += spread(sum, g->partner[k]);
            store_first(to, spread(sum, g->first), n == LANES ? whole : n / width);
        }
        return;
    }
    for (int64_t h = 0; h < heads; h++) {
        vec sum[WAY_VECS] = {0};
        const int64_t begin = h * width, end = begin + width;
        int64_t j = begin;
        for (; j + WAYS <= end; j += WAYS) {
            UNROLL for (int k = 0; k < WAY_VECS; k++)
                sum[k] += product(f, x, y, j + k * LANES, LANES);
        }
        UNROLL for (int k = 0; k < WAY_VECS && j < end; k++, j += LANES)
            sum[k] += product(f, x, y, j, end - j < LANES ? end - j : LANES);
        to[h] = tree(sum);
    }
}

void LEVEL(head_dot)(float *s, int64_t rows, int64_t heads, int64_t width, const float *z,
                     const float *a) {
    const factors f = {0};
    groups g;
    set_groups(&g, width);
    for (int64_t r = 0; r < rows; r++)
        dots(s + r * heads, z + r * heads * width, a, heads, width, &f, &g);
}

void LEVEL(head_dot_backward)(float *dz, float *da, int64_t rows, int64_t heads, int64_t width,
                              const float *ds, const float *z, const float *a) {
    memset(da, 0, (size_t)(heads * width) * sizeof *da);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++, dz += width, z += width) {
            const float g = ds[r * heads + h];
            const float *from = a + h * width;
            float *to = da + h * width;
            INDEPENDENT for (int64_t j = 0; j < width; j++) dz[j] += g * from[j];
            INDEPENDENT for (int64_t j = 0; j < width; j++) to[j] += g * z[j];
        }
}

/* larger returns the lanes of a that are larger than those of b, and the lanes of b elsewhere. */
ALWAYS_INLINE vec larger(vec a, vec b) {
#if LANES == 16
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#endif
}

/* smaller returns the lanes of a that are smaller than those of b, and the lanes of b elsewhere. */
ALWAYS_INLINE vec smaller(vec a, vec b) {
#if LANES == 16
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#endif
}

/* exp_of returns halognn_exp of each lane, by the same operations. */
ALWAYS_INLINE vec exp_of(vec x) {
    const vec zero = {0};
    x = smaller(zero + 88.0f, larger(zero - 87.0f, x)); /* both return a NaN if x is one */
    const vec shifted = x * 1.44269504088896341f + 12582912.0f;
    const vec n = shifted - 12582912.0f;
    const vec r = x - n * 0.693359375f - n * -2.12194440e-4f;
    vec p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * (vec)(((ivec)shifted << 23) + 0x3f800000);
}

/* The numbers of a segment's edges, [edges,heads], are contiguous. Kernels that combine numbers of
 * different edges in order go edge by edge, with up to LANES heads in a vector. Other kernels, if
 * all heads fit into a vector, take LANES numbers at a time:
 *
 *	numbers   [0,0] [0,1] [0,2] [1,0] [1,1] [1,2] ...       3 heads
 *	vectors   |--------- 0 ---------|--------- 1 ---
 *
 * Lane i of vector k belongs to head (k*LANES+i) % heads.
 */
typedef struct {
    int64_t heads;
    /* of[k]: the head of each lane of a vector that begins with head k; heads <= LANES */
    ivec of[LANES];
} cycle;

ALWAYS_INLINE void set_cycle(cycle *c, int64_t heads) {
    c->heads = heads;
    for (int64_t k = 0; k < heads && heads <= LANES; k++) {
        int32_t head[LANES];
        for (int64_t i = 0; i < LANES; i++)
            head[i] = (int32_t)((k + i) % heads);
        memcpy(&c->of[k], head, sizeof head);
    }
}

enum { TOGETHER = 8 }; /* number of segments that are worked on together */

/* softmax turns scores into weights, for `count` heads and the edges of n <= TOGETHER segments. The
 * pointer `of` is to the first of these heads; most has the largest score of each segment and head.
 * Every step is made for all segments before the next step, because a vector cannot be loaded
 * before the parts of it that were just stored have reached the cache. */
ALWAYS_INLINE void softmax(float *of, int64_t n, const int64_t *indptr, const cycle *c,
                           int64_t count, const vec *most) {
    const int64_t heads = c->heads, step = LANES % heads;
    const int few = 2 * heads < LANES; /* then a single segment often does not fill its vectors */
    vec sum[TOGETHER];
    for (int64_t d = 0; d < n; d++) {
        const int64_t end = indptr[d + 1] * heads;
        if (count < heads) /* this strip has only some of the heads */
            for (int64_t i = indptr[d] * heads; i < end; i += heads)
                store_first(of + i, exp_of(load_first(of + i, count) - most[d]), count);
        else
            for (int64_t i = indptr[d] * heads, first = 0; i < end; i += LANES) {
                const int64_t left = end - i < LANES ? end - i : LANES;
                const vec x = load_first(of + i, left) - spread(most[d], c->of[first]);
                store_first(of + i, few ? x : exp_of(x), left);
                first = first + step < heads ? first + step : first + step - heads;
            }
    }
    if (count == heads && few) {
        const int64_t end = indptr[n] * heads;
        int64_t i = indptr[0] * heads;
        for (; i + LANES <= end; i += LANES)
            store(of + i, exp_of(load(of + i)));
        if (i < end)
            store_first(of + i, exp_of(load_first(of + i, end - i)), end - i);
    }
    for (int64_t d = 0; d < n; d++) {
        vec all = {0}; /* stays in a register, unlike sum[d] */
        for (int64_t i = indptr[d] * heads; i < indptr[d + 1] * heads; i += heads)
            all += load_first(of + i, count);
        sum[d] = all;
    }
    for (int64_t d = 0; d < n; d++) {
        const int64_t end = indptr[d + 1] * heads;
        if (count < heads)
            for (int64_t i = indptr[d] * heads; i < end; i += heads)
                store_first(of + i, load_first(of + i, count) / sum[d], count);
        else
            for (int64_t i = indptr[d] * heads, first = 0; i < end; i += LANES) {
                const int64_t left = end - i < LANES ? end - i : LANES;
                store_first(of + i, load_first(of + i, left) / spread(sum[d], c->of[first]), left);
                first = first + step < heads ? first + step : first + step - heads;
            }
    }
}

/* ahead_of returns the index of the edge EDGES_AHEAD after edge e, or of the last edge. */
#define EDGES_AHEAD 16
ALWAYS_INLINE int64_t ahead_of(const int32_t *indices, int64_t e, int64_t last) {
    return indices[e + EDGES_AHEAD < last ? e + EDGES_AHEAD : last];
}

/* strip_of returns how many heads are in the strip that begins with head h. */
ALWAYS_INLINE int64_t strip_of(int64_t heads, int64_t h) {
    return heads - h < LANES ? heads - h : LANES;
}

/* scores_together sets alpha to the scores of the edges of n <= TOGETHER segments, and most to the
 * largest scores. It is for a few heads, whose number divides LANES. It first copies the numbers of
 * src together, and then computes with vectors of LANES / heads edges. */
ALWAYS_INLINE void scores_together(float *alpha, int64_t n, const int64_t heads,
                                   const int64_t *indptr,
                                   const int32_t *indices, const float *src, const float *dst,
                                   float slope, int64_t last, const cycle *c, vec *most) {
    for (int64_t e = indptr[0]; e < indptr[n]; e++) {
        __builtin_prefetch(src + ahead_of(indices, e, last) * heads);
        memcpy(alpha + e * heads, src + indices[e] * heads, (size_t)heads * sizeof *alpha);
    }
    for (int64_t d = 0; d < n; d++) {
        const vec to = spread(load_first(dst + d * heads, heads), c->of[0]);
        const int64_t end = indptr[d + 1] * heads;
        vec all = (vec){0} - __builtin_inff();
        for (int64_t i = indptr[d] * heads; i < end; i += LANES) {
            const int64_t left = end - i < LANES ? end - i : LANES;
            const vec v = load_first(alpha + i, left) + to;
            const vec score = choose(v, v, v * slope);
            store_first(alpha + i, score, left);
            all = left == LANES ? larger(score, all) : first_of(larger(score, all), all, left);
        }
        for (int64_t half = LANES / 2; half >= heads; half /= 2) {
            int32_t lane[LANES];
            for (int32_t i = 0; i < LANES; i++)
                lane[i] = i ^ (int32_t)half;
            ivec from;
            memcpy(&from, lane, sizeof from);
            all = larger(all, spread(all, from));
        }
        most[d] = all;
    }
}

void LEVEL(edge_softmax)(float *alpha, int64_t segments, int64_t heads, const int64_t *indptr,
                         const int32_t *indices, const float *src, const float *dst, float slope) {
    const int64_t last = indptr[segments] - 1;
    cycle c;
    set_cycle(&c, heads);
    for (int64_t first = 0; first < segments; first += TOGETHER) {
        const int64_t n = segments - first < TOGETHER ? segments - first : TOGETHER;
        vec most[TOGETHER];
        switch (heads) {
#define FEW_HEADS(heads)                                                                           \
    case heads:                                                                                    \
        scores_together(alpha, n, heads, indptr + first, indices, src, dst + first * heads, slope, \
                        last, &c, most);                                                           \
        softmax(alpha, n, indptr + first, &c, heads, most);                                        \
        continue;
            FEW_HEADS(1) FEW_HEADS(2) FEW_HEADS(4) FEW_HEADS(8)
#undef FEW_HEADS
        }
        for (int64_t h = 0; h < heads; h += LANES) {
            const int64_t count = strip_of(heads, h);
            for (int64_t d = 0; d < n; d++) {
                const vec to = load_first(dst + (first + d) * heads + h, count);
                for (int64_t e = indptr[first + d]; e < indptr[first + d + 1]; e++) {
                    __builtin_prefetch(src + ahead_of(indices, e, last) * heads + h);
                    const vec v = load_first(src + indices[e] * heads + h, count) + to;
                    const vec score = choose(v, v, v * slope);
                    store_first(alpha + e * heads + h, score, count);
                    most[d] = e == indptr[first + d] ? score : larger(score, most[d]);
                }
            }
            softmax(alpha + h, n, indptr + first, &c, count, most);
        }
    }
}

/* Inputs of the gradient of scores that are LeakyReLU of a sum of two numbers. For other scores
 * score_gradients gets NULL. */
typedef struct {
    const float *src, *dst; /* numbers of the strip */
    const int32_t *indices; /* indices of the segment */
    /* Number of edges from the segment's first edge to the last edge of all segments. */
    int64_t left;
    float slope;
} sums;

/* score_gradients turns the gradients of the weights of n heads into the gradients of the scores.
 * It returns the sum of the scores' gradients over the segment's edges. It stores a few edges at a
 * time, because a vector cannot be loaded while the vector before it, with which it overlaps, is on
 * its way to the cache. */
ALWAYS_INLINE vec score_gradients(float *de, const float *alpha, int64_t edges, int64_t heads,
                                  int64_t n, const sums *of) {
    enum { FEW = 8 };
    vec mean = {0}, sum = {0}, to = {0};
    if (of != NULL)
        to = load_first(of->dst, n);
    for (int64_t e = 0; e < edges; e++)
        mean += load_first(alpha + e * heads, n) * load_first(de + e * heads, n);
    for (int64_t first = 0; first < edges; first += FEW) {
        const int64_t end = edges - first < FEW ? edges : first + FEW;
        vec score[FEW];
        for (int64_t e = first; e < end; e++) {
            vec g = load_first(alpha + e * heads, n) * (load_first(de + e * heads, n) - mean);
            if (of != NULL) {
                __builtin_prefetch(of->src + ahead_of(of->indices, e, of->left) * heads);
                g = choose(load_first(of->src + of->indices[e] * heads, n) + to, g, g * of->slope);
            }
            score[e - first] = g;
            sum += g;
        }
        for (int64_t e = first; e < end; e++)
            store_first(de + e * heads, score[e - first], n);
    }
    return sum;
}

void LEVEL(edge_softmax_backward)(float *de, float *ddst, int64_t segments, int64_t heads,
                                  const int64_t *indptr, const int32_t *indices, const float *alpha,
                                  const float *src, const float *dst, float slope) {
    for (int64_t d = 0; d < segments; d++)
        for (int64_t h = 0; h < heads; h += LANES) {
            const int64_t n = strip_of(heads, h), begin = indptr[d], at = begin * heads + h;
            const sums of = {src + h, dst + d * heads + h, indices + begin,
                             indptr[segments] - 1 - begin, slope};
            store_first(ddst + d * heads + h,
                        score_gradients(de + at, alpha + at, indptr[d + 1] - begin, heads, n, &of),
                        n);
        }
}

void LEVEL(edge_collect)(float *dsrc, int64_t segments, int64_t heads, const int64_t *t_indptr,
                         const int32_t *t_edges, const float *de) {
    const int64_t last = t_indptr[segments] - 1;
    for (int64_t s = 0; s < segments; s++, dsrc += heads)
        for (int64_t h = 0; h < heads; h += LANES) {
            const int64_t n = strip_of(heads, h);
            vec sum = {0};
            for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++) {
                __builtin_prefetch(de + ahead_of(t_edges, e, last) * heads + h);
                sum += load_first(de + t_edges[e] * heads + h, n);
            }
            store_first(dsrc + h, sum, n);
        }
}

/* The inputs of weighted sums over edges. The array edges has the number of each edge; it is NULL
 * if the number is the edge's position. Rows of bfloat16 are in halves instead of rows. */
typedef struct {
    int64_t heads, width, cols, last, ahead;
    const int32_t *indices, *edges;
    const float *alpha, *rows;
    const uint16_t *halves;
} weighted;

ALWAYS_INLINE const float *alpha_of(const weighted *g, int64_t e) {
    return g->alpha + (g->edges ? g->edges[e] : e) * g->heads;
}

ALWAYS_INLINE void prefetch_edge(const weighted *g, int64_t e) {
    e += g->ahead;
    const int64_t at = g->indices[e < g->last ? e : g->last] * g->cols;
    if (g->halves)
        prefetch_row(g->halves + at, g->cols * 2);
    else
        prefetch_row(g->rows + at, g->cols * 4);
}

/* The place of a vector in a row: its first column, at, and the heads of its lanes. Lane i belongs
 * to head first + from[i]. It is computed once in a call, for up to MAX_VECS vectors at a time. */
enum { MAX_VECS = 4 * MAX_ACCUMULATORS };
typedef struct {
    /* count: number of heads, up to LANES, that may be read from head first on */
    int64_t at, first, count;
    ivec from;
} lanes_of;

/* place_vectors places up to MAX_VECS vectors from column j on, and returns how many it has placed.
 * The last vector of a row ends at the last column. */
ALWAYS_INLINE int place_vectors(lanes_of v[MAX_VECS], const weighted *g, int64_t j) {
    int n = 0;
    for (; j < g->cols && n < MAX_VECS; j += LANES, n++) {
        v[n].at = j + LANES <= g->cols ? j : g->cols - LANES;
        v[n].first = v[n].at / g->width;
        v[n].count = g->heads - v[n].first < LANES ? g->heads - v[n].first : LANES;
        int32_t head[LANES];
        int64_t left = (v[n].first + 1) * g->width - v[n].at; /* remaining columns of the head */
        for (int i = 0, h = 0; i < LANES; i++, left--) {
            if (left == 0) {
                h++;
                left = g->width;
            }
            head[i] = h;
        }
        memcpy(&v[n].from, head, sizeof head);
    }
    return n;
}

/* put stores the lanes of v from lane `first` on. */
ALWAYS_INLINE void put(float *p, vec v, int64_t first) {
    if (first == 0) {
        store(p, v);
    } else {
        float lanes[LANES];
        store(lanes, v);
        memcpy(p + first, lanes + first, (size_t)(LANES - first) * sizeof *p);
    }
}

/* The dot products, by head, of each edge's row and the row of its segment: to[e,h]. They are
 * computed while the rows are summed, if no strip ends within a head. */
typedef struct {
    const float *own; /* the row of the segment */
    float *to;
} dotted;

/* strip sums n vectors of the rows of the edges [lo,hi). Lanes of the last vector whose column is
 * below j are not stored. If uniform is set, all lanes of a vector belong to one head. dot may be
 * NULL. */
ALWAYS_INLINE void strip(int bf16, int uniform, const int n, const weighted *g, const dotted *dot,
                         const lanes_of *v, int64_t lo, int64_t hi, int64_t j, float *out) {
    /* Number of vectors of a head; with dot it is a power of two. */
    const int64_t of_head = g->width / LANES;
    vec sum[MAX_ACCUMULATORS];
    UNROLL for (int k = 0; k < n; k++) sum[k] = (vec){0};
    for (int64_t e = lo; e < hi; e++) {
        if (j == 0)
            prefetch_edge(g, e);
        const int64_t row = g->indices[e] * g->cols;
        const float *alpha = alpha_of(g, e);
        vec part[WAY_VECS] = {0};
        if (dot && j == 0) {
            const int64_t ahead = ahead_of(g->edges, e, g->last) * g->heads;
            __builtin_prefetch(g->alpha + ahead);
            __builtin_prefetch(dot->to + ahead, 1);
        }
        UNROLL for (int k = 0; k < n; k++) {
            const vec x = bf16 ? load_bf16(g->halves + row + v[k].at)
                               : load(g->rows + row + v[k].at);
            if (dot) {
                part[k % WAY_VECS] += x * load(dot->own + v[k].at);
                if ((k + 1) % WAY_VECS == 0 && ((k + 1) & (of_head - 1)) == 0) {
                    dot->to[g->edges[e] * g->heads + v[k].first] = tree(part);
                    UNROLL for (int i = 0; i < WAY_VECS; i++) part[i] = (vec){0};
                }
            }
            if (uniform)
                sum[k] += x * alpha[v[k].first];
            else
                sum[k] += x * spread(load_first(alpha + v[k].first, v[k].count), v[k].from);
        }
    }
    UNROLL for (int k = 0; k < n - 1; k++) store(out + v[k].at, sum[k]);
    put(out + v[n - 1].at, sum[n - 1], j + (n - 1) * LANES - v[n - 1].at);
}

/* narrow sums rows that have fewer columns than a vector has lanes. */
ALWAYS_INLINE void narrow(const weighted *g, int64_t lo, int64_t hi, float *out) {
    float sum[LANES] = {0};
    for (int64_t e = lo; e < hi; e++) {
        prefetch_edge(g, e);
        const int64_t row = g->indices[e] * g->cols;
        const float *alpha = alpha_of(g, e);
        for (int64_t h = 0, j = 0; h < g->heads; h++)
            for (int64_t k = 0; k < g->width; k++, j++) {
                const float x = g->halves ? halognn_widened(g->halves[row + j]) : g->rows[row + j];
                sum[j] += x * alpha[h];
            }
    }
    memcpy(out, sum, (size_t)g->cols * sizeof *out);
}

/* strips sums the columns of the given vectors, strip by strip. Column j is the first one. */
ALWAYS_INLINE void strips(int bf16, int uniform, const weighted *g, const dotted *dot,
                          const lanes_of *v, int vecs, int64_t j, int64_t lo, int64_t hi,
                          float *out) {
    for (int first = 0; first < vecs; first += MAX_ACCUMULATORS) {
        const int n = vecs - first < MAX_ACCUMULATORS ? vecs - first : MAX_ACCUMULATORS;
        switch (n) {
#define STRIP(n)                                                                            \
    case n:                                                                                 \
        strip(bf16, uniform, n, g, dot, v + first, lo, hi, j + (int64_t)first * LANES, out); \
        break;
            STRIP(1) STRIP(2) STRIP(3) STRIP(4)
#if MAX_ACCUMULATORS > 4
            STRIP(5) STRIP(6) STRIP(7) STRIP(8)
#endif
#if MAX_ACCUMULATORS > 8
            STRIP(9) STRIP(10) STRIP(11) STRIP(12) STRIP(13) STRIP(14) STRIP(15) STRIP(16)
#endif
#undef STRIP
        }
    }
}

/* sum_segments sums over the edges of each segment. */
ALWAYS_INLINE void sum_segments(int bf16, const weighted *g, float *out, int64_t segments,
                                const int64_t *indptr) {
    if (g->cols < LANES) {
        for (int64_t d = 0; d < segments; d++)
            narrow(g, indptr[d], indptr[d + 1], out + d * g->cols);
        return;
    }
    const int uniform = g->heads == 1 || g->width % LANES == 0;
    lanes_of v[MAX_VECS];
    for (int64_t j = 0; j < g->cols; j += MAX_VECS * LANES) {
        const int vecs = place_vectors(v, g, j);
        for (int64_t d = 0; d < segments; d++) {
            if (uniform)
                strips(bf16, 1, g, NULL, v, vecs, j, indptr[d], indptr[d + 1], out + d * g->cols);
            else
                strips(bf16, 0, g, NULL, v, vecs, j, indptr[d], indptr[d + 1], out + d * g->cols);
        }
    }
}

void LEVEL(edge_sum)(float *y, int64_t segments, int64_t heads, int64_t width,
                     const int64_t *indptr, const int32_t *indices, const float *alpha,
                     halognn_matrix z) {
    const int64_t cols = heads * width;
    const weighted g = {heads, width, cols, indptr[segments] - 1,
                        rows_ahead(cols * (z.bf16 ? 2 : 4)), indices, NULL, alpha,
                        z.bf16 ? NULL : z.at, z.bf16 ? z.at : NULL};
    if (z.bf16)
        sum_segments(1, &g, y, segments, indptr);
    else
        sum_segments(0, &g, y, segments, indptr);
}

/* sum_and_dot computes what edge_sum_backward does, in one pass over the rows of dy. */
ALWAYS_INLINE void sum_and_dot(const weighted *g, float *dz, float *dalpha, int64_t segments,
                               const int64_t *t_indptr, const float *z) {
    enum { SEGMENTS_AHEAD = 2 };
    const int64_t bytes = g->cols * 4;
    lanes_of v[MAX_VECS];
    for (int64_t j = 0; j < g->cols; j += MAX_VECS * LANES) {
        const int vecs = place_vectors(v, g, j);
        for (int64_t s = 0; s < segments; s++) {
            const dotted dot = {z + s * g->cols, dalpha};
            if (j == 0 && s + SEGMENTS_AHEAD < segments) {
                prefetch_row(dot.own + SEGMENTS_AHEAD * g->cols, bytes);
                for (int64_t i = 0; i < g->cols; i += CACHE_LINE / 4)
                    __builtin_prefetch(dz + (s + SEGMENTS_AHEAD) * g->cols + i, 1);
            }
            strips(0, 1, g, &dot, v, vecs, j, t_indptr[s], t_indptr[s + 1], dz + s * g->cols);
        }
    }
}

/* The numbers of a source's edges are scattered in memory, so they are prefetched like the rows. If
 * a head may be cut by the end of a strip, the rows of dy for the edges of a few sources are read
 * twice, the second time from the caches. */
void LEVEL(edge_sum_backward)(float *dz, float *dalpha, int64_t segments, int64_t heads,
                              int64_t width, const int64_t *t_indptr, const int32_t *t_indices,
                              const int32_t *t_edges, const float *alpha, const float *z,
                              const float *dy) {
    enum { FEW = 8 };
    const int64_t cols = heads * width;
    const weighted g = {heads, width, cols, t_indptr[segments] - 1, rows_ahead(cols * 4),
                        t_indices, t_edges, alpha, dy, NULL};
    if (width > 0 && width % WAYS == 0 && MAX_ACCUMULATORS * LANES % width == 0) {
        sum_and_dot(&g, dz, dalpha, segments, t_indptr, z);
        return;
    }
    const factors f = {0};
    groups near;
    set_groups(&near, width);
    for (int64_t first = 0; first < segments; first += FEW) {
        const int64_t n = segments - first < FEW ? segments - first : FEW;
        sum_segments(0, &g, dz + first * cols, n, t_indptr + first);
        for (int64_t s = first; s < first + n; s++)
            for (int64_t e = t_indptr[s]; e < t_indptr[s + 1]; e++) {
                const int64_t ahead = ahead_of(t_edges, e, g.last) * heads;
                __builtin_prefetch(alpha + ahead);
                __builtin_prefetch(dalpha + ahead, 1);
                dots(dalpha + t_edges[e] * heads, dy + t_indices[e] * cols, z + s * cols, heads,
                     width, &f, &near);
            }
    }
}

void LEVEL(edge_dot_softmax)(float *alpha, int64_t segments, int64_t heads, int64_t width,
                             const int64_t *indptr, const int32_t *indices, const float *src,
                             const float *dst, const float *a, float slope) {
    const int64_t cols = heads * width;
    const weighted w = {heads, width, cols, indptr[segments] - 1, rows_ahead(cols * 4),
                        indices, NULL, alpha, src, NULL};
    const factors f = {1, a, slope};
    cycle c;
    groups g;
    set_cycle(&c, heads);
    set_groups(&g, width);
    for (int64_t first = 0; first < segments; first += TOGETHER) {
        const int64_t n = segments - first < TOGETHER ? segments - first : TOGETHER;
        for (int64_t d = first; d < first + n; d++)
            for (int64_t e = indptr[d]; e < indptr[d + 1]; e++) {
                prefetch_edge(&w, e);
                dots(alpha + e * heads, src + indices[e] * cols, dst + d * cols, heads, width, &f,
                     &g);
            }
        for (int64_t h = 0; h < heads; h += LANES) {
            const int64_t count = strip_of(heads, h);
            vec most[TOGETHER];
            for (int64_t d = 0; d < n; d++)
                for (int64_t e = indptr[first + d]; e < indptr[first + d + 1]; e++) {
                    const vec score = load_first(alpha + e * heads + h, count);
                    most[d] = e == indptr[first + d] ? score : larger(score, most[d]);
                }
            softmax(alpha + h, n, indptr + first, &c, count, most);
        }
    }
}

/* The inputs for the gradients of the rows at both ends of edges, whose scores are computed from
 * the sum of these two rows. */
typedef struct {
    weighted edges; /* alpha: gradients of the scores; rows: rows at the other ends of the edges */
    const float *a;
    float slope;
} scored;

/* Number of vectors in a strip, each of which needs two sums. */
enum { SCORE_VECS = MAX_ACCUMULATORS / 2 };

/* score_strip is strip for the gradients of scores. If by_destination is set, it sets drow, the
 * gradient of the destination's row, and adds to the gradient of a. Otherwise it adds to drow, the
 * gradient of the source's row. */
ALWAYS_INLINE void score_strip(int by_destination, int uniform, const int n, const scored *s,
                               const lanes_of *v, int64_t lo, int64_t hi, int64_t j,
                               const float *own, float *drow, float *da) {
    const weighted *g = &s->edges;
    vec row[SCORE_VECS], vector[SCORE_VECS];
    UNROLL for (int k = 0; k < n; k++) row[k] = vector[k] = (vec){0};
    for (int64_t e = lo; e < hi; e++) {
        if (j == 0)
            prefetch_edge(g, e);
        const float *other = g->rows + g->indices[e] * g->cols, *de = alpha_of(g, e);
        UNROLL for (int k = 0; k < n; k++) {
            const vec u = load(other + v[k].at) + load(own + v[k].at);
            const vec d = uniform ? (vec){0} + de[v[k].first]
                                  : spread(load_first(de + v[k].first, v[k].count), v[k].from);
            const vec part = choose(u, d, d * s->slope);
            row[k] += part;
            if (by_destination)
                vector[k] += part * u;
        }
    }
    UNROLL for (int k = 0; k < n; k++) {
        const int64_t at = v[k].at, foreign = k == n - 1 ? j + k * LANES - at : 0;
        row[k] *= load(s->a + at);
        if (by_destination) {
            put(drow + at, row[k], foreign);
            put(da + at, load(da + at) + vector[k], foreign);
        } else {
            put(drow + at, load(drow + at) + row[k], foreign);
        }
    }
}
/* score_narrow is narrow for the gradients of scores. */
ALWAYS_INLINE void score_narrow(int by_destination, const scored *s, int64_t lo, int64_t hi,
                                const float *own, float *drow, float *da) {
    const weighted *g = &s->edges;
    for (int64_t h = 0, j = 0; h < g->heads; h++)
        for (int64_t k = 0; k < g->width; k++, j++) {
            float row = 0, vector = 0;
            for (int64_t e = lo; e < hi; e++) {
                const float u = g->rows[g->indices[e] * g->cols + j] + own[j],
                            d = alpha_of(g, e)[h];
                const float low = d * s->slope, part = u > 0 ? d : low;
                row += part;
                vector += part * u;
            }
            drow[j] = by_destination ? row * s->a[j] : drow[j] + row * s->a[j];
            if (by_destination)
                da[j] += vector;
        }
}

/* score_strips computes the columns of the given vectors, strip by strip. Column j is the first
 * one. */
ALWAYS_INLINE void score_strips(int by_destination, int uniform, const scored *s, const lanes_of *v,
                                int vecs, int64_t j, int64_t lo, int64_t hi, const float *own,
                                float *drow, float *da) {
    for (int first = 0; first < vecs; first += SCORE_VECS) {
        const int n = vecs - first < SCORE_VECS ? vecs - first : SCORE_VECS;
        const int64_t at = j + (int64_t)first * LANES;
        switch (n) {
#define STRIP(n)                                                                                  \
    case n:                                                                                       \
        score_strip(by_destination, uniform, n, s, v + first, lo, hi, at, own, drow, da);         \
        break;
            STRIP(1) STRIP(2)
#if MAX_ACCUMULATORS > 4
            STRIP(3) STRIP(4)
#endif
#if MAX_ACCUMULATORS > 8
            STRIP(5) STRIP(6) STRIP(7) STRIP(8)
#endif
#undef STRIP
        }
    }
}

/* score_segments computes the gradients for the edges of each segment. own and drow have a row for
 * each segment. */
ALWAYS_INLINE void score_segments(int by_destination, const scored *s, int64_t segments,
                                  const int64_t *indptr, const float *own, float *drow, float *da) {
    const int64_t cols = s->edges.cols;
    if (cols < LANES) {
        for (int64_t d = 0; d < segments; d++)
            score_narrow(by_destination, s, indptr[d], indptr[d + 1], own + d * cols,
                         drow + d * cols, da);
        return;
    }
    const int uniform = s->edges.heads == 1 || s->edges.width % LANES == 0;
    lanes_of v[MAX_VECS];
    for (int64_t j = 0; j < cols; j += MAX_VECS * LANES) {
        const int vecs = place_vectors(v, &s->edges, j);
        for (int64_t d = 0; d < segments; d++) {
            if (uniform)
                score_strips(by_destination, 1, s, v, vecs, j, indptr[d], indptr[d + 1],
                             own + d * cols, drow + d * cols, da);
            else
                score_strips(by_destination, 0, s, v, vecs, j, indptr[d], indptr[d + 1],
                             own + d * cols, drow + d * cols, da);
        }
    }
}

void LEVEL(edge_dot_softmax_backward)(float *de, float *ddst, float *da, int64_t segments,
                                      int64_t heads, int64_t width, const int64_t *indptr,
                                      const int32_t *indices, const float *alpha, const float *src,
                                      const float *dst, const float *a, float slope) {
    const int64_t cols = heads * width;
    const scored s = {
        {heads, width, cols, indptr[segments] - 1, rows_ahead(cols * 4), indices, NULL, de, src,
         NULL},
        a,
        slope};
    memset(da, 0, (size_t)cols * sizeof *da);
    for (int64_t d = 0; d < segments; d++)
        for (int64_t h = 0; h < heads; h += LANES) {
            const int64_t at = indptr[d] * heads + h;
            score_gradients(de + at, alpha + at, indptr[d + 1] - indptr[d], heads,
                            strip_of(heads, h), NULL);
        }
    score_segments(1, &s, segments, indptr, dst, ddst, da);
}

void LEVEL(edge_dot_collect)(float *dsrc, int64_t segments, int64_t heads, int64_t width,
                             const int64_t *t_indptr, const int32_t *t_indices,
                             const int32_t *t_edges, const float *de, const float *src,
                             const float *dst, const float *a, float slope) {
    const int64_t cols = heads * width;
    const scored s = {{heads, width, cols, t_indptr[segments] - 1, rows_ahead(cols * 4), t_indices,
                       t_edges, de, dst, NULL},
                      a,
                      slope};
    score_segments(0, &s, segments, t_indptr, src, dsrc, NULL);
}
