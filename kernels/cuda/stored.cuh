// Matrices of float32 or bfloat16. Most kernels test the type of a matrix when they read or write a
// pack. This is cheap, because the answer is the same in all threads. Kernels that must issue
// several loads without a test in between are compiled for each type instead (by_type).
#pragma once

#include <type_traits>

#include "rounded.cuh"

namespace halognn {

// put writes a pack of numbers to a matrix, rounded to its type.
template <int N>
__device__ inline void put(float *to, const pack<float, N> &v) {
    store<float, N>(to, v);
}
template <int N>
__device__ inline void put(bf16 *to, const pack<float, N> &v) {
    if constexpr (N == 1) {
        to->bits = static_cast<uint16_t>(rounded(v.at[0], 16) >> 16);
    } else {
        pack<uint32_t, N / 2> words;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            words.at[i] = rounded(v.at[2 * i], 16) >> 16 | rounded(v.at[2 * i + 1], 16);
        store<uint32_t, N / 2>(reinterpret_cast<uint32_t *>(to), words);
    }
}
template <int N>
__device__ inline void put(const halognn_cuda_matrix &m, int64_t at, const pack<float, N> &v) {
    if (m.bf16)
        put<N>(static_cast<bf16 *>(m.of) + at, v);
    else
        put<N>(static_cast<float *>(m.of) + at, v);
}

// hold reads the bits of a pack in a matrix, and widen converts these to numbers. Between the two
// calls, other loads can be issued.
template <int N>
__device__ inline pack<uint32_t, N> hold(const halognn_cuda_matrix &m, int64_t at) {
    if (!m.bf16) return load<uint32_t, N>(static_cast<const uint32_t *>(m.of) + at);
    const uint16_t *from = static_cast<const uint16_t *>(m.of) + at;
    pack<uint32_t, N> words{};
    if constexpr (N == 1) {
        words.at[0] = load<uint16_t, 1>(from).at[0];
    } else {
        const auto half = load<uint32_t, N / 2>(reinterpret_cast<const uint32_t *>(from));
#pragma unroll
        for (int i = 0; i < N / 2; i++) words.at[i] = half.at[i];
    }
    return words;
}
template <int N>
__device__ inline pack<float, N> widen(const halognn_cuda_matrix &m,
                                       const pack<uint32_t, N> &words) {
    pack<float, N> v;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t pair = words.at[i / 2],
                       bits = !m.bf16 ? words.at[i] : i % 2 ? pair >> 16 << 16 : pair << 16;
        memcpy(&v.at[i], &bits, sizeof bits);
    }
    return v;
}
template <int N>
__device__ inline pack<float, N> take(const halognn_cuda_matrix &m, int64_t at) {
    return widen<N>(m, hold<N>(m, at));
}

// by_type calls f with the address of a matrix, as a pointer to its type.
template <typename F>
int by_type(const halognn_cuda_matrix &m, const F &f) {
    return m.bf16 ? f(static_cast<bf16 *>(m.of)) : f(static_cast<float *>(m.of));
}
template <typename F>
int by_types(const halognn_cuda_matrix &a, const halognn_cuda_matrix &b, const F &f) {
    return by_type(a, [&](auto *of_a) {
        return by_type(b, [&](auto *of_b) { return f(of_a, of_b); });
    });
}

}  // namespace halognn
