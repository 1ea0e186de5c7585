// The functions of libhalognn_cuda.so, by pointers that halognn_gpu_load sets: the program is linked without the library. Every function
// halognn_cuda_X of the header is gpu_X here, with its parameters (but that host memory is bytes, in which cgo
// looks for no Go pointers); the compiler holds the two lists together.
#include <stddef.h>

#include "halognn_cuda.h"

#define HALOGNN_GPU_FUNCTIONS(F)                                                                                                             \
    F(int, version, (void), ())                                                                                                              \
    F(const char *, error, (int code), (code))                                                                                               \
    F(int, is_out_of_memory, (int code), (code))                                                                                             \
    F(int, count, (int *n), (n))                                                                                                             \
    F(int, choose, (int device, unsigned char *uuid, int64_t *free), (device, uuid, free))                                                   \
    F(int, open, (int device, halognn_cuda **out), (device, out))                                                                            \
    F(int, close, (halognn_cuda *c), (c))                                                                                                    \
    F(int, describe, (halognn_cuda *c, halognn_cuda_properties *out), (c, out))                                                              \
    F(int, alloc, (halognn_cuda *c, int64_t bytes, void **out), (c, bytes, out))                                                             \
    F(int, free, (halognn_cuda *c, void *p), (c, p))                                                                                         \
    F(int, alloc_host, (halognn_cuda *c, int64_t bytes, void **out), (c, bytes, out))                                                        \
    F(int, free_host, (halognn_cuda *c, void *p), (c, p))                                                                                    \
    F(int, map_host, (halognn_cuda *c, const char *host, int64_t bytes, void **out), (c, host, bytes, out))                                  \
    F(int, unmap_host, (halognn_cuda *c, const char *host), (c, host))                                                                       \
    F(int, upload, (halognn_cuda *c, int s, void *dst, const char *src, int64_t bytes), (c, s, dst, src, bytes))                             \
    F(int, download, (halognn_cuda *c, int s, char *dst, const void *src, int64_t bytes), (c, s, dst, src, bytes))                           \
    F(int, copy, (halognn_cuda *c, int s, void *dst, const void *src, int64_t bytes), (c, s, dst, src, bytes))                               \
    F(int, zero, (halognn_cuda *c, int s, void *dst, int64_t bytes), (c, s, dst, bytes))                                                     \
    F(int, copy_now, (char *dst, const char *src, int64_t bytes), (dst, src, bytes))                                                         \
    F(int, make_event, (halognn_cuda *c, int timed, void **out), (c, timed, out))                                                            \
    F(int, free_event, (halognn_cuda *c, void *e), (c, e))                                                                                   \
    F(int, record, (halognn_cuda *c, int s, void *e), (c, s, e))                                                                             \
    F(int, order, (halognn_cuda *c, int s, void *e), (c, s, e))                                                                              \
    F(int, wait, (halognn_cuda *c, void *e), (c, e))                                                                                         \
    F(int, elapsed, (halognn_cuda *c, void *b, void *e, float *ms), (c, b, e, ms))                                                           \
    F(int, sync, (halognn_cuda *c, int s), (c, s))                                                                                           \
    F(int, matmul, (halognn_cuda *c, float *y, const float *x, const float *w, int64_t r, int64_t f, int64_t o, int add),                    \
      (c, y, x, w, r, f, o, add))                                                                                                            \
    F(int, matmul_input, (halognn_cuda *c, float *x, const float *y, const float *w, int64_t r, int64_t f, int64_t o, int add),              \
      (c, x, y, w, r, f, o, add))                                                                                                            \
    F(int, matmul_weights, (halognn_cuda *c, float *w, const float *y, const float *x, int64_t r, int64_t f, int64_t o, float *scratch),     \
      (c, w, y, x, r, f, o, scratch))                                                                                                        \
    F(int, add_bias, (halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *b), (c, y, rows, cols, b))                         \
    F(int, column_sum, (halognn_cuda *c, float *sum, int64_t rows, int64_t cols, const float *x, float *scratch),                            \
      (c, sum, rows, cols, x, scratch))                                                                                                      \
    F(int, add_into, (halognn_cuda *c, float *sum, int64_t n, const float *x), (c, sum, n, x))                                               \
    F(int, add_slices, (halognn_cuda *c, int s, float *sum, int64_t n, const float *slices, int rank, int ranks),                            \
      (c, s, sum, n, slices, rank, ranks))                                                                                                   \
    F(int, fetch_rows, (halognn_cuda *c, int s, void *dst, int64_t n, int64_t row_bytes, const uint64_t *from, int align),                   \
      (c, s, dst, n, row_bytes, from, align))                                                                                                \
    F(int, gather_rows, (halognn_cuda *c, float *dst, int64_t n, int64_t cols, const halognn_cuda_rows *r), (c, dst, n, cols, r))            \
    F(int, segment_mean_rows, (halognn_cuda *c, float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,   \
                               const halognn_cuda_rows *r),                                                                                  \
      (c, out, segments, cols, indptr, indices, r))                                                                                          \
    F(int, segment_mean, (halognn_cuda *c, float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,        \
                          const float *h),                                                                                                   \
      (c, out, segments, cols, indptr, indices, h))                                                                                          \
    F(int, segment_sum, (halognn_cuda *c, float *out, int64_t segments, int64_t cols, const int64_t *indptr, const int32_t *indices,         \
                         const float *weights, const float *h, int add),                                                                     \
      (c, out, segments, cols, indptr, indices, weights, h, add))                                                                            \
    F(int, segment_mean_backward, (halognn_cuda *c, float *dh, int64_t rows, int64_t cols, int64_t segments, const int64_t *t_indptr,        \
                                   const int32_t *t_indices, const int64_t *indptr, const float *dout, int add),                             \
      (c, dh, rows, cols, segments, t_indptr, t_indices, indptr, dout, add))                                                                 \
    F(int, relu, (halognn_cuda *c, float *y, int64_t n), (c, y, n))                                                                          \
    F(int, relu_dropout, (halognn_cuda *c, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,              \
                          const int32_t *vertices),                                                                                          \
      (c, y, rows, cols, threshold, scale, key, vertices))                                                                                   \
    F(int, relu_backward, (halognn_cuda *c, float *dy, int64_t n, const float *y, float scale), (c, dy, n, y, scale))                        \
    F(int, layer_norm, (halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *x, const float *gamma, const float *beta,        \
                        float *mean, float *rstd, float eps),                                                                                \
      (c, y, rows, cols, x, gamma, beta, mean, rstd, eps))                                                                                   \
    F(int, layer_norm_backward, (halognn_cuda *c, float *dx, float *dgamma, float *dbeta, int64_t rows, int64_t cols, const float *dy,       \
                                 const float *x, const float *gamma, const float *mean, const float *rstd, float *scratch),                  \
      (c, dx, dgamma, dbeta, rows, cols, dy, x, gamma, mean, rstd, scratch))                                                                 \
    F(int64_t, loss_scratch, (int64_t rows), (rows))                                                                                         \
    F(int, softmax_ce, (halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols, const float *logits, const int32_t *labels,             \
                        float scale, halognn_cuda_loss *result, void *scratch),                                                              \
      (c, dlogits, rows, cols, logits, labels, scale, result, scratch))                                                                      \
    F(int, sigmoid_bce, (halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols, const float *logits, const uint8_t *targets,           \
                         float scale, halognn_cuda_loss *result, void *scratch),                                                             \
      (c, dlogits, rows, cols, logits, targets, scale, result, scratch))                                                                     \
    F(int, adam, (halognn_cuda *c, float *p, float *m, float *v, int64_t n, const float *g, float l2, float decay, float beta1,              \
                  float one_minus_beta1, float beta2, float one_minus_beta2, float step, float root, float eps),                             \
      (c, p, m, v, n, g, l2, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step, root, eps))                                        \
    F(int, sgd, (halognn_cuda *c, float *p, float *buf, int64_t n, const float *g, float l2, float momentum, float lr, int first),           \
      (c, p, buf, n, g, l2, momentum, lr, first))                                                                                            \
    F(int, nccl_load, (const char *path, char *text, int size), (path, text, size))                                                          \
    F(int, nccl_id, (char *id), (id))                                                                                                        \
    F(int, nccl_open, (halognn_cuda *c, const char *id, int rank, int ranks, halognn_nccl **out), (c, id, rank, ranks, out))                 \
    F(int, nccl_state, (halognn_nccl *n), (n))                                                                                               \
    F(int, nccl_exchange, (halognn_nccl *n, void **send, const int64_t *sends, void **recv, const int64_t *recvs),                           \
      (n, (const void *const *)send, sends, (void *const *)recv, recvs))                                                                     \
    F(int, nccl_sum, (halognn_nccl *n, float *buf, int64_t count), (n, buf, count))                                                          \
    F(int, nccl_finish, (halognn_nccl *n), (n))                                                                                              \
    F(int, nccl_close, (halognn_nccl *n), (n))                                                                                               \
    F(int, nccl_abort, (halognn_nccl *n), (n))

struct halognn_gpu_functions {
#define HALOGNN_GPU_POINTER(type, name, params, args) __typeof__(halognn_cuda_##name) *name;
    HALOGNN_GPU_FUNCTIONS(HALOGNN_GPU_POINTER)
#undef HALOGNN_GPU_POINTER
};
extern struct halognn_gpu_functions halognn_gpu;

#define HALOGNN_GPU_CALL(type, name, params, args) \
    static inline type gpu_##name params { return halognn_gpu.name args; }
HALOGNN_GPU_FUNCTIONS(HALOGNN_GPU_CALL)
#undef HALOGNN_GPU_CALL

/* Loads the library and all its functions, for good. Returns NULL, or what is wrong, which stays valid until the next call. */
const char *halognn_gpu_load(const char *path);
/* What the emulated library counts as not freed; -1 for a library that does not count. */
int halognn_gpu_leaks(void);
/* When queued work of the emulated library runs: 0, as late as it may; others, at random. A real library has its own mind. */
void halognn_gpu_emulated_seed(uint64_t seed);
/* Breaks the communicators of a rank that the emulated NCCL has. */
void halognn_gpu_emulated_break(int rank);
/* Makes the next n calls that pin host memory fail. A real library pins what it can. */
void halognn_gpu_emulated_refuse(int n);
