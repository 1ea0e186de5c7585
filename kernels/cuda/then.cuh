// The epilogue of a sum, element by element: an addend, an activation and dropout. Also its
// backward pass. Kernels apply them while they have an element in a register.
#pragma once

#include "exp.cuh"
#include "reduce.cuh"
#include "stored.cuh"

namespace halognn {

__device__ inline uint64_t mix64(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// row_bits and bits are compute.DropoutKey.Row(vertex) and .Bits(column).
__device__ inline uint64_t row_bits(uint64_t key, int32_t vertex) {
    return mix64(key + 0x9e3779b97f4a7c15ull *
                           (static_cast<uint64_t>(static_cast<uint32_t>(vertex)) + 1));
}
__device__ inline uint32_t bits(uint64_t row, uint32_t column) {
    uint32_t x = static_cast<uint32_t>(row) + column * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15 ^ static_cast<uint32_t>(row >> 32);
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

// drawn returns the hash from which the dropout of row r is drawn. It returns 0 if there is no
// dropout.
__device__ inline uint64_t drawn(const halognn_cuda_then &then, int64_t r) {
    return then.threshold > 0 ? row_bits(then.key, then.vertices[r]) : 0;
}

__device__ inline bool drops(const halognn_cuda_then &then, uint64_t row, int64_t column) {
    return then.threshold > 0 && bits(row, static_cast<uint32_t>(column)) < then.threshold;
}

// follow applies activation and dropout to x, the complete sum, and rounds it. The state of the
// row's random draws (`row`) is drawn(r).
__device__ inline float follow(const halognn_cuda_then &then, float x, uint64_t row,
                                int64_t column) {
    if (then.activation == HALOGNN_RELU) x = x < 0 ? 0 : x * then.scale;
    if (then.activation == HALOGNN_ELU) x = (x > 0 ? x : exact_exp(x) - 1.0f) * then.scale;
    if (drops(then, row, column)) x = 0;
    if (then.dropped > 0) {
        const uint32_t bits = rounded(x, then.dropped);
        memcpy(&x, &bits, sizeof x);
    }
    return x;
}

// follow_back returns the gradient with respect to x from dy, the gradient with respect to y =
// follow(x). With ReLU, a dropped element is 0 in y, so only ELU needs the state of the row's
// random draws (`row`).
__device__ inline float follow_back(const halognn_cuda_then &then, float dy, float y, uint64_t row,
                                 int64_t column) {
    if (then.activation == HALOGNN_RELU) return y > 0 ? dy * then.scale : 0;
    if (then.activation != HALOGNN_ELU) return dy;
    return drops(then, row, column) ? 0 : dy * (y > 0 ? then.scale : y + then.scale);
}

// drawn_back returns what drawn returns, if follow_back needs it; otherwise 0.
__device__ inline uint64_t drawn_back(const halognn_cuda_then &then, int64_t r) {
    return then.activation == HALOGNN_ELU ? drawn(then, r) : 0;
}

// sum_back sums a column over the rows r of a chunk. It backpropagates dy through the epilogue to a
// gradient d, and adds of(d, more(r)). The function more loads READS other numbers of row r. If
// keep is true, d replaces dy, rounded to the type of dy.
template <int READS, typename D, typename Y, typename More, typename Of>
__device__ inline auto sum_back(D *dy, const Y *y, const halognn_cuda_then &then, bool keep,
                                const in_chunk &in, int64_t j, const More &more, const Of &of) {
    using M = decltype(more(0));
    struct sum {
        D d;
        M more;
    };
    struct followed {
        D d;
        Y y;
        M more;
    };
    dy += in.at;
    if (then.activation == 0)
        return sum_in_order<READS + 1>(
            in.rows, [=](int r) { return sum{dy[r * in.cols], more(r)}; },
            [=](int, const sum &v) { return of(to_float(v.d), v.more); });
    y += in.at;
    return sum_in_order<READS + 2>(
        in.rows, [=](int r) { return followed{dy[r * in.cols], y[r * in.cols], more(r)}; },
        [=](int r, const followed &v) {
            const float d = follow_back(then, to_float(v.d), to_float(v.y),
                                        drawn_back(then, in.first + r), j);
            if (keep) put<1>(dy + r * in.cols, {d});
            return of(d, v.more);
        });
}

// in_place says whether the backward pass of a norm overwrites dy, of type D, with the gradient
// before the epilogue. A dy of bfloat16 is not overwritten; it is backpropagated through the
// epilogue twice instead.
template <typename D>
constexpr bool in_place = std::is_same_v<D, float>;

}  // namespace halognn
