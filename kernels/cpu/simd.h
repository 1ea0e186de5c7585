/*
 * Used by all sources with vector code. These are compiled once for each SIMD level: with LANES 8
 * for avx2, and with LANES 16 for avx512. Every function is compiled for the instructions of its
 * level, whatever the compiler flags are. The arithmetic uses GCC's vector types, without fused
 * multiply-adds, so that every level rounds alike.
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
/* For builds whose speed does not matter: it makes a fifth of the code. */
#ifdef HALOGNN_SHORT_STRIPS
#undef MAX_ACCUMULATORS
#define MAX_ACCUMULATORS 4
#endif

#define ALWAYS_INLINE TARGET static inline __attribute__((always_inline))
/* UNROLL unrolls a loop, so that its arrays of vectors stay in registers. INDEPENDENT says that
 * iteration j uses only index j of the arrays. The compiler may then vectorise a loop in which an
 * output array is also an input. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
/* The alignment is 1 byte, because a float32 row may lie between int8 rows. */
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

/* Rounds v to bfloat16 as halognn_bf16 does, and stores it. The instruction of AVX512-BF16 would
 * turn subnormal numbers into zero. */
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

/* A vector of int16, twice as many as a vec has lanes. */
typedef int16_t shorts __attribute__((vector_size(4 * LANES), aligned(2), may_alias));

ALWAYS_INLINE shorts load_bytes(const int8_t *p) {
#if LANES == 16
    return (shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
#else
    return (shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
#endif
}

/* Each scattered row costs a memory latency unless several reads overlap. Prefetching AHEAD_BYTES
 * bytes ahead keeps the core busy with reads, and rows are not evicted from the first-level cache
 * before they are used. */
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
