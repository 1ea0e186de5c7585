/*
 * Shared by the vector sources, which are compiled once per level: with LANES 8, avx2, and with
 * LANES 16, avx512. A function is compiled for the instructions of its level, whatever the flags
 * are. GCC's vector types do the arithmetic; there are no fused multiply-adds, so that every level
 * rounds alike.
 */
#ifndef HALOGNN_SIMD_H
#define HALOGNN_SIMD_H

#include <immintrin.h>
#include <string.h>

#include "half.h"
#include "kernels.h"

#ifdef __clang__
#define WIDE
#else
#define WIDE ",prefer-vector-width=512"
#endif
#if LANES == 16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c" WIDE)))
#define LEVEL(name) TARGET name##_avx512
#define MAX_ACCUMULATORS 16 /* half of the 32 registers */
#else
#define TARGET __attribute__((target("avx2,f16c")))
#define LEVEL(name) TARGET name##_avx2
#define MAX_ACCUMULATORS 8 /* half of the 16 registers */
#endif
#ifdef HALOGNN_SHORT_STRIPS /* a build whose speed does not matter: a fifth of the code */
#undef MAX_ACCUMULATORS
#define MAX_ACCUMULATORS 4
#endif

#define ALWAYS_INLINE TARGET static inline __attribute__((always_inline))
/* UNROLL keeps arrays of vectors in registers. INDEPENDENT says that iteration j touches only index
 * j of the arrays, so that an output may be an input. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
/* Aligned to 1 byte: a float32 row may lie among int8 rows. */
typedef float unaligned_vec __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

ALWAYS_INLINE vec load(const float *p) { return *(const unaligned_vec *)p; }
ALWAYS_INLINE void store(float *p, vec v) { *(unaligned_vec *)p = v; }

ALWAYS_INLINE vec load_half(const uint16_t *p) {
#if LANES == 16
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#else
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#endif
}

ALWAYS_INLINE vec load_byte(const int8_t *p) {
#if LANES == 16
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#else
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#endif
}

ALWAYS_INLINE vec load_short(const int16_t *p) {
#if LANES == 16
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p)));
#else
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p)));
#endif
}

typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));

ALWAYS_INLINE vec load_bf16(const uint16_t *p) {
#if LANES == 16
    const uvec x = (uvec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
#else
    const uvec x = (uvec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
#endif
    return (vec)(x << 16);
}

/* As halognn_bf16 rounds. The instruction of AVX512-BF16 would flush small numbers to zero. */
ALWAYS_INLINE void store_bf16(uint16_t *p, vec v) {
    const uvec x = (uvec)v, number = (uvec)(v == v);
    const uvec r = ((number & (x + 0x7fff + (x >> 16 & 1))) | (~number & (x | 0x400000))) >> 16;
#if LANES == 16
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)r));
#else
    const __m256i halves = _mm256_packus_epi32((__m256i)r, (__m256i)r);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 8)));
#endif
}

/* Twice as many int16 as a vector has lanes. */
typedef int16_t shorts __attribute__((vector_size(4 * LANES), aligned(2), may_alias));

ALWAYS_INLINE shorts load_bytes(const int8_t *p) {
#if LANES == 16
    return (shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
#else
    return (shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
#endif
}

/* Scattered rows cost a memory latency each unless several reads overlap. Prefetching this many
 * bytes ahead keeps the line-fill buffers of a core busy without evicting rows from L1 before they
 * are read. */
#define AHEAD_BYTES 4096
#define CACHE_LINE 64

/* rows_ahead returns how many rows ahead of the current one to prefetch. */
ALWAYS_INLINE int64_t rows_ahead(int64_t row_bytes) {
    const int64_t rows = AHEAD_BYTES / (row_bytes > 0 ? row_bytes : 1);
    return rows < 2 ? 2 : rows > 16 ? 16 : rows;
}

ALWAYS_INLINE void prefetch_row(const void *row, int64_t row_bytes) {
    for (int64_t b = 0; b < row_bytes; b += CACHE_LINE)
        __builtin_prefetch((const char *)row + b);
}

#endif
