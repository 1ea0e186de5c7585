// Matrix products by cuBLAS, which is column-major: a row-major [a,b] is its [b,a], so every
// product is computed transposed.
#include "reduce.cuh"

namespace halognn {
namespace {

int status(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS ? 0 : BLAS_CODE + static_cast<int>(s); }

// blas returns the handle, which belongs to a device as a stream does.
cublasHandle_t blas(halognn_cuda *c) { return on(c), c->blas; }

const float one = 1, zero = 0;

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_matmul(halognn_cuda *c, float *y, const float *x, const float *w, int64_t r, int64_t f, int64_t o, int add) {
    if (r == 0 || o == 0) return 0;
    if (f == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, y, r * o * 4);
    return status(cublasSgemm(blas(c), CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(o), static_cast<int>(r), static_cast<int>(f), &one, w,
                              static_cast<int>(f), x, static_cast<int>(f), add ? &one : &zero, y, static_cast<int>(o)));
}

int halognn_cuda_matmul_input(halognn_cuda *c, float *x, const float *y, const float *w, int64_t r, int64_t f, int64_t o, int add) {
    if (r == 0 || f == 0) return 0;
    if (o == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, x, r * f * 4);
    return status(cublasSgemm(blas(c), CUBLAS_OP_N, CUBLAS_OP_N, static_cast<int>(f), static_cast<int>(r), static_cast<int>(o), &one, w,
                              static_cast<int>(f), y, static_cast<int>(o), add ? &one : &zero, x, static_cast<int>(f)));
}

// Every chunk of rows is a product of its own: one batch, which fills the device better than a
// single product of small [o,f] and large r would, and the rows that are left.
int halognn_cuda_matmul_weights(halognn_cuda *c, float *w, const float *y, const float *x, int64_t r, int64_t f, int64_t o, float *scratch) {
    if (o == 0 || f == 0) return 0;
    const int64_t whole = r / CHUNK, rest = r - whole * CHUNK, n = o * f;
    const int fi = static_cast<int>(f), oi = static_cast<int>(o);
    if (whole > 0)
        if (int e = status(cublasSgemmStridedBatched(blas(c), CUBLAS_OP_N, CUBLAS_OP_T, fi, oi, static_cast<int>(CHUNK), &one, x, fi,
                                                     CHUNK * f, y, oi, CHUNK * o, &zero, scratch, fi, n, static_cast<int>(whole))))
            return e;
    if (rest > 0)
        if (int e = status(cublasSgemm(blas(c), CUBLAS_OP_N, CUBLAS_OP_T, fi, oi, static_cast<int>(rest), &one, x + whole * CHUNK * f, fi,
                                       y + whole * CHUNK * o, oi, &zero, scratch + whole * n, fi)))
            return e;
    return add_partials(c, w, n, scratch, chunks(r));
}

}  // extern "C"
