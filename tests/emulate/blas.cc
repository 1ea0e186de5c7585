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

// shape is what a product, or each product of a batch, is called with.
struct shape {
    bool ta, tb;
    int m, n, k;
    float alpha, beta;
    int lda, ldb, ldc;

    bool valid() const {
        return m >= 1 && n >= 1 && k >= 1 && lda >= (ta ? k : m) && ldb >= (tb ? n : k) && ldc >= m;
    }
    template <typename T>
    void multiply(const T *a, const T *b, float *c) const {
        matrix(a, ta ? k : m, ta ? m : k, lda);
        matrix(b, tb ? n : k, tb ? k : n, ldb);
        matrix(c, m, n, ldc);
        product(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    }
};

// enqueue queues the work of a call for factors of type T. Empty products are errors, unlike those
// of cuBLAS, of which some leave c as it is: callers say what becomes of it.
template <typename T, typename F>
static cublasStatus_t enqueue(cublasHandle_t h, const shape &s, const F &work) {
    // float32 is multiplied in its own arithmetic alone, and other factors on the cores that this
    // excludes
    if (std::is_same_v<T, float> != (h->math == CUBLAS_PEDANTIC_MATH))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!h->workspace || !s.valid()) return CUBLAS_STATUS_INVALID_VALUE;
    emulated::count("cublas/product");
    emulated::enqueue(h->stream, work);
    return CUBLAS_STATUS_SUCCESS;
}

// wide aborts unless a matrix of a batch is aligned as its elements and k demand: tensor cores read
// 16 bytes at a time where k allows it.
template <typename T>
static void wide(const void *p, int k) {
    if (!std::is_same_v<T, float> && k * sizeof(T) % 16 == 0) emulated::aligned(p, 16);
}

// typed calls multiply with a null pointer to the type of the factors.
template <typename F>
static cublasStatus_t typed(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c,
                            cublasComputeType_t compute, const F &multiply) {
    if (a != b || c != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    if (a == CUDA_R_16BF && compute == CUBLAS_COMPUTE_32F)
        return multiply(static_cast<const uint16_t *>(nullptr));
    if (a == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F)
        return multiply(static_cast<const float *>(nullptr));
    if (a == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        return multiply(static_cast<const tf32 *>(nullptr));
    return CUBLAS_STATUS_INVALID_VALUE;
}

extern "C" cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         const float *b, int ldb, const float *beta, float *c,
                                         int ldc) {
    const shape s{ta == CUBLAS_OP_T, tb == CUBLAS_OP_T, m, n, k, *alpha, *beta, lda, ldb, ldc};
    return enqueue<float>(h, s, [=] { s.multiply(a, b, c); });
}

extern "C" cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                       int m, int n, int k, const void *alpha, const void *a,
                                       cudaDataType_t type_a, int lda, const void *b,
                                       cudaDataType_t type_b, int ldb, const void *beta, void *c,
                                       cudaDataType_t type_c, int ldc, cublasComputeType_t compute,
                                       cublasGemmAlgo_t) {
    const shape s{ta == CUBLAS_OP_T, tb == CUBLAS_OP_T, m, n, k,
                  *static_cast<const float *>(alpha), *static_cast<const float *>(beta),
                  lda, ldb, ldc};
    return typed(type_a, type_b, type_c, compute, [=](auto *type) {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
        return enqueue<T>(h, s, [=] {
            s.multiply(static_cast<const T *>(a), static_cast<const T *>(b),
                       static_cast<float *>(c));
        });
    });
}

extern "C" cublasStatus_t cublasGemmBatchedEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *const a[], cudaDataType_t type_a, int lda, const void *const b[],
    cudaDataType_t type_b, int ldb, const void *beta, void *const c[], cudaDataType_t type_c,
    int ldc, int count, cublasComputeType_t compute, cublasGemmAlgo_t) {
    if (count < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const shape s{ta == CUBLAS_OP_T, tb == CUBLAS_OP_T, m, n, k,
                  *static_cast<const float *>(alpha), *static_cast<const float *>(beta),
                  lda, ldb, ldc};
    return typed(type_a, type_b, type_c, compute, [=](auto *type) {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
        return enqueue<T>(h, s, [=] {
            for (const void *list : {static_cast<const void *>(a), static_cast<const void *>(b),
                                     static_cast<const void *>(c)})
                emulated::readable(list, sizeof(void *) * static_cast<size_t>(count));
            for (int i = 0; i < count; i++) {
                for (const void *p : {a[i], b[i], static_cast<const void *>(c[i])}) wide<T>(p, k);
                s.multiply(static_cast<const T *>(a[i]), static_cast<const T *>(b[i]),
                           static_cast<float *>(c[i]));
            }
        });
    });
}
