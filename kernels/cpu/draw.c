/*
 * Draws the neighbours with the smallest random numbers. Every neighbour of a row is looked at
 * once: its number is read and compared with a bound, and the neighbour is kept, without a branch,
 * if the number is below. The bound is such that a row nearly always keeps enough neighbours, and
 * not many more. Each neighbour that is kept is then ranked by counting the smaller numbers. This
 * choice has branches that depend on how many were kept. So a whole group of rows is read first,
 * and then the choices are made: no branch has to wait for a row or a number, and cache misses
 * overlap.
 */
#include <math.h>

#include "simd.h"

/* Number of rows that are prefetched: few enough that they stay in the first-level cache. */
#define ROWS_AHEAD 16
/* How many bytes of a row are prefetched; in longer rows the processor itself reads ahead. */
#define PREFETCHED 1024
/* Most rows have at most this many bytes. So the first USUAL bytes of every row are prefetched
 * without a branch on the length. */
#define USUAL 256

/* Read table[at[0]], table[at[1]], ... by 4 or 8 separate reads. Some processors split the gather
 * instruction into reads; there this is several times as fast. On other processors it is no
 * slower. */
ALWAYS_INLINE __m128i read_four(const uint32_t *table, const int32_t *at) {
    const __m128i one = _mm_cvtsi32_si128((int)table[at[0]]);
    const __m128i two = _mm_insert_epi32(one, (int)table[at[1]], 1);
    return _mm_insert_epi32(_mm_insert_epi32(two, (int)table[at[2]], 2), (int)table[at[3]], 3);
}
ALWAYS_INLINE __m256i read_eight(const uint32_t *table, const int32_t *at) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(read_four(table, at)),
                                   read_four(table, at + 4), 1);
}

#if LANES == 16
typedef __m512i ints;
typedef __mmask16 lanes;

ALWAYS_INLINE ints each(uint32_t x) { return _mm512_set1_epi32((int)x); }
ALWAYS_INLINE lanes first(int64_t n) { return n < 16 ? (lanes)((1u << n) - 1) : (lanes)0xFFFF; }
ALWAYS_INLINE ints load_lanes(const int32_t *p, lanes of) {
    return _mm512_maskz_loadu_epi32(of, p);
}
ALWAYS_INLINE void store_ints(uint32_t *p, ints x) { _mm512_storeu_si512(p, x); }
ALWAYS_INLINE lanes at_most(ints x, ints y) { return _mm512_cmple_epu32_mask(x, y); }
/* keys turns numbers into words that this SIMD level compares fastest. The words have the order of
 * the numbers. */
ALWAYS_INLINE ints keys(ints numbers) { return numbers; }
ALWAYS_INLINE lanes key_at_most(ints x, ints y) { return at_most(x, y); }
ALWAYS_INLINE ints gather(const void *table, ints at, lanes of) {
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), of, at, table, 4);
}
/* keep stores the lanes of x for which `of` is set, one after the other. It compresses them in a
 * register first, because a masked store takes far longer. */
ALWAYS_INLINE void keep(uint32_t *p, ints x, lanes of) {
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(of, x));
}
ALWAYS_INLINE ints iota(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
ALWAYS_INLINE ints read_all(const uint32_t *table, const int32_t *at) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(read_eight(table, at)),
                              read_eight(table, at + 8), 1);
}
ALWAYS_INLINE ints plus(ints x, ints y) { return _mm512_add_epi32(x, y); }
/* Returns count + 1 where the key x is less than y, and count elsewhere. */
ALWAYS_INLINE ints count_less(ints count, ints x, ints y) {
    return _mm512_mask_add_epi32(count, _mm512_cmplt_epu32_mask(x, y), count, each(1));
}

ALWAYS_INLINE ints widen_low(ints x) { return _mm512_cvtepu32_epi64(_mm512_castsi512_si256(x)); }
ALWAYS_INLINE ints widen_high(ints x) {
    return _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(x, 1));
}
/* Returns the high halves of the words of x, then those of y. */
ALWAYS_INLINE ints high_halves(ints x, ints y) {
    const ints odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_epi32(x, odd, y);
}
ALWAYS_INLINE ints words(uint64_t x) { return _mm512_set1_epi64((int64_t)x); }
ALWAYS_INLINE ints times(ints x, uint64_t y) { return _mm512_mullo_epi64(x, words(y)); }
ALWAYS_INLINE ints times_low(ints x, ints y) { return _mm512_mul_epu32(x, y); }
ALWAYS_INLINE ints xor(ints x, ints y) { return _mm512_xor_si512(x, y); }
#define shift(x, bits) _mm512_srli_epi64(x, bits)
/* Returns x where a + b >= c, and y elsewhere. All words are below 2^63. */
ALWAYS_INLINE ints where_reached(ints a, ints b, ints c, ints x, ints y) {
    return _mm512_mask_blend_epi64(_mm512_cmpge_epu64_mask(_mm512_add_epi64(a, b), c), y, x);
}
#else
typedef __m256i ints;
typedef unsigned lanes;

/* For a mask of kept lanes: the number of the lane from which each kept lane comes, a byte for
 * each. */
#define FROM(m, k) \
    ((uint64_t)((m) >> (k) & 1) * (k) << 8 * __builtin_popcount((m) & ((1 << (k)) - 1)))
#define KEPT(m) \
    FROM(m, 0) | FROM(m, 1) | FROM(m, 2) | FROM(m, 3) | \
    FROM(m, 4) | FROM(m, 5) | FROM(m, 6) | FROM(m, 7)
#define KEPT4(m) KEPT(m), KEPT(m + 1), KEPT(m + 2), KEPT(m + 3)
#define KEPT16(m) KEPT4(m), KEPT4(m + 4), KEPT4(m + 8), KEPT4(m + 12)
#define KEPT64(m) KEPT16(m), KEPT16(m + 16), KEPT16(m + 32), KEPT16(m + 48)
static const uint64_t kept[256] = {KEPT64(0), KEPT64(64), KEPT64(128), KEPT64(192)};

ALWAYS_INLINE ints each(uint32_t x) { return _mm256_set1_epi32((int)x); }
ALWAYS_INLINE ints iota(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
ALWAYS_INLINE ints read_all(const uint32_t *table, const int32_t *at) {
    return read_eight(table, at);
}
ALWAYS_INLINE ints plus(ints x, ints y) { return _mm256_add_epi32(x, y); }
ALWAYS_INLINE lanes first(int64_t n) { return n < 8 ? (1u << n) - 1 : 0xFF; }
ALWAYS_INLINE ints spread(lanes of) {
    const ints bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(each(of), bits), bits);
}
ALWAYS_INLINE ints load_lanes(const int32_t *p, lanes of) {
    return of == 0xFF ? _mm256_loadu_si256((const void *)p) : _mm256_maskload_epi32(p, spread(of));
}
ALWAYS_INLINE void store_ints(uint32_t *p, ints x) { _mm256_storeu_si256((void *)p, x); }
ALWAYS_INLINE lanes at_most(ints x, ints y) {
    const ints is = _mm256_cmpeq_epi32(_mm256_min_epu32(x, y), x);
    return (lanes)_mm256_movemask_ps(_mm256_castsi256_ps(is));
}
/* AVX2 compares signed words only, so the top bit is inverted. */
ALWAYS_INLINE ints keys(ints numbers) { return _mm256_xor_si256(numbers, each(1u << 31)); }
ALWAYS_INLINE lanes key_at_most(ints x, ints y) {
    return ~(lanes)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(x, y)));
}
ALWAYS_INLINE ints gather(const void *table, ints at, lanes of) {
    return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), table, at, spread(of), 4);
}
ALWAYS_INLINE void keep(uint32_t *p, ints x, lanes of) {
    const ints from = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)&kept[of]));
    _mm256_storeu_si256((void *)p, _mm256_permutevar8x32_epi32(x, from));
}
ALWAYS_INLINE ints count_less(ints count, ints x, ints y) {
    return _mm256_sub_epi32(count, _mm256_cmpgt_epi32(y, x));
}

ALWAYS_INLINE ints widen_low(ints x) { return _mm256_cvtepu32_epi64(_mm256_castsi256_si128(x)); }
ALWAYS_INLINE ints widen_high(ints x) {
    return _mm256_cvtepu32_epi64(_mm256_extracti128_si256(x, 1));
}
ALWAYS_INLINE ints high_halves(ints x, ints y) {
    const __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), 0xDD);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(odd), 0xD8);
}
ALWAYS_INLINE ints words(uint64_t x) { return _mm256_set1_epi64x((int64_t)x); }
ALWAYS_INLINE ints times_low(ints x, ints y) { return _mm256_mul_epu32(x, y); }
ALWAYS_INLINE ints xor(ints x, ints y) { return _mm256_xor_si256(x, y); }
#define shift(x, bits) _mm256_srli_epi64(x, bits)
ALWAYS_INLINE ints times(ints x, uint64_t y) {
    const ints cross = _mm256_add_epi64(times_low(shift(x, 32), words(y)),
                                        times_low(x, words(y >> 32)));
    return _mm256_add_epi64(times_low(x, words(y)), _mm256_slli_epi64(cross, 32));
}
ALWAYS_INLINE ints where_reached(ints a, ints b, ints c, ints x, ints y) {
    return _mm256_blendv_epi8(x, y, _mm256_cmpgt_epi64(c, _mm256_add_epi64(a, b)));
}
#endif

ALWAYS_INLINE ints mix(ints x) {
    x = times(xor(x, shift(x, 30)), HALOGNN_MIX_1);
    x = times(xor(x, shift(x, 27)), HALOGNN_MIX_2);
    return xor(x, shift(x, 31));
}

/* Returns the words whose high halves are the random numbers of the vertices id. */
ALWAYS_INLINE ints number_words(const halognn_numbers *of, ints id) {
    ints word = words(of->now);
    if (of->turn > 0) {
        const ints phase = shift(mix(xor(words(of->phases), id)), 32);
        word = where_reached(shift(times_low(phase, words(of->lasts)), 32), words(of->turn),
                             words(of->lasts), words(of->next), word);
    }
    return mix(xor(word, id));
}

ALWAYS_INLINE ints numbers_of(const halognn_numbers *of, ints id) {
    return high_halves(number_words(of, widen_low(id)), number_words(of, widen_high(id)));
}

/* The candidates of a row are followed by keys larger than any other, up to a multiple of LANES. */
#define ROOM (HALOGNN_CANDIDATES + 2 * LANES)
#define GROUP 32  /* number of rows that are read before choices are made */
#define HELD 1024 /* candidates of a group; the last row may exceed it */

/* The neighbours that are kept from the rows of a group. */
typedef struct {
    uint32_t key[HELD + ROOM], vertex[HELD + ROOM], place[HELD + ROOM];
} kept_rows;

/* Keeps the keys of a row that are at most bound: it writes them to c from position at on, with
 * their vertices and, if places is set, their places in the row. Returns how many there are, or -1
 * if there are too many or a neighbour is no vertex. The memory from row on has `readable` vertices
 * that may be read. */
ALWAYS_INLINE int64_t candidates(kept_rows *c, int64_t at, int places, const int32_t *row,
                                 int64_t n, int64_t readable, uint32_t bound,
                                 const halognn_numbers *of) {
    const ints last = each((uint32_t)of->vertices - 1), limit = keys(each(bound));
    int64_t m = 0;
    for (int64_t k = 0; k < n; k += LANES) {
        const lanes here = first(n - k);
        const int whole = readable - k >= LANES;
        const ints u = load_lanes(row + k, whole ? first(LANES) : here);
        const lanes vertices = at_most(u, last);
        if (m > HALOGNN_CANDIDATES || (vertices & here) != here)
            return -1;
        const ints r = keys(!of->table ? numbers_of(of, gather(of->original, u, here))
                            : whole && vertices == first(LANES) ? read_all(of->table, row + k)
                                                                : gather(of->table, u, here));
        const lanes low = key_at_most(r, limit) & here;
        keep(c->key + at + m, r, low);
        keep(c->vertex + at + m, u, low);
        if (places)
            keep(c->place + at + m, plus(iota(), each((uint32_t)k)), low);
        m += __builtin_popcount(low);
    }
    return m > HALOGNN_CANDIDATES ? -1 : m;
}

/* Keeps the vertices of the f smallest of the m keys of c from position at on and, unless place is
 * NULL, their places. Returns how many it keeps: more than f if several keys equal the largest one
 * kept. It ranks w vectors of keys at a time. */
ALWAYS_INLINE int64_t choose_by(uint32_t *vertex, uint32_t *place, const kept_rows *c, int64_t at,
                                int64_t m, int64_t f, int64_t w) {
    int64_t n = 0;
    for (int64_t i = at; i < at + m; i += w * LANES) {
        ints mine[3], smaller[3];
        UNROLL for (int v = 0; v < w; v++) {
            mine[v] = load_lanes((const int32_t *)c->key + i + v * LANES, first(LANES));
            smaller[v] = each(0);
        }
        for (int64_t j = at; j < at + m; j += LANES)
            UNROLL for (int k = 0; k < LANES; k++) {
                const ints one = each(c->key[j + k]);
                UNROLL for (int v = 0; v < w; v++)
                    smaller[v] = count_less(smaller[v], one, mine[v]);
            }
        UNROLL for (int v = 0; v < w; v++) {
            const int64_t from = i + v * LANES;
            const lanes is = at_most(smaller[v], each((uint32_t)f - 1)) & first(at + m - from);
            keep(vertex + n, load_lanes((const int32_t *)c->vertex + from, first(LANES)), is);
            if (place)
                keep(place + n, load_lanes((const int32_t *)c->place + from, first(LANES)), is);
            n += __builtin_popcount(is);
        }
    }
    return n;
}

ALWAYS_INLINE int64_t choose(uint32_t *vertex, uint32_t *place, const kept_rows *c, int64_t at,
                             int64_t m, int64_t f) {
    switch ((m - 1) / LANES) {
    case 1:
        return choose_by(vertex, place, c, at, m, f, 2);
    case 2:
        return choose_by(vertex, place, c, at, m, f, 3);
    }
    return choose_by(vertex, place, c, at, m, f, 1);
}

/* Prefetches the beginning of a row. The row may lie outside of indices, so its address is computed
 * as a number, not as a pointer. */
ALWAYS_INLINE void prefetch_begin(const int32_t *indices, int64_t begin, int64_t degree) {
    const char *const row = (const char *)((uintptr_t)indices + (uintptr_t)begin * 4);
    const uintptr_t last = (uintptr_t)degree * 4 - 1;
    UNROLL for (uintptr_t b = 0; b < USUAL; b += CACHE_LINE)
        __builtin_prefetch((const char *)((uintptr_t)row + (b < last ? b : last)));
    if (last >= USUAL)
        prefetch_row((const char *)((uintptr_t)row + USUAL),
                     (int64_t)(last < PREFETCHED ? last : PREFETCHED) - USUAL);
}

ALWAYS_INLINE int64_t draw_rows(int32_t *drawn, int64_t room, int64_t *positions, int64_t n,
                                const int64_t *begin, const int64_t *degree, int64_t fanout,
                                const int32_t *indices, int64_t edges,
                                const halognn_numbers *of) {
    kept_rows kept_here;
    uint32_t vertex[ROOM], place[ROOM];
    int64_t found[GROUP];
    /* the bound: few numbers are below it, and in one row of a hundred too few are */
    const double share = ((double)fanout + 2 * sqrt((double)fanout) + 2) * 4294967296.0;
    int64_t i = 0;
    for (int stop = 0; i < n && !stop;) {
        int64_t end = i, free = room;
        for (int64_t at = 0; end < n && end < i + GROUP && at < HELD; end++) {
            const int64_t d = degree[end], ahead = end + ROWS_AHEAD;
            if (ahead < n)
                prefetch_begin(indices, begin[ahead], degree[ahead]);
            free -= d < fanout ? d : fanout;
            if ((stop = begin[end] < 0 || d < 0 || begin[end] > edges - d || free < 0))
                break;
            if (d <= fanout)
                continue;
            double bound = share / (double)d;
            int64_t m;
            do {
                m = candidates(&kept_here, at, positions != NULL, indices + begin[end], d,
                               edges - begin[end],
                               bound < 4294967295.0 ? (uint32_t)bound : UINT32_MAX, of);
                bound *= 2;
            } while (m >= 0 && m < fanout);
            if ((stop = m < 0))
                break;
            store_ints(kept_here.key + at + m, keys(each(UINT32_MAX)));
            found[end - i] = m;
            at += (m + LANES - 1) / LANES * LANES;
        }
        for (int64_t at = 0, first_row = i; i < end; i++) {
            const int64_t d = degree[i], m = d < fanout ? d : fanout, k = i - first_row;
            if (d > fanout) {
                if (choose(vertex, positions ? place : NULL, &kept_here, at, found[k], fanout) !=
                    fanout) {
                    stop = 1;
                    break;
                }
                at += (found[k] + LANES - 1) / LANES * LANES;
            }
            memcpy(drawn, d > fanout ? (const int32_t *)vertex : indices + begin[i], (size_t)m * 4);
            if (positions)
                for (int64_t k = 0; k < m; k++)
                    positions[k] = begin[i] + (d > fanout ? place[k] : k);
            drawn += m, room -= m;
            if (positions)
                positions += m;
        }
    }
    return i;
}

void LEVEL(draw_least)(int64_t *done, int32_t *drawn, int64_t room, int64_t *positions, int64_t n,
                       const int64_t *begin, const int64_t *degree, int64_t fanout,
                       const int32_t *indices, int64_t edges, halognn_numbers of) {
    *done = positions ? draw_rows(drawn, room, positions, n, begin, degree, fanout, indices, edges,
                                  &of)
                      : draw_rows(drawn, room, NULL, n, begin, degree, fanout, indices, edges, &of);
}
#undef shift
