// The matrix product of oneDNN. It is loaded at run time, so the program is built without the
// library and its headers. It uses only functions that are the same in versions 2 and 3. These are
// dnnl_version and two products that need no primitive: dnnl_sgemm and dnnl_gemm_bf16bf16f32.
#include <stdint.h>

/* Loads the library, which stays loaded, and returns NULL. If it fails, it returns an error text,
 * which is valid until the next call. */
const char *halognn_onednn_load(const char *path);
/* The version of the loaded library, and whether it uses AVX-512. */
void halognn_onednn_version(int *major, int *minor, int *patch, int *avx512);
/* Sets C [m,n] = op(A) op(B) + beta C, on the calling thread only. Matrices are stored by rows.
 * transa and transb are 'T' for a transposed factor, otherwise 'N'. Returns 0, or oneDNN's error
 * status. */
int halognn_onednn_sgemm(char transa, char transb, int64_t m, int64_t n, int64_t k, const float *a,
                         int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                         int64_t ldc);
/* Returns whether the library multiplies bfloat16 by instructions of this processor, AVX512-BF16 or
 * AMX. */
int halognn_onednn_has_bf16(void);
/* Returns whether it multiplies bfloat16 by AMX. */
int halognn_onednn_has_amx(void);
/* Does what halognn_onednn_sgemm does, for factors of bfloat16 and with sums in float32. */
int halognn_onednn_bgemm(char transa, char transb, int64_t m, int64_t n, int64_t k,
                         const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta,
                         float *c, int64_t ldc);
