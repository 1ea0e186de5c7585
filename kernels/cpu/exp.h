/* exp in float32, computed only by additions and multiplications, so that every SIMD level and a
 * GPU give the same bits. exp(x) = 2^n * exp(r), where n is the integer nearest to x / ln 2, so |r|
 * <= ln 2 / 2. The error is at most 2 ulp for x between -87 and 88. Outside of this range the
 * result is constant. NaN stays NaN. There are no branches, so compilers vectorise loops over it.
 * The polynomial is that of Cephes (S. Moshier). */
#ifndef HALOGNN_EXP_H
#define HALOGNN_EXP_H

#include <stdint.h>
#include <string.h>

#include "kernels.h" /* for its pragma: no fused multiply-adds */

static inline float halognn_exp(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    /* adding 1.5 * 2^23 rounds to an integer, n, in the low bits */
    const float shifted = x * 1.44269504088896341f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    /* ln 2 as the sum of two numbers, for precision. */
    const float r = x - n * 0.693359375f - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* Multiplies p by 2^n. Adding n to the exponent bits of p instead would turn a GPU's NaN,
     * 0x7fffffff, into a number. */
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
