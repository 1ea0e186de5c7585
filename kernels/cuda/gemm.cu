// Matrix products by cuBLAS. cuBLAS stores matrices by columns, so it sees a matrix [a,b] that is
// stored by rows as a matrix [b,a]. Therefore every product is computed transposed.
#include <type_traits>

#include "gemm.cuh"
#include "settle.cuh"

namespace halognn {
namespace {

// gemm makes one product. Products of float32 are computed in the arithmetic of float32.
template <typename T>
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
         const T *a, int lda, const T *b, int ldb, const float *beta, float *to) {
    return in_mode<T>(c, [=](cublasHandle_t handle) {
        if constexpr (std::is_same_v<T, float>)
            return cublas.sgemm(handle, ta, tb, m, n, k, &one, a, lda, b, ldb, beta, to, m);
        else
            return cublas.gemm(handle, ta, tb, m, n, k, &one, a, cores<T>::type, lda, b,
                               cores<T>::type, ldb, beta, to, CUDA_R_32F, m, cores<T>::compute,
                               CUBLAS_GEMM_DEFAULT);
    });
}

template <typename T>
int matmul(halognn_cuda *c, float *y, const T *x, const T *w, int r, int f, int o, int add) {
    return gemm(c, CUBLAS_OP_T, CUBLAS_OP_N, o, r, f, w, f, x, f, add ? &one : &zero, y);
}

template <typename T>
int matmul_input(halognn_cuda *c, float *x, const T *y, const T *w, int r, int f, int o, int add) {
    return gemm(c, CUBLAS_OP_N, CUBLAS_OP_N, f, r, o, w, f, y, o, add ? &one : &zero, x);
}

// w [o,f] is small and r is large. cuBLAS itself divides such a product into parts that fill the
// device.
template <typename T>
int matmul_weights(halognn_cuda *c, float *w, const T *y, const T *x, int r, int f, int o) {
    return gemm(c, CUBLAS_OP_N, CUBLAS_OP_T, f, o, r, x, f, y, o, &zero, w);
}

// Rounds arrays to bfloat16. A thread rounds a pack of N elements. The result of each array begins
// at a multiple of HALOGNN_FACTOR_ALIGN elements of `to`.
template <int N>
__global__ void round_kernel(bf16 *to, factors all) {
    int64_t i = item() * N;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (i >= 0 && i < all.n[k])
            put<N>(to + i, load<float, N>(static_cast<const float *>(all.of[k].of) + i));
        i -= all.n[k];
        to += (all.n[k] + HALOGNN_FACTOR_ALIGN - 1) / HALOGNN_FACTOR_ALIGN * HALOGNN_FACTOR_ALIGN;
    }
}

}  // namespace

int round_factors(halognn_cuda *c, void *room, factors *all) {
    bf16 *const to = static_cast<bf16 *>(room), *next = to;
    factors of = *all; // those to be rounded
    int64_t items = 0;
    bool wide = true;
    for (int k = 0; k < 2; k++) {
        if (of.of[k].bf16) of.n[k] = 0; // this factor is already rounded
        if (of.n[k] > 0) all->of[k] = {next, 1, 0};
        next += ceil_div(of.n[k], HALOGNN_FACTOR_ALIGN) * HALOGNN_FACTOR_ALIGN;
        items += of.n[k];
        wide = wide && (of.n[k] == 0 || fits(of.of[k], of.n[k], 4));
    }
    return items == 0 ? 0
           : wide     ? LAUNCH(c, round_kernel<4>, blocks(items / 4), to, of)
                      : LAUNCH(c, round_kernel<1>, blocks(items), to, of);
}

}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_matmul(halognn_cuda *c, float *y, halognn_cuda_matrix x, halognn_cuda_matrix w,
                        int64_t r, int64_t f, int64_t o, int add, void *rounded, int dropped) {
    if (r == 0 || o == 0) return 0;
    if (f == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, y, r * o * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    return product(c, rounded, dropped, {{x, w}, {r * f, o * f}},
                   [&](auto *x, auto *w) { return matmul(c, y, x, w, ri, fi, oi, add); });
}

int halognn_cuda_matmul_input(halognn_cuda *c, float *x, halognn_cuda_matrix y,
                              halognn_cuda_matrix w, int64_t r, int64_t f, int64_t o, int add,
                              void *rounded, int dropped) {
    if (r == 0 || f == 0) return 0;
    if (o == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, x, r * f * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    return product(c, rounded, dropped, {{y, w}, {r * o, o * f}},
                   [&](auto *y, auto *w) { return matmul_input(c, x, y, w, ri, fi, oi, add); });
}

int halognn_cuda_matmul_weights(halognn_cuda *c, float *w, float *b, halognn_cuda_matrix y,
                                halognn_cuda_matrix x, int64_t r, int64_t f, int64_t o,
                                float *scratch, void *rounded, int dropped) {
    if (o == 0) return 0;
    sums bias{};
    bias.b = b;
    bias.cols = o;
    bias.dy = y;
    bias.rows = r;
    bias.chunks = scratch;
    if (r == 0 || f == 0) {
        if (int e = halognn_cuda_zero(c, HALOGNN_COMPUTE, w, o * f * 4)) return e;
        if (b && r == 0) return halognn_cuda_zero(c, HALOGNN_COMPUTE, b, o * 4);
        return b ? later(c, bias) : 0;
    }
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    if (int e = product(
            c, rounded, dropped, {{y, x}, {r * o, r * f}},
            [&](auto *y, auto *x) { return matmul_weights(c, w, y, x, ri, fi, oi); }))
        return e;
    return b ? later(c, bias) : 0;
}

}  // extern "C"
