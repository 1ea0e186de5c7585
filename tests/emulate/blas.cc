// Plain implementations of the cuBLAS products that halognn uses, column-major.
#include "cublas_v2.h"

#include <cstring>
#include <type_traits>

struct emulated_blas {
    cudaStream_t stream;
    bool workspace; // the caller's
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

extern "C" const char *cublasGetStatusString(cublasStatus_t) {
    return "emulated cuBLAS: an argument is not valid";
}
extern "C" cublasStatus_t cublasGetProperty(libraryPropertyType part, int *value) {
    *value = 1 + part;
    return CUBLAS_STATUS_SUCCESS;
}
extern "C" cublasStatus_t cublasCreate_v2(cublasHandle_t *h) {
    *h = new emulated_blas{};
    return CUBLAS_STATUS_SUCCESS;
}
extern "C" cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}
extern "C" cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s) {
    h->stream = s;
    h->workspace = false; // as cuBLAS does, which then takes its own again
    return CUBLAS_STATUS_SUCCESS;
}
extern "C" cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t bytes) {
    h->workspace = p != nullptr && bytes > 0;
    return h->workspace ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
extern "C" cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m) {
    h->math = m;
    return CUBLAS_STATUS_SUCCESS;
}

// value converts a factor to float32.
static float value(float x) { return x; }
static float value(uint16_t bfloat16) {
    const uint32_t bits = static_cast<uint32_t>(bfloat16) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// A factor of TF32: tensor cores do not read the low bits, so that what was not rounded is cut off.
struct tf32 {
    float stored;
};
static float value(tf32 x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits &= ~0x1fffu;
    std::memcpy(&x, &bits, sizeof bits);
    return x.stored;
}

// one product: c[i + j ldc] = alpha * sum over l of a(i,l) b(l,j) + beta c
template <typename T>
static void product(bool ta, bool tb, int m, int n, int k, float alpha, const T *a, int64_t lda,
                    const T *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < m; i++) {
            float sum = 0;
            for (int l = 0; l < k; l++)
                sum += value(ta ? a[l + i * lda] : a[i + l * lda]) *
                       value(tb ? b[j + l * ldb] : b[l + j * ldb]);
            float *to = c + i + j * ldc;
            *to = beta == 0 ? alpha * sum : alpha * sum + beta * *to;
        }
    }
}

// matrix aborts unless a kernel may use a matrix of rows x cols elements there.
template <typename T>
static void matrix(const T *p, int rows, int cols, int64_t ld) {
    emulated::aligned(p, sizeof(T));
    emulated::readable(p, sizeof(T) * static_cast<size_t>((cols - 1) * ld + rows));
}

// multiply queues a product. Empty products are errors, unlike those of cuBLAS, of which some leave
// c as it is: callers say what becomes of it.
template <typename T>
static cublasStatus_t multiply(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                               int n, int k, const float *alpha, const T *a, int lda, const T *b,
                               int ldb, const float *beta, float *c, int ldc) {
    const bool t_a = ta == CUBLAS_OP_T, t_b = tb == CUBLAS_OP_T;
    // float32 is multiplied in its own arithmetic alone, other factors on the cores that it excludes
    if (std::is_same_v<T, float> != (h->math == CUBLAS_PEDANTIC_MATH))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!h->workspace || m < 1 || n < 1 || k < 1 || lda < (t_a ? k : m) ||
        ldb < (t_b ? n : k) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    emulated::count("cublas/product");
    const float alpha_now = *alpha, beta_now = *beta;
    emulated::enqueue(h->stream, [=] {
        matrix(a, t_a ? k : m, t_a ? m : k, lda);
        matrix(b, t_b ? n : k, t_b ? k : n, ldb);
        matrix(c, m, n, ldc);
        product(t_a, t_b, m, n, k, alpha_now, a, lda, b, ldb, beta_now, c, ldc);
    });
    return CUBLAS_STATUS_SUCCESS;
}

// typed calls multiply with a null pointer to the type of the factors.
template <typename F>
static cublasStatus_t typed(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c,
                            cublasComputeType_t compute, const F &multiply) {
    if (a != b || c != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    if (a == CUDA_R_16BF && compute == CUBLAS_COMPUTE_32F)
        return multiply(static_cast<const uint16_t *>(nullptr));
    if (a == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        return multiply(static_cast<const tf32 *>(nullptr));
    return CUBLAS_STATUS_INVALID_VALUE;
}

extern "C" cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         const float *b, int ldb, const float *beta, float *c,
                                         int ldc) {
    return multiply(h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

extern "C" cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                       int m, int n, int k, const void *alpha, const void *a,
                                       cudaDataType_t type_a, int lda, const void *b,
                                       cudaDataType_t type_b, int ldb, const void *beta, void *c,
                                       cudaDataType_t type_c, int ldc, cublasComputeType_t compute,
                                       cublasGemmAlgo_t) {
    return typed(type_a, type_b, type_c, compute, [=](auto *type) {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
        return multiply(h, ta, tb, m, n, k, static_cast<const float *>(alpha),
                        static_cast<const T *>(a), lda, static_cast<const T *>(b), ldb,
                        static_cast<const float *>(beta), static_cast<float *>(c), ldc);
    });
}
