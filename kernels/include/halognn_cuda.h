/*
 * CUDA kernels of halognn, and the few services of the CUDA runtime that it needs: libhalognn_cuda.so, loaded at run time.
 *
 * Plain C: no C++ types, no exceptions, no hidden state. A context is one device with four streams and one cuBLAS handle:
 *
 *   HALOGNN_COMPUTE   every kernel, in the order of the calls
 *   HALOGNN_UP        copies to the device beside them      events order the four
 *   HALOGNN_DOWN      copies from the device beside them
 *   HALOGNN_COMM      slices to and from other devices, and their sums
 *
 * Every call returns 0 or a code that halognn_cuda_error names; a fault of a kernel shows at the next call that waits. A context
 * may be used by several threads (every call makes its device the calling thread's), but its kernels by one at a time. Nothing here allocates device memory but
 * halognn_cuda_alloc: kernels that need room for partial sums are given it (scratch).
 *
 * Matrices are row-major float32 without padding, in device memory, and so is everything else that a kernel is pointed to unless
 * the name begins with host_. Sums over edges are made in edge order, sums over rows in chunks of HALOGNN_CHUNK_ROWS rows
 * that are added in chunk order, and nothing is fused (no multiply-add): all kernels but the matrix products, layer_norm and the losses give
 * the bits of the plain reference, and all of them the same bits in every run on one kind of device.
 */
#ifndef HALOGNN_CUDA_H
#define HALOGNN_CUDA_H

#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every change of this file. */
#define HALOGNN_CUDA_VERSION 3

#define HALOGNN_CHUNK_ROWS 512

typedef struct halognn_cuda halognn_cuda;
enum { HALOGNN_COMPUTE, HALOGNN_UP, HALOGNN_DOWN, HALOGNN_COMM, HALOGNN_STREAMS };

int halognn_cuda_version(void);
/* The text of a code; never NULL. */
const char *halognn_cuda_error(int code);
/* Whether a code says that device memory has run out. */
int halognn_cuda_is_out_of_memory(int code);
/* Devices that this process sees; none is no fault. */
int halognn_cuda_count(int *devices);
/* Makes a device the calling thread's, and makes its context: what an MPI that knows CUDA looks for when it starts. uuid [16] is the device's,
 * available the bytes that are free beside the context. */
int halognn_cuda_choose(int device, unsigned char *uuid, int64_t *available);

typedef struct {
    char name[256];
    int major, minor;               /* compute capability */
    int multiprocessors;
    int driver, runtime;            /* versions, 1000*major + 10*minor */
    int emulated;                   /* there is no device: the kernels run on the host, for tests */
    int64_t memory, available;      /* bytes */
    unsigned char uuid[16];         /* of the device: no two are alike */
} halognn_cuda_properties;

/* Opens a device; close frees streams and handle, not memory. */
int halognn_cuda_open(int device, halognn_cuda **out);
int halognn_cuda_close(halognn_cuda *c);
int halognn_cuda_describe(halognn_cuda *c, halognn_cuda_properties *out);

/* Device memory, and pinned host memory. Both are aligned to 256 bytes; neither is zeroed. */
int halognn_cuda_alloc(halognn_cuda *c, int64_t bytes, void **out);
int halognn_cuda_free(halognn_cuda *c, void *p);
int halognn_cuda_alloc_host(halognn_cuda *c, int64_t bytes, void **out);
int halognn_cuda_free_host(halognn_cuda *c, void *p);

/* Pins host memory that is there already, such as the pages of a mapped file, for kernels to read: *out is where they find it. Nobody may write
 * it from now on. Memory that cannot be pinned is an error after which the context is as good as before. unmap_host ends it. */
int halognn_cuda_map_host(halognn_cuda *c, const void *host, int64_t bytes, void **out);
int halognn_cuda_unmap_host(halognn_cuda *c, const void *host);

/* Copies are queued on the stream. What is not pinned must stay as it is until a sync. */
int halognn_cuda_upload(halognn_cuda *c, int stream, void *dst, const void *host_src, int64_t bytes);
int halognn_cuda_download(halognn_cuda *c, int stream, void *host_dst, const void *src, int64_t bytes);
int halognn_cuda_copy(halognn_cuda *c, int stream, void *dst, const void *src, int64_t bytes);
int halognn_cuda_zero(halognn_cuda *c, int stream, void *dst, int64_t bytes);
/* Copies at once, from wherever to wherever: what an MPI does that knows device memory. It waits for no stream. */
int halognn_cuda_copy_now(void *dst, const void *src, int64_t bytes);

/* An event is what has been queued on a stream when it is recorded. order makes what is queued on a stream from now on wait for it;
 * wait makes the caller wait, asleep; elapsed is the milliseconds between two that are timed. */
int halognn_cuda_make_event(halognn_cuda *c, int timed, void **out);
int halognn_cuda_free_event(halognn_cuda *c, void *event);
int halognn_cuda_record(halognn_cuda *c, int stream, void *event);
int halognn_cuda_order(halognn_cuda *c, int stream, void *event);
int halognn_cuda_wait(halognn_cuda *c, void *event);
int halognn_cuda_elapsed(halognn_cuda *c, void *begin, void *end, float *milliseconds);
int halognn_cuda_sync(halognn_cuda *c, int stream);

/* Matrix products by cuBLAS in float32 (no TF32).  y [r,o], x [r,f], w [o,f]
 *   matmul          y  = x wT  (+ y if add)
 *   matmul_input    x  = y w   (+ x if add)
 *   matmul_weights  w  = yT x, rows in chunks; scratch [chunks,o,f] */
int halognn_cuda_matmul(halognn_cuda *c, float *y, const float *x, const float *w, int64_t r, int64_t f, int64_t o, int add);
int halognn_cuda_matmul_input(halognn_cuda *c, float *x, const float *y, const float *w, int64_t r, int64_t f, int64_t o, int add);
int halognn_cuda_matmul_weights(halognn_cuda *c, float *w, const float *y, const float *x, int64_t r, int64_t f, int64_t o,
                                float *scratch);

/* y[r,:] += b */
int halognn_cuda_add_bias(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *b);
/* sum[:] = sum of the rows of x, in chunks; scratch [chunks,cols] */
int halognn_cuda_column_sum(halognn_cuda *c, float *sum, int64_t rows, int64_t cols, const float *x, float *scratch);
/* sum[i] += x[i] */
int halognn_cuda_add_into(halognn_cuda *c, float *sum, int64_t n, const float *x);
/* sum[i] = s_0[i] + s_1[i] + ... in this order, where s_r is slices[r*n..], but s_rank is sum itself. slices [ranks,n] */
int halognn_cuda_add_slices(halognn_cuda *c, int stream, float *sum, int64_t n, const float *slices, int rank, int ranks);

/* Feature rows wherever they lie: row i is row of[i] & mask of tables[of[i] >> HALOGNN_ROW_BITS]; half: of float16. At most HALOGNN_TABLES. */
#define HALOGNN_TABLES 2
#define HALOGNN_ROW_BITS 48
typedef struct {
    const void *tables[HALOGNN_TABLES];
    const uint64_t *of;
    int half;
} halognn_cuda_rows;
/* Row i of dst [n,row_bytes] = the bytes at the address from[i], in mapped or device memory, on a stream beside the compute one. All addresses,
 * dst and row_bytes are multiples of align: 16, 8, 4 or 2. */
int halognn_cuda_fetch_rows(halognn_cuda *c, int stream, void *dst, int64_t n, int64_t row_bytes, const uint64_t *from, int align);
/* dst[i,:] = row i as float32, i < n */
int halognn_cuda_gather_rows(halognn_cuda *c, float *dst, int64_t n, int64_t cols, const halognn_cuda_rows *host_rows);
/* out[d,:] = mean of the rows indices[e], e in [indptr[d], indptr[d+1]); zero for an empty segment. out [segments,cols] */
int halognn_cuda_segment_mean_rows(halognn_cuda *c, float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                                   const int32_t *indices, const halognn_cuda_rows *host_rows);
/* The same of the rows of a matrix h. */
int halognn_cuda_segment_mean(halognn_cuda *c, float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                              const int32_t *indices, const float *h);
/* out[d,:] = (add ? out[d,:] : 0) + sum over e in [indptr[d], indptr[d+1]) of h[indices[e],:] * weights[e], or of h[indices[e],:] if weights is
 * NULL. The same of the transpose is its gradient. */
int halognn_cuda_segment_sum(halognn_cuda *c, float *out, int64_t segments, int64_t cols, const int64_t *indptr,
                             const int32_t *indices, const float *weights, const float *h, int add);
/* dh[s,:] = (add ? dh[s,:] : 0) + sum over e in segment s of the transpose of dout[t,:] * (1/degree(t)), t = t_indices[e],
 * degree(t) = indptr[t+1] - indptr[t], for s < segments; the other rows of dh [rows,cols] get no sum. */
int halognn_cuda_segment_mean_backward(halognn_cuda *c, float *dh, int64_t rows, int64_t cols, int64_t segments,
                                       const int64_t *t_indptr, const int32_t *t_indices, const int64_t *indptr,
                                       const float *dout, int add);

/* y = y < 0 ? 0 : y, so that NaN stays NaN. */
int halognn_cuda_relu(halognn_cuda *c, float *y, int64_t n);
/* The same, then elements whose bits are below threshold become 0 and the others are multiplied by scale. The bits follow from (key,
 * vertices[r], column) as compute.DropoutRow.Bits defines. */
int halognn_cuda_relu_dropout(halognn_cuda *c, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,
                              const int32_t *vertices);
/* dy = y > 0 ? dy * scale : 0 */
int halognn_cuda_relu_backward(halognn_cuda *c, float *dy, int64_t n, const float *y, float scale);

/* y = (x - mean) * rstd * gamma + beta by rows, rstd = 1/sqrt(var + eps), biased variance; y may be x. mean, rstd [rows] */
int halognn_cuda_layer_norm(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *x, const float *gamma,
                            const float *beta, float *mean, float *rstd, float eps);
/* dx, dgamma and dbeta [cols]; the latter in chunks; dx may be dy. scratch [chunks,2,cols] */
int halognn_cuda_layer_norm_backward(halognn_cuda *c, float *dx, float *dgamma, float *dbeta, int64_t rows, int64_t cols,
                                     const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
                                     float *scratch);

/* What a loss comes to: the sum over rows, unscaled, in chunks, and counts. */
typedef struct {
    double loss;
    int64_t counts[3];
} halognn_cuda_loss;
/* The bytes of scratch for a loss of so many rows. */
int64_t halognn_cuda_loss_scratch(int64_t rows);
/* dlogits, unless NULL, is the gradient times scale. *result is complete when the stream has got there.
 * counts[0] = rows whose first largest logit is the label. labels[r] in [0,cols). */
int halognn_cuda_softmax_ce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols, const float *logits, const int32_t *labels,
                            float scale, halognn_cuda_loss *result, void *scratch);
/* counts = true positives, false positives, false negatives of logit > 0. targets [rows*cols], 0 or 1. */
int halognn_cuda_sigmoid_bce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols, const float *logits, const uint8_t *targets,
                             float scale, halognn_cuda_loss *result, void *scratch);

/* g += l2*p;  m = beta1*m + (1-beta1)*g;  v = beta2*v + (1-beta2)*g*g;  p = decay*p - step * m / (sqrt(v)*root + eps) */
int halognn_cuda_adam(halognn_cuda *c, float *p, float *m, float *v, int64_t n, const float *g, float l2, float decay, float beta1,
                      float one_minus_beta1, float beta2, float one_minus_beta2, float step, float root, float eps);
/* g += l2*p;  buf = first ? g : momentum*buf + g;  p -= lr*buf */
int halognn_cuda_sgd(halognn_cuda *c, float *p, float *buf, int64_t n, const float *g, float l2, float momentum, float lr, int first);

/* NCCL, which is loaded when it is asked for: every rank opens what joins its device to those of all others. Calls on it are queued on
 * HALOGNN_COMM and come in one order on all ranks. One that has to wait for other ranks returns HALOGNN_NCCL_PENDING; then none may
 * follow but abort until state returns another code: 0, or why the call failed. state also tells what has gone wrong since. */
typedef struct halognn_nccl halognn_nccl;
#define HALOGNN_NCCL_ID 128
#define HALOGNN_NCCL_PENDING 200007
/* Loads the library of that name or path. text becomes its version, or what is wrong with it, for which 1 is returned. Not to be called by
 * two threads at a time. */
int halognn_cuda_nccl_load(const char *path, char *text, int size);
/* One rank makes the id [HALOGNN_NCCL_ID] that all open with. *out is set for 0 and HALOGNN_NCCL_PENDING. */
int halognn_cuda_nccl_id(char *id);
int halognn_cuda_nccl_open(halognn_cuda *c, const char *id, int rank, int ranks, halognn_nccl **out);
int halognn_cuda_nccl_state(halognn_nccl *n);
/* Sends sends[r] floats at send[r] to every other rank r, and receives recvs[r] from it at recv[r]; 0 for nothing. Arrays [ranks]. */
int halognn_cuda_nccl_exchange(halognn_nccl *n, const void *const *send, const int64_t *sends, void *const *recv, const int64_t *recvs);
/* buf[i] = the sum over all ranks, in an order of NCCL's choice. */
int halognn_cuda_nccl_sum(halognn_nccl *n, float *buf, int64_t count);
/* All ranks finish before they close. A rank that has met a fault aborts instead, which ends what is under way; either frees n. */
int halognn_cuda_nccl_finish(halognn_nccl *n);
int halognn_cuda_nccl_close(halognn_nccl *n);
int halognn_cuda_nccl_abort(halognn_nccl *n);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
