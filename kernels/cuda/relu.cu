// The epilogue of a sum, in one pass: bias, an addend, ReLU or ELU, and dropout. Also its backward
// pass, with the gradient of the bias. A thread has neighbouring elements of one row, so that it
// needs one division and one hash for all of them. For each element they would take longer than the
// memory access.
#include "rows.cuh"
#include "then.cuh"

namespace halognn {
namespace {

// Computes y as the epilogue of x + bias. The arrays bias [cols] and then.add [rows,cols] may be
// absent.
template <int N>
__global__ void epilogue_kernel(halognn_cuda_matrix y, int64_t rows, int64_t cols, int lanes,
                                const float *x, const float *bias, halognn_cuda_then then) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    const int64_t at = p.row * cols + p.col;
    pack<float, N> v = load<float, N>(x + at), b{}, a{};
    if (bias) b = load<float, N>(bias + p.col);
    if (then.add.of) a = take<N>(then.add, place_in(then.add, cols, p.row, p.col));
    const uint64_t row = drawn(then, p.row);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float x = v.at[i]; // an absent array is not added as 0, because this would change -0
        if (bias) x += b.at[i];
        if (then.add.of) x += a.at[i];
        v.at[i] = follow(then, x, row, p.col + i);
    }
    put<N>(y, at, v);
}

// Backpropagates dy, in place, through the epilogue.
template <int N>
__global__ void backward_kernel(halognn_cuda_matrix dy, int64_t rows, int64_t cols, int lanes,
                                halognn_cuda_matrix y, halognn_cuda_then then) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    const int64_t at = p.row * cols + p.col;
    const auto held = hold<N>(dy, at), held_y = hold<N>(y, at);
    pack<float, N> d = widen<N>(dy, held);
    const pack<float, N> out = widen<N>(y, held_y);
    const uint64_t row = drawn_back(then, p.row);
#pragma unroll
    for (int i = 0; i < N; i++) d.at[i] = follow_back(then, d.at[i], out.at[i], row, p.col + i);
    put<N>(dy, at, d);
}

// Backpropagates dy as backward_kernel does, and sets db to the sum of the result over the rows. It
// has one thread for each column and chunk.
template <typename D, typename Y>
__global__ void BY_CHUNK bias_backward_kernel(D *dy, float *db, int64_t rows, int64_t cols,
                                              const Y *y, halognn_cuda_then then, float *partial,
                                              uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    if (j >= cols) return;
    struct none {};
    partial[chunk * cols + j] =
        sum_back<0>(dy, y, then, true, in_chunk(chunk, rows, cols, j), j,
                    [](int) { return none{}; }, [](float d, none) { return d; });
    if (arrive(arrived + j, chunks)) db[j] = add_in_order(partial + j, cols, chunks);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_epilogue(halognn_cuda *c, halognn_cuda_matrix y, int64_t rows, int64_t cols,
                          const float *x, const float *bias, halognn_cuda_then then) {
    if (rows == 0 || cols == 0) return 0;
    return in_packs(cols, {y, x, bias, then.add}, [&](auto n) {
        return LAUNCH(c, epilogue_kernel<n>, grid_of(rows, cols, n), y, rows, cols, lanes(cols, n),
                      x, bias, then);
    });
}

int halognn_cuda_epilogue_backward(halognn_cuda *c, halognn_cuda_matrix dy, float *db,
                                   int64_t rows, int64_t cols, halognn_cuda_matrix y,
                                   halognn_cuda_then then, float *scratch) {
    if (db != nullptr && (rows == 0 || cols == 0))
        return halognn_cuda_zero(c, HALOGNN_COMPUTE, db, cols * 4);
    if (rows == 0 || cols == 0) return 0;
    if (db != nullptr)
        return by_types(dy, y, [&](auto *d, auto *of) {
            using D = std::remove_pointer_t<decltype(d)>;
            using Y = std::remove_pointer_t<decltype(of)>;
            return LAUNCH(c, (bias_backward_kernel<D, Y>), columns_by_chunk(rows, cols), d, db,
                          rows, cols, static_cast<const Y *>(of), then, scratch, c->arrived);
        });
    if (then.activation == 0) return 0;
    return in_packs(cols, {dy, y}, [&](auto n) {
        return LAUNCH(c, backward_kernel<n>, grid_of(rows, cols, n), dy, rows, cols,
                      lanes(cols, n), y, then);
    });
}

}  // extern "C"
