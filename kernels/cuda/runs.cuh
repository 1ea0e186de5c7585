// Sums over neighbouring segments. Most transposed segments have one edge or none: a thread that
// took one alone would have little in flight. It takes a run of S segments instead. Their edges lie
// one after another, and it reads the next ones together, whichever segments they belong to.
#pragma once

#include "rows.cuh"

namespace halognn {

// S is SEGMENTS, or 1 if fewer than c->large blocks would have so many.
constexpr int SEGMENTS = 4;

// by_segments calls f with S as a constant, and the grid.
template <typename F>
int by_segments(const halognn_cuda *c, int64_t segments, int64_t cols, int n, const F &f) {
    const dim3 grid = grid_of(segments, cols, n, SEGMENTS);
    if (int64_t{grid.x} * grid.y >= c->large)
        return f(std::integral_constant<int, SEGMENTS>{}, grid);
    return f(std::integral_constant<int, 1>{}, grid_of(segments, cols, n));
}

// along goes over the S segments from number first on, in order, and over the edges of each: at =
// find(e) is what is read of edge e before all else, and x = read(e, at) what depends on it. It
// calls add(x) for each edge, and end(segment) after the last edge of a segment. Arrays have an
// unused element more than segments: GCC 12, which compiles the emulation, breaks off at arrays of
// one element. A run has fewer than 2^31 edges: distances from the first of them are of 32 bits.
template <int S, typename Find, typename Read, typename Add, typename End>
__device__ inline void along(int64_t first, int64_t segments, const int64_t *indptr,
                             const Find &find, const Read &read, const Add &add, const End &end) {
    constexpr int FLIGHT = S > 1 ? 2 * S : 4; // edges that are read before the first is added
    const int64_t base = indptr[first];
    int ends[S + 1]; // of the segments that are left
#pragma unroll
    for (int s = 0; s < S; s++) {
        const int64_t last = first + s < segments ? first + s + 1 : segments;
        ends[s] = static_cast<int>(indptr[last] - base);
    }
    const int edges = ends[S - 1];
    int64_t segment = first;
    const auto next = [&] {
        end(segment++);
#pragma unroll
        for (int s = 0; s + 1 < S; s++) ends[s] = ends[s + 1];
    };
    for (int e = 0; e < edges; e += FLIGHT) {
        decltype(find(base)) at[FLIGHT];
        decltype(read(base, at[0])) x[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) // past the end, read the last edge again
            at[k] = find(base + (e + k < edges ? e + k : edges - 1));
#pragma unroll
        for (int k = 0; k < FLIGHT; k++)
            x[k] = read(base + (e + k < edges ? e + k : edges - 1), at[k]);
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (e + k >= edges) break;
            while (S > 1 && e + k == ends[0]) next();
            add(x[k]);
        }
    }
    const int64_t all = first + S < segments ? first + S : segments;
    while (segment < all) next();
}

}  // namespace halognn
