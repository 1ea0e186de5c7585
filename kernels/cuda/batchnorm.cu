// BatchNorm, and the activation and dropout after it. There are two kinds of kernels: sums of
// columns over chunks of rows, and maps, which compute each element by itself. In a map, a thread
// has neighbouring columns of some rows, and computes the factors of these columns once.
#include "rows.cuh"
#include "then.cuh"

namespace halognn {
namespace {

__global__ void BY_CHUNK means(float *mean, int64_t rows, int64_t cols, const float *x,
                               float *partial, uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    if (j >= cols) return;
    const in_chunk in(chunk, rows, cols, j);
    x += in.at;
    partial[chunk * cols + j] =
        sum_in_order<1>(in.rows, [=](int r) { return x[r * in.cols]; }, itself);
    if (arrive(arrived + j, chunks))
        mean[j] = add_in_order(partial + j, cols, chunks) / static_cast<float>(rows);
}

__global__ void BY_CHUNK variances(float *variance, int64_t rows, int64_t cols, const float *x,
                                   const float *mean, float *partial, uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    if (j >= cols) return;
    const float m = mean[j];
    const in_chunk in(chunk, rows, cols, j);
    x += in.at;
    partial[chunk * cols + j] = sum_in_order<1>(
        in.rows, [=](int r) { return x[r * in.cols]; },
        [=](int, float v) { return (v - m) * (v - m); });
    if (arrive(arrived + j, chunks))
        variance[j] = add_in_order(partial + j, cols, chunks) / static_cast<float>(rows);
}

constexpr int ROWS = 4; // number of rows of a thread in a map

// packs has the packs of one thread in a matrix [rows,cols]. All are read before the first is
// written. If the thread has fewer rows than ROWS, its first pack is read again instead of the
// missing ones.
template <int N>
struct packs {
    pack<float, N> of[ROWS];
    __device__ void read(const halognn_cuda_matrix &x, const place &p, int64_t rows, int64_t cols,
                         int64_t stride) {
        pack<uint32_t, N> held[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const int64_t row = p.row + k * stride;
            held[k] = hold<N>(x, (row < rows ? row : p.row) * cols + p.col);
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) of[k] = widen<N>(x, held[k]);
    }
    __device__ void read(const float *x, const place &p, int64_t rows, int64_t cols,
                         int64_t stride) {
        read(halognn_cuda_matrix{const_cast<float *>(x), 0, 0}, p, rows, cols, stride);
    }
};

// stride_of returns the distance between the rows of a thread.
__device__ inline int64_t stride_of(int lanes) {
    return static_cast<int64_t>(gridDim.x) * (blockDim.x / lanes);
}

template <int N>
__global__ void forward(halognn_cuda_matrix y, int64_t rows, int64_t cols, int lanes,
                        const float *x, const float *gamma, const float *beta, const float *mean,
                        const float *variance, float eps, halognn_cuda_then then) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    const pack<float, N> m = load<float, N>(mean + p.col), g = load<float, N>(gamma + p.col),
                         b = load<float, N>(beta + p.col);
    pack<float, N> s = load<float, N>(variance + p.col);
#pragma unroll
    for (int i = 0; i < N; i++) s.at[i] = 1 / sqrtf(s.at[i] + eps);
    const int64_t stride = stride_of(lanes);
    packs<N> in, add{};
    in.read(x, p, rows, cols, stride);
    if (then.add.of) add.read(then.add, p, rows, cols, stride);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const int64_t row = p.row + k * stride;
        if (row >= rows) break;
        const uint64_t bits = drawn(then, row);
        pack<float, N> v;
#pragma unroll
        for (int i = 0; i < N; i++) {
            float to = (in.of[k].at[i] - m.at[i]) * s.at[i] * g.at[i] + b.at[i];
            if (then.add.of) to += add.of[k].at[i];
            v.at[i] = follow(then, to, bits, p.col + i);
        }
        put<N>(y, row * cols + p.col, v);
    }
}

// Backpropagates dy through activation and dropout, in place if it is of float32. Then it sums dy*n
// and dy over the rows, where n is the normalised x. partial is [chunks,2,cols].
template <typename D, typename Y>
__global__ void BY_CHUNK parameter_sums(float *dgamma, float *dbeta, int64_t rows, int64_t cols,
                                        D *dy, const float *x, const float *mean,
                                        const float *variance, float eps, const Y *y,
                                        halognn_cuda_then then, float *partial, uint32_t *arrived) {
    const int64_t j = my_column(), chunk = blockIdx.x, chunks = gridDim.x;
    if (j >= cols) return;
    const float m = mean[j], s = 1 / sqrtf(variance[j] + eps);
    float *out = partial + chunk * 2 * cols + j;
    const in_chunk in(chunk, rows, cols, j);
    x += in.at;
    const two sum = sum_back<1>(
        dy, y, then, in_place<D>, in, j, [=](int r) { return x[r * in.cols]; },
        [=](float d, float v) { return two{d, d * ((v - m) * s)}; });
    out[cols] = sum.a;
    out[0] = sum.b;
    if (!arrive(arrived + j, chunks)) return;
    dgamma[j] = add_in_order(partial + j, 2 * cols, chunks);
    dbeta[j] = add_in_order(partial + cols + j, 2 * cols, chunks);
}

template <int N>
__global__ void backward(float *dx, int64_t rows, int64_t cols, int lanes, halognn_cuda_matrix dy,
                         const float *x, const float *gamma, const float *mean,
                         const float *variance, const float *dgamma, const float *dbeta, float eps,
                         halognn_cuda_matrix y, halognn_cuda_then then) {
    const place p = my_place(lanes, N);
    if (p.row >= rows || p.col >= cols) return;
    const float n = static_cast<float>(rows);
    const pack<float, N> m = load<float, N>(mean + p.col), g = load<float, N>(gamma + p.col);
    pack<float, N> s = load<float, N>(variance + p.col), dg = load<float, N>(dgamma + p.col),
                   db = load<float, N>(dbeta + p.col);
#pragma unroll
    for (int i = 0; i < N; i++) {
        s.at[i] = 1 / sqrtf(s.at[i] + eps);
        dg.at[i] = dg.at[i] / n;
        db.at[i] = db.at[i] / n;
    }
    const int64_t stride = stride_of(lanes);
    const bool changes = dy.bf16 && then.activation != 0;
    packs<N> in, d, out{};
    in.read(x, p, rows, cols, stride);
    d.read(dy, p, rows, cols, stride);
    if (changes) out.read(y, p, rows, cols, stride);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const int64_t row = p.row + k * stride;
        if (row >= rows) break;
        if (changes) {
            const uint64_t bits = drawn_back(then, row);
#pragma unroll
            for (int i = 0; i < N; i++)
                d.of[k].at[i] =
                    follow_back(then, d.of[k].at[i], out.of[k].at[i], bits, p.col + i);
        }
        pack<float, N> v;
#pragma unroll
        for (int i = 0; i < N; i++)
            v.at[i] = g.at[i] * s.at[i] *
                      (d.of[k].at[i] - db.at[i] -
                       (in.of[k].at[i] - m.at[i]) * s.at[i] * dg.at[i]);
        store<float, N>(dx + row * cols + p.col, v);
    }
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_column_moments(halognn_cuda *c, float *mean, float *variance, int64_t rows,
                                int64_t cols, const float *x, float *scratch) {
    if (rows == 0 || cols == 0) return zero_both(c, mean, variance, cols);
    const dim3 grid = columns_by_chunk(rows, cols);
    if (int e = LAUNCH(c, means, grid, mean, rows, cols, x, scratch, c->arrived)) return e;
    return LAUNCH(c, variances, grid, variance, rows, cols, x, mean, scratch, c->arrived);
}

int halognn_cuda_batch_norm(halognn_cuda *c, halognn_cuda_matrix y, int64_t rows, int64_t cols,
                            const float *x, const float *gamma, const float *beta,
                            const float *mean, const float *variance, float eps,
                            halognn_cuda_then then) {
    if (rows == 0 || cols == 0) return 0;
    return in_packs(cols, {y, x, gamma, beta, mean, variance, then.add}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, forward<N>, grid_of(rows, cols, N, ROWS), y, rows, cols, lanes(cols, N), x,
                      gamma, beta, mean, variance, eps, then);
    });
}

int halognn_cuda_batch_norm_backward(halognn_cuda *c, float *dx, float *dgamma, float *dbeta,
                                     int64_t rows, int64_t cols, halognn_cuda_matrix dy,
                                     const float *x, const float *gamma, const float *mean,
                                     const float *variance, float eps, halognn_cuda_matrix y,
                                     halognn_cuda_then then, float *scratch) {
    if (rows == 0 || cols == 0) return zero_both(c, dgamma, dbeta, cols);
    const int e = by_types(dy, y, [&](auto *d, auto *of) {
        using D = std::remove_pointer_t<decltype(d)>;
        using Y = std::remove_pointer_t<decltype(of)>;
        return LAUNCH(c, (parameter_sums<D, Y>), columns_by_chunk(rows, cols), dgamma, dbeta, rows,
                      cols, d, x, mean, variance, eps, static_cast<const Y *>(of), then, scratch,
                      c->arrived);
    });
    if (e != 0) return e;
    return in_packs(cols, {dx, dy, x, gamma, mean, variance, dgamma, dbeta, y}, [=](auto n) {
        constexpr int N = decltype(n)::value;
        return LAUNCH(c, backward<N>, grid_of(rows, cols, N, ROWS), dx, rows, cols, lanes(cols, N),
                      dy, x, gamma, mean, variance, dgamma, dbeta, eps, y, then);
    });
}

}  // extern "C"
