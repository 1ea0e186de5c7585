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
 * Every call returns 0 or an error code, whose text halognn_cuda_error returns. An error of a
 * kernel is returned by the next call that waits. Several threads may use a context (every call
 * makes its device current on the calling thread), but only one at a time may call the kernels of a
 * stream. Only halognn_cuda_alloc allocates device memory. For partial sums the caller passes
 * memory, called scratch. Opening a context allocates cuBLAS's workspace, and counters by which the
 * threads of a kernel find out which of them finishes last.
 *
 * Matrices are row-major without padding, of float32 unless they are a halognn_cuda_matrix. All
 * pointers of kernels are to device memory unless the name begins with host_. Sums over edges are
 * computed in edge order. Sums over rows are computed in chunks of HALOGNN_CHUNK_ROWS rows, which
 * are added in order. There are no fused multiply-adds. Matrix products, layer_norm, attention and
 * the losses sum in another fixed order. All other kernels give the same bits as the plain
 * reference. Every kernel gives the same bits in every run on one kind of device.
 *
 * halognn_cuda.def declares the functions, and halognn_kernels.def those of them that are kernels.
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

/* A matrix of float32 or, if bf16 is set, of bfloat16. If the pointer `of` is NULL, the matrix is
 * absent. Numbers stored in bfloat16 are rounded to nearest, ties to even. A row begins stride
 * elements after the row before; if stride is 0, as many as it has columns. Only kernels that say
 * so take another stride. */
typedef struct {
    void *of;
    int bf16;
    int64_t stride;
} halognn_cuda_matrix;

/* Groups of consecutive rows, each with its own weights. Group g ends before row ends[g], and its
 * weights begin at element g*stride of all weights. For groups of more than `large` rows kernels
 * neither compute nor write anything.
 *
 * The rows of the other groups are divided into tiles of sizes[0] rows, and what remains of a group
 * into tiles of sizes[1] rows, unless that is 0. All groups have tiles[i] tiles of sizes[i] rows,
 * and at most `rest` rows of a group are in no tile. If there are no tiles, both sizes are 0, and
 * at, first and sums are not used. Else they are scratch. */
typedef struct {
    const int32_t *ends;
    int64_t count, stride, large, rest;
    int64_t sizes[2], tiles[2];
    const void **at; /* [3, all tiles] */
    int32_t *first;  /* [2, count]; only for gradients of weights, like sums */
    float *sums;     /* [all tiles, elements of a group's weights] */
} halognn_cuda_groups;

/* Scattered feature rows in up to HALOGNN_TABLES tables. The upper bits of of[i], from
 * HALOGNN_ROW_BITS on, are the table of row i, and the lower bits are its row in this table.
 * Elements are float32 if bytes is 4, float16 if 2, int8 if 1. For int8, column c of a result is
 * multiplied by scale[c], which lies in device memory, unless scale is NULL. */
#define HALOGNN_TABLES 3
#define HALOGNN_ROW_BITS 48
typedef struct {
    const void *tables[HALOGNN_TABLES];
    const uint64_t *of;
    int bytes;
    const float *scale;
} halognn_cuda_rows;

/* What a kernel does with a sum x before it stores it. First, add is added, unless it is absent.
 * Then HALOGNN_RELU turns x into x < 0 ? 0 : x, so that NaN stays NaN, and HALOGNN_ELU into x > 0 ?
 * x : exp(x) - 1. Then comes dropout: elements whose bits are below threshold become 0, and the
 * others are multiplied by scale. The bits are computed from key, vertices[r] and the column as
 * compute.DropoutRow.Bits defines. With threshold 0 nothing is dropped and vertices are not read.
 * Last, the results are rounded to float32 without `dropped` low bits, unless that is 0. If all
 * fields are zero, x is stored as it is. */
typedef struct {
    halognn_cuda_matrix add; /* [rows,cols], of any stride */
    int activation;
    uint32_t threshold;
    float scale;
    uint64_t key;
    const int32_t *vertices; /* [rows] */
    int dropped;
} halognn_cuda_then;

/* What completes the sums x [segments,cols] of a segment kernel before it stores them. First,
 * own[s,:], times 1 + *scale unless scale is NULL, is added to x[s,:], s < rows. Then x is rounded
 * to float32 without `dropped` low bits, unless that is 0. Last, unless `of` is absent, x is
 * replaced by its gradient with respect to the input of what `back` has done, of which the result
 * was `of` [segments,cols]: see epilogue_backward. If all fields are zero, x is stored as it is. */
typedef struct {
    halognn_cuda_matrix own; /* [rows,cols], of any stride */
    int64_t rows;
    const float *scale;
    int dropped;
    halognn_cuda_matrix of;
    halognn_cuda_then back;
} halognn_cuda_ending;

/* One matrix that join makes: y [rows, 2 cols] = [a | b], rounded to its type; a, b [rows,cols]. */
#define HALOGNN_JOININGS 8
typedef struct {
    halognn_cuda_matrix y, a, b;
    int64_t rows, cols;
} halognn_cuda_joining;

#define HALOGNN_MEMORY_NAME 64 /* bytes of a name of shared device memory */

/* The result of a loss: the sum over rows, added in chunks and not multiplied by scale, and
 * counts. */
typedef struct {
    double loss;
    int64_t counts[3];
} halognn_cuda_loss;

/* Where a loss writes its results if the host does not wait for them. head [4 + HALOGNN_EXTRAS]
 * gets the loss times scale, three counts (for softmax_ce the numbers of right, wrong and wrong
 * rows), and the extras. If the loss is not finite, and places[0] and *skipped are 0, then
 * places[0] becomes 1. For each suspect k, places[1 + 2*k] becomes 1 + the first row with a number
 * that is not finite, and places[2 + 2*k] becomes 1 + the vertex of this row if the row is one of
 * the first `known` rows. Both are 0 if there is no such row or vertex. The caller sets places [1 +
 * 2*HALOGNN_SUSPECTS] to zero before. *skipped is the field of halognn_cuda_bound. */
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

/* When an optimiser's update is made: if *loss is finite and at most limit, and *skipped is 0.
 * Otherwise the update is skipped and *skipped becomes 1. If loss is NULL, the update is always
 * made. */
typedef struct {
    const float *loss;
    float *skipped;
    double limit;
} halognn_cuda_bound;

/* A minibatch is drawn exactly as sample.Reference draws one of kind neighbour or labor. All
 * pointers are to device memory. The local number of a vertex is its position in the frontier. */

/* The topology, which all minibatches use. It has the arrays of graph.CSC. Part p has the vertices
 * [parts[p], parts[p+1]). where [vertices] refers to each vertex's feature row, as
 * halognn_cuda_rows.of does. It is HALOGNN_ELSEWHERE for a row that is in no complete table. If
 * where is NULL, this holds for all rows. */
#define HALOGNN_ELSEWHERE UINT64_MAX
typedef struct {
    const int64_t *indptr;   /* [vertices + 1] */
    const int32_t *indices;  /* [edges] */
    const int32_t *original; /* [vertices] */
    const uint64_t *where;
    const int64_t *parts; /* [num_parts + 1] */
    int64_t vertices, edges;
    int num_parts;
    uint32_t *map; /* [vertices] values of drawings with greater tags, or filled */
} halognn_cuda_topology;

/* What the host reads of a drawn minibatch: the length of the frontier with only the seeds, and
 * after each hop; the number of edges that each hop has drawn; the number of vertices whose rows
 * lie elsewhere; a sum over the edges (sample.Minibatch.EdgesDigest); and whether the seeds or the
 * topology are invalid, in which case nothing else may be used. */
#define HALOGNN_HOPS 16
typedef struct {
    int64_t vertices[HALOGNN_HOPS + 1], edges[HALOGNN_HOPS], missing;
    uint64_t digest;
    int64_t fault;
} halognn_cuda_drawn;

/* The random numbers of vertices in a hop, as halognn_numbers without a table. If lasts is 0,
 * vertices have no numbers. */
typedef struct {
    uint64_t now, next, phases, turn, lasts;
} halognn_cuda_numbers;

/* One hop. destinations, edges and sources are the largest numbers that it may have. The arrays
 * have room for all of them, and for one more edge for each destination if the drawing has self
 * edges. If weights or the transposed arrays are NULL, they are not computed. */
typedef struct {
    uint64_t word;
    halognn_cuda_numbers numbers; /* if given, destinations draw by these numbers, not by word */
    int fanout; /* 1 to HALOGNN_FANOUT */
    int64_t destinations, edges, sources;
    int64_t *indptr;     /* [destinations + 1] */
    int32_t *indices;    /* [edges] */
    float *weights;      /* [edges] */
    int64_t *out_indptr; /* [sources + 1] */
    int32_t *out_indices, *out_edges;
    float *out_weights;
} halognn_cuda_hop;

/* A minibatch to be drawn. In the map it uses values below 1 << value_bits, to which its tag is
 * added, so for every hop the bounds of sources plus edges must be at most 1 << value_bits. If self
 * is set, every destination gets an edge from itself. Edges have the weights that weighting says.
 * If grouped is set, the edges of the last hop are in the order of their sources' parts
 * (graph.Grouper), and the last hop is not transposed. */
#define HALOGNN_FANOUT 64
enum { HALOGNN_WEIGHTS_PLAIN, HALOGNN_WEIGHTS_MEAN, HALOGNN_WEIGHTS_SYMMETRIC };
typedef struct {
    halognn_cuda_topology topology;
    uint32_t tag;
    int fresh; /* whether the map is filled first, because no smaller tag is left */
    const int32_t *seeds;
    int64_t num_seeds;
    halognn_cuda_drawn *drawn;
    int32_t *frontier, *original; /* [sources of the last hop] */
    uint64_t *refs;               /* [sources of the last hop] the entries of where */
    /* Vertices whose rows lie elsewhere, in the order of the frontier, and their local numbers.
     * NULL if there are none. */
    int32_t *missing, *missing_at;
    int self, weighting, grouped, hops;
    halognn_cuda_hop hop[HALOGNN_HOPS]; /* hop[0] is the hop of the seeds */
    /* Memory of halognn_cuda_draw_scratch bytes, of which the first HALOGNN_DRAW_COUNTERS are
     * zero. */
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

/* Returns a hash of all functions and types. A library and a program fit together if it is the same
 * for both. */
#define HALOGNN_CUDA_TYPES 13 /* must be increased with every change of a type or constant above */
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
