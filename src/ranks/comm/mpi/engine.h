// The few MPI calls that halognn needs, behind plain C types: MPI's handles are ints in one MPI and
// pointers in another, so they stay on this side, and Go holds indices. Everything but hgnn_wake
// must be called from the thread that called hgnn_init. Functions return an MPI error code,
// MPI_SUCCESS being 0, unless they say otherwise.
#ifndef HALOGNN_MPI_ENGINE_H
#define HALOGNN_MPI_ENGINE_H

#include <stdint.h>

int hgnn_init(void);
// whether the caller is that thread; for any
int hgnn_on_main_thread(void);
// whether the library supports MPI_THREAD_FUNNELED
int hgnn_funneled(void);
int hgnn_finalize(void);
void hgnn_abort(int code);
int hgnn_describe(int code, char *text, int size);      // text of an error code
// name and version of the MPI library; also before hgnn_init
int hgnn_library(char *text, int size);
// of MPI, as the library has it; also before hgnn_init
int hgnn_standard(int *version, int *subversion);
// what the library supports, of what was asked for and above
const char *hgnn_thread_level(void);
// whether messages may lie in device memory: 1, 0, or -1 if it does not say
int hgnn_device_memory(void);

// Communicators are numbered from 0, the world. The blocking calls are collective.
int hgnn_comm_info(int comm, int *rank, int *size);
int hgnn_comm_dup(int comm, int *made);
int hgnn_comm_split(int comm, int color, int key, int *made);
int hgnn_comm_node(int comm, int *made);                // the ranks that share memory
int hgnn_comm_free(int comm);

// Starts. Counts and displacements are rows of row_bytes bytes; arrays and buffers stay valid until
// completion. owner is whoever asks: hgnn_poll returns it once for every start that succeeded.
int hgnn_alltoallv(int comm, const void *send, const int32_t *send_counts,
                   const int32_t *send_displs, void *recv,
                   const int32_t *recv_counts, const int32_t *recv_displs, int row_bytes, int owner);
int hgnn_allgatherv(int comm, const void *send, int send_count, void *recv,
                    const int32_t *recv_counts,
                    const int32_t *recv_displs, int row_bytes, int owner);
int hgnn_allreduce(int comm, float *buf, int count, int owner);
int hgnn_barrier(int comm, int owner);
int hgnn_bcast(int comm, void *buf, int count, int row_bytes, int root, int owner);
int hgnn_send(int comm, const void *buf, int count, int row_bytes, int peer, int tag, int owner);
int hgnn_ssend(int comm, const void *buf, int count, int row_bytes, int peer, int tag, int owner);
int hgnn_recv(int comm, void *buf, int count, int row_bytes, int peer, int tag, int owner);

// An operation that has completed: whose it is, and an error code.
typedef struct {
    int owner, code;
} hgnn_done;

// n operations have completed; done is valid until the next poll. code is set if testing itself
// failed.
typedef struct {
    int n, code;
    const hgnn_done *done;
} hgnn_polled;

// Tests the operations under way until some complete or hgnn_wake is called, and rests in between;
// with none under way it sleeps until hgnn_wake.
hgnn_polled hgnn_poll(void);
void hgnn_wake(void);

#endif
