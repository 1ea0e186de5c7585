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

// Rounded factors as tensor cores take them. A TF32 is a float32 whose low bits are 0: the cores do
// not read them.
using bf16 = uint16_t;
struct tf32 {
    float value;
};

// cores say how cuBLAS multiplies them.
template <typename T>
struct cores;
template <>
struct cores<bf16> {
    static constexpr int dropped = 16;
    static constexpr cudaDataType_t type = CUDA_R_16BF;
    static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};
template <>
struct cores<tf32> {
    static constexpr int dropped = 13;
    static constexpr cudaDataType_t type = CUDA_R_32F;
    static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F_FAST_TF32;
};

// The same for rounded factors. Pedantic arithmetic, as for float32, would exclude the tensor
// cores; instead it forbids reduced-precision reductions, which would add partial sums in bfloat16.
template <typename T>
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T *a, int lda, int64_t stride_a, const T *b,
         int ldb, int64_t stride_b, const float *beta, float *to, int64_t stride, int64_t count) {
    const auto mode = static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (int e = status(cublasSetMathMode(blas(c), mode))) return e;
    return status(cublasGemmStridedBatchedEx(blas(c), ta, tb, m, n, k, &one, a, cores<T>::type, lda, stride_a, b, cores<T>::type, ldb, stride_b,
                                             beta, to, CUDA_R_32F, m, stride, static_cast<int>(count), cores<T>::compute,
                                             CUBLAS_GEMM_DEFAULT));
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
__device__ inline float factor(const tf32 *p) { return p->value; }
__device__ inline float factor(const bf16 *p) {
    const uint32_t bits = static_cast<uint32_t>(*p) << cores<bf16>::dropped;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// gradient is that of weights w [o,f], which multiply x [r,f]; none if f is 0. partial [chunks,o,f]
template <typename T>
struct gradient {
    float *w, *partial;
    const T *x;
    int64_t f;
};

// finish_weights adds the products of whole chunks, in order, and that of the rest of the rows, of
// y [rest,o]. One thread an element of both gradients.
template <typename T>
__global__ void finish_weights(gradient<T> g, gradient<T> second, int64_t o, int64_t whole, const T *y,
                               int64_t rest) {
    int64_t at = item();
    if (at >= o * g.f) {
        at -= o * g.f;
        g = second;
    }
    if (at >= o * g.f) return;
    float sum = 0, last = 0;
    for (int64_t k = 0; k < whole; k++) sum += g.partial[k * o * g.f + at];
    y += at / g.f;
    const T *x = g.x + at % g.f;
#pragma unroll 8
    for (int64_t r = 0; r < rest; r++) last += factor(y + r * o) * factor(x + r * g.f);
    g.w[at] = rest > 0 ? sum + last : sum;
}

// SMALL is the number of weights up to which the rest is left to finish_weights: a product of at
// most CHUNK rows is then bound by its launch.
constexpr int64_t SMALL = int64_t{1} << 17;

// Every chunk of rows is a separate product: one batch, which fills the device better than a single
// product of small [o,f] and large r. The remaining rows are another product, or part of the sum of
// the chunks.
template <typename T>
int matmul_weights(halognn_cuda *c, const T *y, int64_t r, int o, gradient<T> g, gradient<T> second) {
    const int64_t whole = r / CHUNK, rest = r - whole * CHUNK, n = o * (g.f + second.f);
    const bool apart = rest > 0 && n > SMALL;
    for (const gradient<T> &of : {g, second}) {
        const int f = static_cast<int>(of.f);
        const auto product = [&](int64_t from, int64_t rows, float *to, int64_t count) {
            return gemm(c, CUBLAS_OP_N, CUBLAS_OP_T, f, o, static_cast<int>(rows), of.x + from * f, f,
                        rows * f, y + from * o, o, rows * o, &zero, to, count ? of.f * o : 0, count);
        };
        int e = 0;
        if (f > 0 && r <= CHUNK) e = product(0, r, of.w, 0);
        if (f > 0 && r > CHUNK) e = product(0, CHUNK, of.partial, whole);
        if (f > 0 && r > CHUNK && apart && e == 0)
            e = product(whole * CHUNK, rest, of.partial + whole * o * f, 0);
        if (e) return e;
    }
    if (r <= CHUNK) return 0;
    if (apart || rest == 0)
        return LAUNCH(c, finish_weights<T>, blocks(n), g, second, o, whole + apart, y, 0);
    g.x += whole * CHUNK * g.f;
    second.x += whole * CHUNK * second.f;
    return LAUNCH(c, finish_weights<T>, blocks(n), g, second, o, whole, y + whole * CHUNK * o, rest);
}

__device__ void put(bf16 *dst, uint32_t bits) { *dst = static_cast<bf16>(bits >> cores<bf16>::dropped); }
__device__ void put(tf32 *dst, uint32_t bits) {
    bits = bits >> cores<tf32>::dropped << cores<tf32>::dropped;
    memcpy(dst, &bits, sizeof bits);
}

// Rounds two arrays to nearest, ties to even; NaN stays NaN.
template <typename T>
__global__ void round_kernel(T *dst, int64_t n, const float *x, T *second, int64_t m, const float *y) {
    constexpr uint32_t half = 1u << (cores<T>::dropped - 1);
    int64_t i = item();
    if (i >= n) {
        i -= n;
        n = m;
        dst = second;
        x = y;
    }
    if (i >= n) return;
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    put(dst + i, x[i] != x[i] ? bits | 0x400000 : bits + (half - 1) + (bits >> cores<T>::dropped & 1));
}

// rounded_product rounds x [n] and y [m] and multiplies them: multiply(first, second).
template <typename T, typename F>
int rounded_product(halognn_cuda *c, void *rounded, const float *x, int64_t n, const float *y, int64_t m, F multiply) {
    T *first = static_cast<T *>(rounded), *second = first + ceil_div(n, HALOGNN_FACTOR_ALIGN) * HALOGNN_FACTOR_ALIGN;
    const int e = LAUNCH(c, round_kernel<T>, blocks(n + m), first, n, x, second, m, y);
    return e ? e : multiply(first, second);
}

// product multiplies x [n] and y [m], rounded or not.
template <typename F>
int product(halognn_cuda *c, void *rounded, int dropped, const float *x, int64_t n, const float *y, int64_t m, F multiply) {
    if (rounded == nullptr) return multiply(x, y);
    return dropped == cores<bf16>::dropped ? rounded_product<bf16>(c, rounded, x, n, y, m, multiply)
                                           : rounded_product<tf32>(c, rounded, x, n, y, m, multiply);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_matmul(halognn_cuda *c, float *y, const float *x, const float *w, int64_t r, int64_t f, int64_t o, int add,
                        void *rounded, int dropped) {
    if (r == 0 || o == 0) return 0;
    if (f == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, y, r * o * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    return product(c, rounded, dropped, x, r * f, w, o * f, [&](auto *x, auto *w) { return matmul(c, y, x, w, ri, fi, oi, add); });
}

int halognn_cuda_matmul_input(halognn_cuda *c, float *x, const float *y, const float *w, int64_t r, int64_t f, int64_t o, int add,
                              void *rounded, int dropped) {
    if (r == 0 || f == 0) return 0;
    if (o == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, x, r * f * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    return product(c, rounded, dropped, y, r * o, w, o * f, [&](auto *y, auto *w) { return matmul_input(c, x, y, w, ri, fi, oi, add); });
}

int halognn_cuda_matmul_weights(halognn_cuda *c, float *w, float *w2, const float *y, const float *x,
                                const float *x2, int64_t r, int64_t f, int64_t g, int64_t o,
                                float *scratch, void *rounded, int dropped) {
    const int oi = static_cast<int>(o);
    if (r == 0 || o == 0) return zero_both(c, w, o * f, w2, o * g);
    float *more = scratch + chunks(r) * o * f;
    if (rounded == nullptr)
        return matmul_weights<float>(c, y, r, oi, {w, scratch, x, f}, {w2, more, x2, g});
    // one product after the other: there is room for its factors alone
    const auto one = [&](float *w, const float *x, int64_t f) {
        return product(c, rounded, dropped, y, r * o, x, r * f, [&](auto *y, auto *x) {
            return matmul_weights(c, y, r, oi, {w, scratch, x, f}, {});
        });
    };
    if (int e = f > 0 ? one(w, x, f) : 0) return e;
    return g > 0 ? one(w2, x2, g) : 0;
}

}  // extern "C"
