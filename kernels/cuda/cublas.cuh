// The part of cuBLAS that halognn uses. It is loaded when the first device is opened. So the
// library runs with the cuBLAS of any CUDA from 11.4 on, whatever version it was compiled with.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

// The functions: result type, name in this code, symbol in the library, parameters.
#define BLAS_FUNCTIONS(F)                                                                         \
    F(cublasStatus_t, create, cublasCreate_v2, (cublasHandle_t * h))                              \
    F(cublasStatus_t, destroy, cublasDestroy_v2, (cublasHandle_t h))                              \
    F(cublasStatus_t, set_stream, cublasSetStream_v2, (cublasHandle_t h, cudaStream_t s))         \
    F(cublasStatus_t, set_workspace, cublasSetWorkspace_v2,                                       \
      (cublasHandle_t h, void *p, size_t bytes))                                                  \
    F(cublasStatus_t, set_math, cublasSetMathMode, (cublasHandle_t h, cublasMath_t m))            \
    F(const char *, text, cublasGetStatusString, (cublasStatus_t s))                              \
    F(cublasStatus_t, property, cublasGetProperty, (libraryPropertyType type, int *value))        \
    F(cublasStatus_t, sgemm, cublasSgemm_v2,                                                      \
      (cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,         \
       const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,   \
       float *c, int ldc))                                                                        \
    F(cublasStatus_t, gemm, cublasGemmEx,                                                         \
      (cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,         \
       const void *alpha, const void *a, cudaDataType_t type_a, int lda, const void *b,           \
       cudaDataType_t type_b, int ldb, const void *beta, void *c, cudaDataType_t type_c, int ldc, \
       cublasComputeType_t compute, cublasGemmAlgo_t algorithm))                                  \
    F(cublasStatus_t, gemm_batched, cublasGemmBatchedEx,                                          \
      (cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,         \
       const void *alpha, const void *const a[], cudaDataType_t type_a, int lda,                  \
       const void *const b[], cudaDataType_t type_b, int ldb, const void *beta, void *const c[],  \
       cudaDataType_t type_c, int ldc, int count, cublasComputeType_t compute,                    \
       cublasGemmAlgo_t algorithm))

namespace halognn {

struct blas_functions {
#define POINTER(type, name, symbol, params) type(*name) params;
    BLAS_FUNCTIONS(POINTER)
#undef POINTER
};
extern blas_functions cublas;

// an error code of at least this number is an error code of cuBLAS plus this number
constexpr int BLAS_CODE = 100000;
constexpr int NO_BLAS = BLAS_CODE + 99;      // the code for: cuBLAS is not loaded

// new_blas makes a handle. The first call tries several libraries and loads the first that can make
// a handle.
int new_blas(cublasHandle_t *handle);
// blas_error returns the text of an error code from BLAS_CODE on.
const char *blas_error(int code);

// blas_code converts a status of cuBLAS to an error code.
inline int blas_code(cublasStatus_t s) {
    return s == CUBLAS_STATUS_SUCCESS ? 0 : BLAS_CODE + static_cast<int>(s);
}

}  // namespace halognn
