// Matrix products by cuBLAS. cuBLAS stores matrices by columns, so it sees a matrix [a,b] that is
// stored by rows as a matrix [b,a]. Therefore every product is computed transposed.
#include <type_traits>

#include "settle.cuh"
#include "stored.cuh"

namespace halognn {
namespace {

// blas returns the cuBLAS handle of c. It also makes the device current on the calling thread.
cublasHandle_t blas(halognn_cuda *c) { return on(c), c->blas; }

const float one = 1, zero = 0;

// gemm makes one product of float32.
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
         const float *a, int lda, const float *b, int ldb, const float *beta, float *to) {
    return blas_code(cublas.sgemm(blas(c), ta, tb, m, n, k, &one, a, lda, b, ldb, beta, to, m));
}

// Types of the factors that tensor cores multiply. Factors of type bfloat16 are rounded by a kernel
// if they are stored as float32. TF32 is a float32 whose low bits the tensor cores do not read, so
// no kernel rounds it.
struct tf32 {
    float value;
};

// cores<T> has the arguments by which cuBLAS multiplies factors of type T.
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

// on_cores allows tensor cores, calls the function `multiply`, and then sets the handle back to its
// usual mode, the pedantic mode for float32, which excludes tensor cores. It always forbids
// reductions of reduced precision, because they would add partial sums in bfloat16.
template <typename F>
int on_cores(halognn_cuda *c, const F &multiply) {
    constexpr auto math = static_cast<cublasMath_t>(
        CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    const cublasHandle_t handle = blas(c);
    if (int e = blas_code(cublas.set_math(handle, math))) return e;
    const int first = blas_code(multiply(handle));
    const int second = blas_code(cublas.set_math(handle, CUBLAS_PEDANTIC_MATH));
    return first ? first : second;
}

// gemm makes one product of factors for tensor cores.
template <typename T>
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
         const T *a, int lda, const T *b, int ldb, const float *beta, float *to) {
    return on_cores(c, [=](cublasHandle_t handle) {
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

// factors has the two factors of a product, and the number of elements of each.
struct factors {
    halognn_cuda_matrix of[2];
    int64_t n[2];
};

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

// rounded_product rounds each factor that is stored as float32, and then multiplies the two
// factors.
template <typename F>
int rounded_product(halognn_cuda *c, void *room, factors all, const F &multiply) {
    const bf16 *at[2];
    bf16 *const to = static_cast<bf16 *>(room), *next = to;
    int64_t items = 0;
    bool wide = true;
    for (int k = 0; k < 2; k++) {
        at[k] = static_cast<const bf16 *>(all.of[k].of);
        if (all.of[k].bf16) all.n[k] = 0; // this factor is already rounded
        if (all.n[k] > 0) at[k] = next;
        next += ceil_div(all.n[k], HALOGNN_FACTOR_ALIGN) * HALOGNN_FACTOR_ALIGN;
        items += all.n[k];
        wide = wide && (all.n[k] == 0 || fits(all.of[k], all.n[k], 4));
    }
    const int e = items == 0 ? 0
                  : wide     ? LAUNCH(c, round_kernel<4>, blocks(items / 4), to, all)
                             : LAUNCH(c, round_kernel<1>, blocks(items), to, all);
    return e ? e : multiply(at[0], at[1]);
}

// product multiplies factors whose `dropped` low bits are removed, on tensor cores if there are
// such bits.
template <typename F>
int product(halognn_cuda *c, void *room, int dropped, const factors &all, const F &multiply) {
    const auto as = [&](auto zero, int k) {
        return static_cast<const decltype(zero) *>(all.of[k].of);
    };
    const float f = 0;
    const tf32 t{};
    for (const halognn_cuda_matrix &m : all.of)
        if (m.bf16 && dropped != cores<bf16>::dropped) return cudaErrorInvalidValue;
    switch (dropped) {
    case 0: return multiply(as(f, 0), as(f, 1));
    case cores<tf32>::dropped: return multiply(as(t, 0), as(t, 1));
    case cores<bf16>::dropped: return rounded_product(c, room, all, multiply);
    }
    return cudaErrorInvalidValue;
}

}  // namespace
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
