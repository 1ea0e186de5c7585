// The few MPI calls that halognn needs, with plain C types. MPI's handles are ints in one MPI and
// pointers in another, so they stay on this side, and Go holds indices. All functions except
// hgnn_wake must be called from the thread that called hgnn_init. Functions return an MPI error
// code (MPI_SUCCESS is 0) unless they say otherwise.
#ifndef HALOGNN_MPI_ENGINE_H
#define HALOGNN_MPI_ENGINE_H

#include <stdint.h>

int hgnn_init(void);
// whether the caller is the thread that called hgnn_init; any thread may ask
int hgnn_on_main_thread(void);
// whether the MPI library supports MPI_THREAD_FUNNELED
int hgnn_funneled(void);
int hgnn_finalize(void);
void hgnn_abort(int code);
int hgnn_describe(int code, char *text, int size);      // text of an error code
// name and version of the MPI library; may be called before hgnn_init
int hgnn_library(char *text, int size);
// version of the MPI standard that the library implements; may be called before hgnn_init
int hgnn_standard(int *version, int *subversion);
// name of the thread level that the library granted, which may be above the requested one
const char *hgnn_thread_level(void);
// whether messages may lie in device memory: 1, 0, or -1 if the library does not say
int hgnn_device_memory(void);

// Communicators are numbered from 0, which is the world. The calls that make a communicator are
// collective and block.
int hgnn_comm_info(int comm, int *rank, int *size);
int hgnn_comm_dup(int comm, int *made);
int hgnn_comm_split(int comm, int color, int key, int *made);
int hgnn_comm_node(int comm, int *made);                // the ranks that share memory
int hgnn_comm_free(int comm);

// Functions that start an operation. Counts and displacements are numbers of rows of row_bytes
// bytes. Arrays and buffers must stay valid until completion. The argument `owner` is a number that
// the caller chooses: hgnn_poll returns it once for every start that succeeded.
int hgnn_alltoallv(int comm, const void *send, const int32_t *send_counts,
                   const int32_t *send_displs, void *recv, const int32_t *recv_counts,
                   const int32_t *recv_displs, int row_bytes, int owner);
int hgnn_allgatherv(int comm, const void *send, int send_count, void *recv,
                    const int32_t *recv_counts,
                    const int32_t *recv_displs, int row_bytes, int owner);
int hgnn_allreduce(int comm, float *buf, int count, int owner);
int hgnn_barrier(int comm, int owner);
int hgnn_bcast(int comm, void *buf, int count, int row_bytes, int root, int owner);
int hgnn_send(int comm, const void *buf, int count, int row_bytes, int peer, int tag, int owner);
int hgnn_ssend(int comm, const void *buf, int count, int row_bytes, int peer, int tag, int owner);
int hgnn_recv(int comm, void *buf, int count, int row_bytes, int peer, int tag, int owner);

// An operation that has completed: the number owner that its caller gave, and an error code.
typedef struct {
    int owner, code;
} hgnn_done;

// The result of a poll. It has the number of operations that have completed (n) and a list of them
// (done), which is valid until the next poll. If the test itself failed, it has the error (code).
typedef struct {
    int n, code;
    const hgnn_done *done;
} hgnn_polled;

// Tests the operations under way until some complete or hgnn_wake is called. It sleeps between
// tests. If no operation is under way, it sleeps until hgnn_wake is called.
hgnn_polled hgnn_poll(void);
void hgnn_wake(void);

#endif
