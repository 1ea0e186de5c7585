// Matrix products by cuBLAS, which is column-major: a row-major [a,b] is its [b,a], so every
// product is computed transposed.
#include <cstring>

#include "reduce.cuh"

namespace halognn {
namespace {

int status(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS ? 0 : BLAS_CODE + static_cast<int>(s); }

// blas returns the handle, after making its device current on the thread.
cublasHandle_t blas(halognn_cuda *c) { return on(c), c->blas; }

const float one = 1, zero = 0;

// gemm multiplies a batch of float32, or, with stride 0, one product.
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *a, int lda, int64_t stride_a,
         const float *b, int ldb, int64_t stride_b, const float *beta, float *to, int64_t stride, int64_t count) {
    if (stride == 0) return status(cublasSgemm(blas(c), ta, tb, m, n, k, &one, a, lda, b, ldb, beta, to, m));
    return status(cublasSgemmStridedBatched(blas(c), ta, tb, m, n, k, &one, a, lda, stride_a, b, ldb, stride_b, beta, to, m, stride,
                                            static_cast<int>(count)));
}

// The same for bfloat16. Pedantic arithmetic, as for float32, would exclude the tensor cores;
// instead it forbids reduced-precision reductions, which would add partial sums in bfloat16.
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const uint16_t *a, int lda, int64_t stride_a,
         const uint16_t *b, int ldb, int64_t stride_b, const float *beta, float *to, int64_t stride, int64_t count) {
    const auto mode = static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (int e = status(cublasSetMathMode(blas(c), mode))) return e;
    return status(cublasGemmStridedBatchedEx(blas(c), ta, tb, m, n, k, &one, a, CUDA_R_16BF, lda, stride_a, b, CUDA_R_16BF, ldb, stride_b, beta,
                                             to, CUDA_R_32F, m, stride, static_cast<int>(count), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

template <typename T>
int matmul(halognn_cuda *c, float *y, const T *x, const T *w, int r, int f, int o, int add) {
    return gemm(c, CUBLAS_OP_T, CUBLAS_OP_N, o, r, f, w, f, 0, x, f, 0, add ? &one : &zero, y, 0, 1);
}

template <typename T>
int matmul_input(halognn_cuda *c, float *x, const T *y, const T *w, int r, int f, int o, int add) {
    return gemm(c, CUBLAS_OP_N, CUBLAS_OP_N, f, r, o, w, f, 0, y, o, 0, add ? &one : &zero, x, 0, 1);
}

__device__ inline float factor(const float *p) { return *p; }
__device__ inline float factor(const uint16_t *bfloat16) {
    const uint32_t bits = static_cast<uint32_t>(*bfloat16) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// finish_weights adds the products of whole chunks, in order, and that of the rest of the rows: y
// [rest,o], x [rest,f]. One thread an element of w [o,f].
template <typename T>
__global__ void finish_weights(float *w, int64_t o, int64_t f, const float *partial, int64_t whole,
                               const T *y, const T *x, int64_t rest) {
    const int64_t n = o * f, at = item();
    if (at >= n) return;
    float sum = 0, last = 0;
    for (int64_t k = 0; k < whole; k++) sum += partial[k * n + at];
    y += at / f;
    x += at % f;
#pragma unroll 8
    for (int64_t r = 0; r < rest; r++) last += factor(y + r * o) * factor(x + r * f);
    w[at] = rest > 0 ? sum + last : sum;
}

// SMALL is the number of weights up to which the rest is left to finish_weights: a product of at
// most CHUNK rows is then bound by its launch.
constexpr int64_t SMALL = int64_t{1} << 17;

// Every chunk of rows is a separate product: one batch, which fills the device better than a single
// product of small [o,f] and large r. The remaining rows are another product, or part of the sum of
// the chunks.
template <typename T>
int matmul_weights(halognn_cuda *c, float *w, const T *y, const T *x, int64_t r, int f, int o,
                   float *scratch) {
    const int64_t whole = r / CHUNK, rest = r - whole * CHUNK, n = static_cast<int64_t>(o) * f;
    const auto product = [&](const T *of, const T *with, int64_t rows, int64_t stride, float *to,
                             int64_t count) {
        return gemm(c, CUBLAS_OP_N, CUBLAS_OP_T, f, o, static_cast<int>(rows), with, f, stride * f,
                    of, o, stride * o, &zero, to, stride ? n : 0, count);
    };
    if (r == 0) return halognn_cuda_zero(c, HALOGNN_COMPUTE, w, n * 4);
    if (r <= CHUNK) return product(y, x, r, 0, w, 1);
    if (int e = product(y, x, CHUNK, CHUNK, scratch, whole)) return e;
    const T *last_y = y + whole * CHUNK * o, *last_x = x + whole * CHUNK * f;
    const bool apart = rest > 0 && n > SMALL;
    if (apart)
        if (int e = product(last_y, last_x, rest, 0, scratch + whole * n, 1)) return e;
    if (apart || rest == 0) // y and x are not read
        return LAUNCH(c, finish_weights<T>, blocks(n), w, o, f, scratch, whole + apart, y, x, 0);
    return LAUNCH(c, finish_weights<T>, blocks(n), w, o, f, scratch, whole, last_y, last_x, rest);
}

// Rounds two arrays to nearest, ties to even; NaN stays NaN.
__global__ void round_kernel(uint16_t *first, int64_t n, const float *x, uint16_t *second, int64_t m,
                             const float *y) {
    int64_t i = item();
    if (i >= n) {
        i -= n;
        n = m;
        first = second;
        x = y;
    }
    if (i >= n) return;
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits = x[i] != x[i] ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    first[i] = static_cast<uint16_t>(bits >> 16);
}

// pair holds the rounded factors of a product.
struct pair {
    uint16_t *first, *second;
    int code;
};

pair round_both(halognn_cuda *c, uint16_t *rounded, const float *x, int64_t n, const float *y, int64_t m) {
    uint16_t *second = rounded + ceil_div(n, HALOGNN_BF16_ALIGN) * HALOGNN_BF16_ALIGN;
    return {rounded, second, LAUNCH(c, round_kernel, blocks(n + m), rounded, n, x, second, m, y)};
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_matmul(halognn_cuda *c, float *y, const float *x, const float *w, int64_t r, int64_t f, int64_t o, int add,
                        uint16_t *rounded) {
    if (r == 0 || o == 0) return 0;
    if (f == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, y, r * o * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    if (rounded == nullptr) return matmul(c, y, x, w, ri, fi, oi, add);
    const pair p = round_both(c, rounded, x, r * f, w, o * f);
    return p.code ? p.code : matmul(c, y, p.first, p.second, ri, fi, oi, add);
}

int halognn_cuda_matmul_input(halognn_cuda *c, float *x, const float *y, const float *w, int64_t r, int64_t f, int64_t o, int add,
                              uint16_t *rounded) {
    if (r == 0 || f == 0) return 0;
    if (o == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, x, r * f * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    if (rounded == nullptr) return matmul_input(c, x, y, w, ri, fi, oi, add);
    const pair p = round_both(c, rounded, y, r * o, w, o * f);
    return p.code ? p.code : matmul_input(c, x, p.first, p.second, ri, fi, oi, add);
}

int halognn_cuda_matmul_weights(halognn_cuda *c, float *w, const float *y, const float *x, int64_t r, int64_t f, int64_t o, float *scratch,
                                uint16_t *rounded) {
    if (o == 0 || f == 0) return 0;
    const int fi = static_cast<int>(f), oi = static_cast<int>(o);
    if (rounded == nullptr || r == 0) return matmul_weights(c, w, y, x, r, fi, oi, scratch);
    const pair p = round_both(c, rounded, y, r * o, x, r * f);
    return p.code ? p.code : matmul_weights(c, w, p.first, p.second, r, fi, oi, scratch);
}

}  // extern "C"
