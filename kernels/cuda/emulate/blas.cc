// The two products of cuBLAS that are used, column-major, written down.
#include "cublas_v2.h"

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

// one product: c[i + j ldc] = alpha * sum over l of a(i,l) b(l,j) + beta c
static void product(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                    float *c, int64_t ldc) {
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < m; i++) {
            float sum = 0;
            for (int l = 0; l < k; l++) sum += (ta ? a[l + i * lda] : a[i + l * lda]) * (tb ? b[j + l * ldb] : b[l + j * ldb]);
            float *to = c + i + j * ldc;
            *to = beta == 0 ? alpha * sum : alpha * sum + beta * *to;
        }
    }
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *alpha,
                                         const float *a, int lda, long long stride_a, const float *b, int ldb, long long stride_b,
                                         const float *beta, float *c, int ldc, long long stride_c, int count) {
    const bool t_a = ta == CUBLAS_OP_T, t_b = tb == CUBLAS_OP_T;
    if (m < 0 || n < 0 || k < 0 || lda < (t_a ? k : m) || ldb < (t_b ? n : k) || ldc < m || lda < 1 || ldb < 1 || ldc < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    const float alpha_now = *alpha, beta_now = *beta;
    emulated::enqueue(h->stream, [=] {
        for (int i = 0; i < count; i++)
            product(t_a, t_b, m, n, k, alpha_now, a + i * stride_a, lda, b + i * stride_b, ldb, beta_now, c + i * stride_c, ldc);
    });
    return CUBLAS_STATUS_SUCCESS;
}
