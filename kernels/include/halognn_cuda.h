/*
 * CUDA kernels of halognn, and the few services of the CUDA runtime that it needs:
 * libhalognn_cuda.so, loaded at run time.
 *
 * Plain C: no C++ types, no exceptions, no hidden state. A context is one device with five
 * streams and one cuBLAS handle:
 *
 *   HALOGNN_COMPUTE   every kernel, in the order of the calls
 *   HALOGNN_UP        copies to the device beside them      events order the five
 *   HALOGNN_DOWN      copies from the device beside them
 *   HALOGNN_COMM      slices to and from other devices, and their sums
 *   HALOGNN_DRAW      minibatches being drawn
 *
 * Every call returns 0 or a code that halognn_cuda_error names; an error of a kernel appears at the
 * next call that waits. Several threads may use a context (every call makes its device current on
 * the calling thread), but only one at a time may call the kernels of a stream. Only
 * halognn_cuda_alloc allocates device memory: the caller passes memory for partial sums (scratch).
 * From the start a context has cuBLAS's workspace, and counters by which the threads of a kernel
 * find out which is the last.
 *
 * Matrices are row-major without padding, of float32 unless they are a halognn_cuda_matrix. All
 * pointers of kernels are to device memory unless the name begins with host_. Sums over edges are
 * made in edge order, sums over rows in chunks of HALOGNN_CHUNK_ROWS rows that are added in chunk
 * order, and nothing is fused (no multiply-add). Matrix products, layer_norm, attention and the
 * losses sum in another fixed order; all other kernels give the bits of the plain reference. Every
 * kernel gives the same bits in every run on one kind of device.
 *
 * halognn_cuda.def declares the functions, halognn_kernels.def the kernels among them.
 */
#ifndef HALOGNN_CUDA_H
#define HALOGNN_CUDA_H

#include <stdint.h>

typedef struct halognn_cuda halognn_cuda;
enum { HALOGNN_COMPUTE, HALOGNN_UP, HALOGNN_DOWN, HALOGNN_COMM, HALOGNN_DRAW, HALOGNN_STREAMS };

#define HALOGNN_CHUNK_ROWS 512
#define HALOGNN_FACTOR_ALIGN 128 /* elements */

typedef struct {
    char name[256];
    int major, minor;               /* compute capability */
    int multiprocessors;
    int driver, runtime;            /* versions, 1000*major + 10*minor */
    int emulated;                   /* there is no device: the kernels run on the host, for tests */
    int64_t memory, available;      /* bytes */
    unsigned char uuid[16];         /* unique to the device */
} halognn_cuda_properties;

/* A matrix of float32 or, if bf16, of bfloat16; absent if of is NULL. Numbers stored in bfloat16
 * are rounded to nearest, ties to even. */
typedef struct {
    void *of;
    int bf16;
} halognn_cuda_matrix;

/* Scattered feature rows: row i is row of[i] & mask of tables[of[i] >> HALOGNN_ROW_BITS], at
 * most HALOGNN_TABLES. Elements are float32 if bytes is 4, float16 if 2, int8 if 1. For int8,
 * column c of a result is multiplied by scale[c], in device memory, unless scale is NULL. */
#define HALOGNN_TABLES 3
#define HALOGNN_ROW_BITS 48
typedef struct {
    const void *tables[HALOGNN_TABLES];
    const uint64_t *of;
    int bytes;
    const float *scale;
} halognn_cuda_rows;

/* What follows a sum x: add is added, unless absent; HALOGNN_RELU makes it x < 0 ? 0 : x, so that
 * NaN stays NaN, and HALOGNN_ELU x > 0 ? x : exp(x) - 1; then elements whose bits are below
 * threshold become 0 and the others are multiplied by scale. The bits follow from (key,
 * vertices[r], column) as compute.DropoutRow.Bits defines; with threshold 0 nothing is dropped and
 * vertices are not read. Last, results are rounded to float32 without `dropped` low bits; 0: they
 * are not. All zero: nothing follows. */
typedef struct {
    halognn_cuda_matrix add; /* [rows,cols] */
    int activation;
    uint32_t threshold;
    float scale;
    uint64_t key;
    const int32_t *vertices; /* [rows] */
    int dropped;
} halognn_cuda_then;

#define HALOGNN_MEMORY_NAME 64 /* bytes of a name of shared device memory */

/* The result of a loss: the sum over rows, unscaled, in chunks, and counts. */
typedef struct {
    double loss;
    int64_t counts[3];
} halognn_cuda_loss;

/* What a loss writes for a host that does not wait for it: in head [4 + HALOGNN_EXTRAS] the loss
 * times scale, three counts (of softmax_ce right, wrong, wrong rows), and extras. If the loss is
 * not finite and places[0] and *skipped are 0, places[0] becomes 1, places[1 + 2*k] 1 + the first
 * row of suspect k with a number that is not finite, and places[2 + 2*k] 1 + its vertex if it is
 * one of the known first rows; both 0 if there is none. places [1 + 2*HALOGNN_SUSPECTS] are zero
 * before; *skipped is that of halognn_cuda_bound. */
#define HALOGNN_SUSPECTS 24
#define HALOGNN_EXTRAS 12
typedef struct {
    halognn_cuda_matrix x; /* [rows,cols] */
    int64_t rows, cols, known;
    const int32_t *vertices; /* [known] */
} halognn_cuda_suspect;
typedef struct {
    float *head;
    float extras[HALOGNN_EXTRAS];
    uint32_t *places;
    const float *skipped;
    int suspects;
    halognn_cuda_suspect of[HALOGNN_SUSPECTS];
} halognn_cuda_queued_loss;

/* An update is made if *loss is finite and at most limit, and *skipped is 0; otherwise *skipped
 * becomes 1. If loss is NULL, it is made. */
typedef struct {
    const float *loss;
    float *skipped;
    double limit;
} halognn_cuda_bound;

/* A minibatch is drawn as sample.Reference draws one of kind neighbour or labor. All pointers are
 * to device memory. Local numbers are positions in the frontier. */

/* What all minibatches share. Rows of the topology are those of graph.CSC; part p has the
 * vertices [parts[p], parts[p+1]). where [vertices] refers to each vertex's feature row in a
 * halognn_cuda_rows. It is HALOGNN_ELSEWHERE for a row that lies in no complete table; if where
 * is NULL, all rows do. */
#define HALOGNN_ELSEWHERE UINT64_MAX
typedef struct {
    const int64_t *indptr;   /* [vertices + 1] */
    const int32_t *indices;  /* [edges] */
    const int32_t *original; /* [vertices] */
    const uint64_t *where;
    const int64_t *parts; /* [num_parts + 1] */
    int64_t vertices, edges;
    int num_parts;
    uint32_t *map; /* [vertices] of drawings with greater tags, or filled */
} halognn_cuda_topology;

/* What the host reads of a minibatch: the length of the frontier, of the seeds and after each hop;
 * edges drawn by each hop; vertices whose rows lie elsewhere; a sum over the edges
 * (sample.Minibatch.EdgesDigest); and whether seeds or topology broke a rule: then nothing else is
 * of use. */
#define HALOGNN_HOPS 16
typedef struct {
    int64_t vertices[HALOGNN_HOPS + 1], edges[HALOGNN_HOPS], missing;
    uint64_t digest;
    int64_t fault;
} halognn_cuda_drawn;

/* The number of every vertex in a hop (cpu.Numbers, without a table). If lasts is 0, vertices have
 * none. */
typedef struct {
    uint64_t now, next, phases, turn, lasts;
} halognn_cuda_numbers;

/* One hop: at most the given destinations, edges and sources. Arrays have room for all of them,
 * and for one more edge for each destination if the drawing has self edges. weights and the
 * transposed arrays may be NULL: then they are not made. */
typedef struct {
    uint64_t word;
    halognn_cuda_numbers numbers; /* destinations draw by them, not by word */
    int fanout; /* 1 to HALOGNN_FANOUT */
    int64_t destinations, edges, sources;
    int64_t *indptr;     /* [destinations + 1] */
    int32_t *indices;    /* [edges] */
    float *weights;      /* [edges] */
    int64_t *out_indptr; /* [sources + 1] */
    int32_t *out_indices, *out_edges;
    float *out_weights;
} halognn_cuda_hop;

/* A minibatch to be drawn. Its values in the map are below 1 << value_bits, and its tag is added
 * to them: no bound on sources plus edges of a hop exceeds that. Destinations have edges from
 * themselves if self, and edges have weights as weighting says. If grouped, the edges of the
 * last hop are in the order of their sources' parts (graph.Grouper), and then not transposed. */
#define HALOGNN_FANOUT 64
enum { HALOGNN_WEIGHTS_PLAIN, HALOGNN_WEIGHTS_MEAN, HALOGNN_WEIGHTS_SYMMETRIC };
typedef struct {
    halognn_cuda_topology topology;
    uint32_t tag;
    int fresh; /* the map is filled first, as tags have run out */
    const int32_t *seeds;
    int64_t num_seeds;
    halognn_cuda_drawn *drawn;
    int32_t *frontier, *original; /* [sources of the last hop] */
    uint64_t *refs;               /* likewise: of where */
    /* vertices whose rows lie elsewhere, in the order of the frontier, and their local numbers;
     * NULL: there are none */
    int32_t *missing, *missing_at;
    int self, weighting, grouped, hops;
    halognn_cuda_hop hop[HALOGNN_HOPS]; /* the hop of the seeds first */
    /* halognn_cuda_draw_scratch bytes, the first HALOGNN_DRAW_COUNTERS of them zero */
    void *scratch;
} halognn_cuda_drawing;
#define HALOGNN_DRAW_COUNTERS 256

typedef struct halognn_nccl halognn_nccl;
#define HALOGNN_NCCL_ID 128
#define HALOGNN_NCCL_PENDING 200007

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define FUNCTION(type, name, params, args) type halognn_cuda_##name params;
#include "halognn_cuda.def"

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

/* A library and a program fit together if this is the same for both: a hash of all functions. */
#define HALOGNN_CUDA_TYPES 11 /* grows with every change of a type or constant above */
static inline int halognn_cuda_interface(void) {
    static const char text[] = ""
#define FUNCTION(type, name, params, args) #type #name #params
#include "halognn_cuda.def"
        ;
    uint32_t hash = 2166136261u + HALOGNN_CUDA_TYPES; /* FNV-1a */
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return (int)(hash >> 1);
}

#endif
