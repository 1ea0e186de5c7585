// The mapping of rows to threads. Neighbouring threads share a row, and each has a pack of up to 16
// bytes. A row that is wider than the packs of a warp is cut into strips of that width. Narrow rows
// share a warp.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "context.cuh"

namespace halognn {

// place has the first row and the first column of a thread, in a grid of rows and strips.
struct place {
    int64_t row, col;
};
__device__ inline place my_place(int lanes, int n) {
    const int per_block = blockDim.x / lanes, mine = threadIdx.x / lanes;
    place p{static_cast<int64_t>(blockIdx.x) * per_block + mine,
            (static_cast<int64_t>(blockIdx.y) * lanes + threadIdx.x % lanes) * n};
    // this thread is left over, because the lanes do not divide the block
    if (mine >= per_block) p.row = INT64_MAX;
    return p;
}

// grid_of returns the grid of a kernel over rows and strips. A pack has n elements, and each thread
// computes per_thread rows.
inline dim3 grid_of(int64_t rows, int64_t cols, int n, int per_thread = 1) {
    const int l = lanes(cols, n);
    return blocks(ceil_div(rows, per_thread), BLOCK / l,
                  static_cast<unsigned>(ceil_div(cols, static_cast<int64_t>(l) * n)));
}

// array describes an array of any type, or a matrix.
struct array {
    const void *p;
    int size; // bytes of an element
    int64_t stride = 0;
    template <typename T>
    array(const T *p) : p(p), size(sizeof(T)) {}
    array(const halognn_cuda_matrix &m)
        : p(m.of), size(m.bf16 ? sizeof(bf16) : sizeof(float)), stride(m.stride) {}
};

// all_fit reports whether rows of the given width can be read in packs of n in every array of the
// list all.
inline bool all_fit(int64_t width, std::initializer_list<array> all, int n) {
    bool fit = true;
    for (const array &a : all) fit = fit && a.stride % n == 0 && fits(a.p, width, a.size, n);
    return fit;
}

// in_packs calls f with the largest size of packs that fits, 4 or 1. in_even_packs calls it with 4,
// 2 or 1.
template <typename F>
int in_packs(int64_t width, std::initializer_list<array> all, const F &f) {
    if (all_fit(width, all, 4)) return f(std::integral_constant<int, 4>{});
    return f(std::integral_constant<int, 1>{});
}
template <typename F>
int in_even_packs(int64_t width, std::initializer_list<array> all, const F &f) {
    if (all_fit(width, all, 4) || !all_fit(width, all, 2)) return in_packs(width, all, f);
    return f(std::integral_constant<int, 2>{});
}

}  // namespace halognn
