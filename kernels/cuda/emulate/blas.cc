// Plain implementations of the cuBLAS products that halognn uses, column-major.
#include "cublas_v2.h"

#include <cstring>

struct emulated_blas {
    cudaStream_t stream;
};

const char *cublasGetStatusString(cublasStatus_t) { return "emulated cuBLAS: an argument is not valid"; }
cublasStatus_t cublasCreate(cublasHandle_t *h) {
    *h = new emulated_blas{};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t h) {
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s) {
    h->stream = s;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *p, size_t bytes) {
    return p != nullptr && bytes > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

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
static void product(bool ta, bool tb, int m, int n, int k, float alpha, const T *a, int64_t lda, const T *b, int64_t ldb, float beta, float *c,
                    int64_t ldc) {
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < m; i++) {
            float sum = 0;
            for (int l = 0; l < k; l++) sum += value(ta ? a[l + i * lda] : a[i + l * lda]) * value(tb ? b[j + l * ldb] : b[l + j * ldb]);
            float *to = c + i + j * ldc;
            *to = beta == 0 ? alpha * sum : alpha * sum + beta * *to;
        }
    }
}

template <typename T>
static cublasStatus_t batch(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *alpha, const T *a,
                            int lda, long long stride_a, const T *b, int ldb, long long stride_b, const float *beta, float *c, int ldc,
                            long long stride_c, int count) {
    const bool t_a = ta == CUBLAS_OP_T, t_b = tb == CUBLAS_OP_T;
    if (m < 0 || n < 0 || k < 0 || lda < (t_a ? k : m) || ldb < (t_b ? n : k) || ldc < m || lda < 1 || ldb < 1 || ldc < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    emulated::count("cublas/product");
    const float alpha_now = *alpha, beta_now = *beta;
    emulated::enqueue(h->stream, [=] {
        for (int i = 0; i < count; i++)
            product(t_a, t_b, m, n, k, alpha_now, a + i * stride_a, lda, b + i * stride_b, ldb, beta_now, c + i * stride_c, ldc);
    });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *alpha,
                                         const float *a, int lda, long long stride_a, const float *b, int ldb, long long stride_b,
                                         const float *beta, float *c, int ldc, long long stride_c, int count) {
    return batch(h, ta, tb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, count);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType_t type_a, int lda, long long stride_a, const void *b,
                                          cudaDataType_t type_b, int ldb, long long stride_b, const void *beta, void *c, cudaDataType_t type_c,
                                          int ldc, long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t) {
    const auto multiply = [=](auto *a, auto *b) {
        return batch(h, ta, tb, m, n, k, static_cast<const float *>(alpha), a, lda, stride_a, b, ldb, stride_b, static_cast<const float *>(beta),
                     static_cast<float *>(c), ldc, stride_c, count);
    };
    if (type_a != type_b || type_c != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    if (type_a == CUDA_R_16BF && compute == CUBLAS_COMPUTE_32F)
        return multiply(static_cast<const uint16_t *>(a), static_cast<const uint16_t *>(b));
    if (type_a == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F_FAST_TF32) return multiply(static_cast<const tf32 *>(a), static_cast<const tf32 *>(b));
    return CUBLAS_STATUS_INVALID_VALUE;
}
