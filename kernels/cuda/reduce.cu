#include "reduce.cuh"

namespace halognn {
namespace {

// One thread a column and chunk: neighbouring threads read neighbouring columns.
__global__ void chunk_sums(float *partial, int64_t rows, int64_t cols, const float *x) {
    const int64_t j = item(), chunk = blockIdx.y;
    if (j < cols) partial[chunk * cols + j] = sum_in_order(chunk, rows, [=](int64_t r) { return x[r * cols + j]; });
}

__global__ void add_partials_kernel(float *sum, int64_t n, const float *partial, int64_t count) {
    const int64_t i = item();
    if (i >= n) return;
    float s = 0;
    for (int64_t k = 0; k < count; k++) s += partial[k * n + i];
    sum[i] = s;
}

__global__ void add_parameter_sums_kernel(float *dgamma, float *dbeta, int64_t cols, const float *partial,
                                          int64_t count) {
    const int64_t j = item();
    if (j >= cols) return;
    float g = 0, b = 0;
    for (int64_t k = 0; k < count; k++) {
        g += partial[k * 2 * cols + j];
        b += partial[(k * 2 + 1) * cols + j];
    }
    dgamma[j] = g;
    dbeta[j] = b;
}

__global__ void add_into_kernel(float *sum, int64_t n, const float *x) {
    const int64_t i = item();
    if (i < n) sum[i] += x[i];
}

__global__ void add_scaled_kernel(float *y, int64_t n, const float *z, const float *x, const float *scale) {
    const int64_t i = item();
    if (i < n) y[i] = z[i] + (1 + *scale) * x[i];
}

__global__ void copy_columns_kernel(float *y, int64_t rows, int64_t cols, int64_t y_cols, const float *x, int64_t x_cols, bool add) {
    const int64_t i = item();
    if (i >= rows * cols) return;
    float *to = y + i / cols * y_cols + i % cols;
    const float v = x[i / cols * x_cols + i % cols];
    *to = add ? *to + v : v;
}

__global__ void chunk_dots(float *partial, int64_t rows, int64_t cols, const float *x, const float *y) {
    const int64_t j = item(), chunk = blockIdx.y;
    if (j < cols) partial[chunk * cols + j] = sum_in_order(chunk, rows, [=](int64_t r) { return x[r * cols + j] * y[r * cols + j]; });
}

// One thread adds the columns, which are few.
__global__ void add_columns(float *sum, int64_t cols, const float *columns) {
    float s = 0;
    if (item() > 0) return;
    for (int64_t j = 0; j < cols; j++) s += columns[j];
    *sum = s;
}

// sum is itself slice number rank of those that are added.
__global__ void add_slices_kernel(float *sum, int64_t n, const float *slices, int rank, int ranks) {
    const int64_t i = item();
    if (i >= n) return;
    float s = rank == 0 ? sum[i] : slices[i];
    for (int r = 1; r < ranks; r++) s += r == rank ? sum[i] : slices[r * n + i];
    sum[i] = s;
}

}  // namespace

int add_partials(halognn_cuda *c, float *sum, int64_t n, const float *partial, int64_t count) {
    return n ? LAUNCH(c, add_partials_kernel, blocks(n), sum, n, partial, count) : 0;
}

int add_parameter_sums(halognn_cuda *c, float *dgamma, float *dbeta, int64_t cols, const float *partial,
                       int64_t count) {
    return cols ? LAUNCH(c, add_parameter_sums_kernel, blocks(cols), dgamma, dbeta, cols, partial, count) : 0;
}

}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_column_sum(halognn_cuda *c, float *sum, int64_t rows, int64_t cols, const float *x, float *scratch) {
    if (rows > 0 && cols > 0)
        if (int e = LAUNCH(c, chunk_sums, blocks(cols, BLOCK, static_cast<unsigned>(chunks(rows))), scratch, rows, cols, x)) return e;
    return add_partials(c, sum, cols, scratch, chunks(rows));
}

int halognn_cuda_add_into(halognn_cuda *c, float *sum, int64_t n, const float *x) {
    return n ? LAUNCH(c, add_into_kernel, blocks(n), sum, n, x) : 0;
}

int halognn_cuda_add_slices(halognn_cuda *c, int stream, float *sum, int64_t n, const float *slices, int rank, int ranks) {
    return n ? LAUNCH_ON(c, stream, add_slices_kernel, blocks(n), sum, n, slices, rank, ranks) : 0;
}

int halognn_cuda_add_scaled(halognn_cuda *c, float *y, int64_t n, const float *z, const float *x, const float *scale) {
    return n ? LAUNCH(c, add_scaled_kernel, blocks(n), y, n, z, x, scale) : 0;
}

int halognn_cuda_copy_columns(halognn_cuda *c, float *y, int64_t rows, int64_t cols, int64_t y_cols, const float *x, int64_t x_cols, int add) {
    return rows > 0 && cols > 0 ? LAUNCH(c, copy_columns_kernel, blocks(rows * cols), y, rows, cols, y_cols, x, x_cols, add != 0) : 0;
}

int halognn_cuda_dot(halognn_cuda *c, float *sum, int64_t rows, int64_t cols, const float *x, const float *y, float *scratch) {
    if (rows > 0 && cols > 0)
        if (int e = LAUNCH(c, chunk_dots, blocks(cols, BLOCK, static_cast<unsigned>(chunks(rows))), scratch, rows, cols, x, y)) return e;
    float *columns = scratch + chunks(rows) * cols;
    if (int e = add_partials(c, columns, cols, scratch, chunks(rows))) return e;
    return LAUNCH(c, add_columns, blocks(1), sum, cols, columns);
}

}  // extern "C"
