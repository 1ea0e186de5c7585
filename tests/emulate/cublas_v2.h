#pragma once

#include "cuda_runtime.h"

enum cublasStatus_t : int {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
struct emulated_blas;
using cublasHandle_t = emulated_blas *;

const char *cublasGetStatusString(cublasStatus_t s);
cublasStatus_t cublasCreate(cublasHandle_t *h);
cublasStatus_t cublasDestroy(cublasHandle_t h);
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s);
cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void *p, size_t bytes);
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m);
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         long long stride_a, const float *b, int ldb,
                                         long long stride_b, const float *beta, float *c, int ldc,
                                         long long stride_c, int count);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta,
                                          cublasOperation_t tb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType_t type_a,
                                          int lda, long long stride_a, const void *b,
                                          cudaDataType_t type_b, int ldb, long long stride_b,
                                          const void *beta, void *c, cudaDataType_t type_c, int ldc,
                                          long long stride_c, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
inline cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                  int m, int n, int k, const float *alpha, const float *a, int lda,
                                  const float *b, int ldb, const float *beta, float *c, int ldc) {
    return cublasSgemmStridedBatched(h, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc,
                                     static_cast<long long>(ldc) * n, 1);
}
inline cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                   int m, int n, int k, const void *alpha, const void *a,
                                   cudaDataType_t type_a, int lda, const void *b,
                                   cudaDataType_t type_b, int ldb, const void *beta, void *c,
                                   cudaDataType_t type_c, int ldc, cublasComputeType_t compute,
                                   cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb,
                                      0, beta, c, type_c, ldc, static_cast<long long>(ldc) * n, 1,
                                      compute, algorithm);
}
cublasStatus_t cublasSgemmBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                  int m, int n, int k, const float *alpha, const float *const a[],
                                  int lda, const float *const b[], int ldb, const float *beta,
                                  float *const c[], int ldc, int count);
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                   int m, int n, int k, const void *alpha, const void *const a[],
                                   cudaDataType_t type_a, int lda, const void *const b[],
                                   cudaDataType_t type_b, int ldb, const void *beta,
                                   void *const c[], cudaDataType_t type_c, int ldc, int count,
                                   cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
