//go:build cgo && mpi

// MPI handles and the loop that polls MPI. A process can use MPI only once, so the state is static.
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// All communicators. Go refers to each by its index. When one is freed, its place gets
// MPI_COMM_NULL, and the next new communicator takes this place.
static MPI_Comm *comms;
static int num_comms;

// One committed datatype for each size of rows used so far. A process uses only a few sizes.
static struct row_type { int bytes; MPI_Datatype type; } *types;
static int num_types;

// The requests of the operations under way, without gaps because MPI_Testsome takes the array as it
// is, and the number by which the caller names each operation.
static MPI_Request *requests;
static int *owners;
static int active, capacity;

// Arrays of the same capacity. MPI_Testsome writes to indices and statuses. hgnn_poll returns
// finished.
static int *indices;
static MPI_Status *statuses;
static hgnn_done *finished;
// number of entries of finished for operations that had completed as soon as they were started
static int early;

// Addresses to pass for empty buffers. A null pointer could be taken for MPI_BOTTOM. If the send
// and receive buffers had one address, MPICH would refuse them, and Open MPI's libnbc would take
// them for MPI_IN_PLACE and then count its tags differently from the other ranks.
static char no_rows[2];

// Wakes the poll loop when it sleeps. Each round of the loop reads the flag without the lock.
static pthread_mutex_t bell_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static int rung;

static int thread_level;
static pthread_t main_thread;

int hgnn_on_main_thread(void) { return pthread_equal(main_thread, pthread_self()); }

int hgnn_funneled(void) { return thread_level >= MPI_THREAD_FUNNELED; }

// MPI libraries install handlers for SIGSEGV, SIGBUS and others that print a trace and exit. These
// replace Go's handlers, which turn an access to a nil pointer, or to a mapped file that has
// shrunk, into an error. So this function puts Go's handlers back.
int hgnn_init(void) {
    static const int go[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGURG, SIGTERM,
                             SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction kept[sizeof go / sizeof *go];
    main_thread = pthread_self();
    for (size_t i = 0; i < sizeof go / sizeof *go; i++) sigaction(go[i], NULL, &kept[i]);
    int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &thread_level);
    for (size_t i = 0; i < sizeof go / sizeof *go; i++) sigaction(go[i], &kept[i], NULL);
    if (rc) return rc;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); // the clock whose time rest() gives
    pthread_cond_init(&bell, &attr);
    // communicators made from MPI_COMM_WORLD inherit its error handler
    rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rc) return rc;
    if (!(comms = malloc(sizeof *comms))) return MPI_ERR_NO_MEM;
    comms[0] = MPI_COMM_WORLD;
    num_comms = 1;
    return MPI_SUCCESS;
}

// Communicators that are not freed yet are left to MPI_Finalize, because all ranks would have to
// free them in the same order.
int hgnn_finalize(void) {
    for (int i = 0; i < num_types; i++) MPI_Type_free(&types[i].type);
    num_types = 0;
    return MPI_Finalize();
}

void hgnn_abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

int hgnn_describe(int code, char *text, int size) {
    char s[MPI_MAX_ERROR_STRING] = "";
    int n, rc = MPI_Error_string(code, s, &n);
    strncpy(text, s, size - 1);
    text[size - 1] = 0;
    return rc;
}

int hgnn_library(char *text, int size) {
    char s[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n, rc = MPI_Get_library_version(s, &n);
    strncpy(text, s, size - 1);
    text[size - 1] = 0;
    return rc;
}

int hgnn_standard(int *version, int *subversion) { return MPI_Get_version(version, subversion); }

const char *hgnn_thread_level(void) { // larger constants mean more, but their values vary
    return thread_level >= MPI_THREAD_MULTIPLE     ? "MPI_THREAD_MULTIPLE"
           : thread_level >= MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
           : thread_level >= MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
                                                   : "MPI_THREAD_SINGLE";
}

// A function that Open MPI and MPICH add to the standard. Its address is NULL in an MPI that does
// not have it.
extern int MPIX_Query_cuda_support(void) __attribute__((weak));

int hgnn_device_memory(void) {
    return MPIX_Query_cuda_support ? MPIX_Query_cuda_support() != 0 : -1;
}

int hgnn_comm_info(int comm, int *rank, int *size) {
    int rc = MPI_Comm_rank(comms[comm], rank);
    return rc ? rc : MPI_Comm_size(comms[comm], size);
}

static int keep(int rc, MPI_Comm c, int *made) {
    if (rc) return rc;
    int i = 1;
    while (i < num_comms && comms[i] != MPI_COMM_NULL) i++;
    if (i == num_comms) {
        MPI_Comm *more = realloc(comms, (num_comms + 1) * sizeof *more);
        if (!more) return MPI_ERR_NO_MEM;
        comms = more;
        num_comms++;
    }
    comms[i] = c;
    *made = i;
    return MPI_SUCCESS;
}

int hgnn_comm_dup(int comm, int *made) {
    MPI_Comm c = MPI_COMM_NULL;
    int rc = MPI_Comm_dup(comms[comm], &c);
    return keep(rc, c, made);
}

int hgnn_comm_split(int comm, int color, int key, int *made) {
    MPI_Comm c = MPI_COMM_NULL;
    int rc = MPI_Comm_split(comms[comm], color, key, &c);
    return keep(rc, c, made);
}

int hgnn_comm_node(int comm, int *made) {
    MPI_Comm c = MPI_COMM_NULL;
    int rank, rc = MPI_Comm_rank(comms[comm], &rank);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_split_type(comms[comm], MPI_COMM_TYPE_SHARED, rank,
                                                    MPI_INFO_NULL, &c);
    return keep(rc, c, made);
}

int hgnn_comm_free(int comm) { return MPI_Comm_free(&comms[comm]); }

static int row_type(int bytes, MPI_Datatype *type) {
    for (int i = 0; i < num_types; i++)
        if (types[i].bytes == bytes) {
            *type = types[i].type;
            return MPI_SUCCESS;
        }
    struct row_type *more = realloc(types, (num_types + 1) * sizeof *more);
    if (!more) return MPI_ERR_NO_MEM;
    types = more;
    int rc = MPI_Type_contiguous(bytes, MPI_BYTE, type);
    if (rc == MPI_SUCCESS) rc = MPI_Type_commit(type);
    if (rc) return rc;
    types[num_types++] = (struct row_type){bytes, *type};
    return MPI_SUCCESS;
}

// Makes room for one more operation.
static int reserve(void) {
    if (active + early < capacity) return MPI_SUCCESS;
    int more = capacity ? 2 * capacity : 64;
#define GROW(array) \
    do { \
        void *p = realloc(array, more * sizeof *array); \
        if (!p) return MPI_ERR_NO_MEM; \
        array = p; \
    } while (0)
    GROW(requests);
    GROW(owners);
    GROW(indices);
    GROW(statuses);
    GROW(finished);
    capacity = more;
    return MPI_SUCCESS;
}

// Counts the operation that was just started in requests[active]. If it has already completed, Open
// MPI may have returned an inactive request. MPI_Testsome would ignore such a request and never
// report it, so MPI_Test is called here, which reports it.
static int started(int rc, int owner) {
    int complete = 0;
    if (rc == MPI_SUCCESS) rc = MPI_Test(&requests[active], &complete, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && complete) finished[early++] = (hgnn_done){owner, MPI_SUCCESS};
    if (rc == MPI_SUCCESS && !complete) owners[active++] = owner;
    return rc;
}

int hgnn_alltoallv(int comm, const void *send, const int32_t *send_counts,
                   const int32_t *send_displs, void *recv, const int32_t *recv_counts,
                   const int32_t *recv_displs, int row_bytes, int owner) {
    MPI_Datatype type;
    int rc = reserve();
    if (rc || (rc = row_type(row_bytes, &type))) return rc;
    rc = MPI_Ialltoallv(send ? send : &no_rows[0], send_counts, send_displs, type,
                        recv ? recv : &no_rows[1],
                        recv_counts, recv_displs, type, comms[comm], &requests[active]);
    return started(rc, owner);
}

int hgnn_allgatherv(int comm, const void *send, int send_count, void *recv,
                    const int32_t *recv_counts,
                    const int32_t *recv_displs, int row_bytes, int owner) {
    MPI_Datatype type;
    int rc = reserve();
    if (rc || (rc = row_type(row_bytes, &type))) return rc;
    rc = MPI_Iallgatherv(send ? send : &no_rows[0], send_count, type, recv ? recv : &no_rows[1],
                         recv_counts, recv_displs, type, comms[comm], &requests[active]);
    return started(rc, owner);
}

int hgnn_allreduce(int comm, float *buf, int count, int owner) {
    int rc = reserve();
    if (rc) return rc;
    rc = MPI_Iallreduce(MPI_IN_PLACE, buf, count, MPI_FLOAT, MPI_SUM, comms[comm],
                        &requests[active]);
    return started(rc, owner);
}

int hgnn_barrier(int comm, int owner) {
    int rc = reserve();
    if (rc) return rc;
    rc = MPI_Ibarrier(comms[comm], &requests[active]);
    return started(rc, owner);
}

int hgnn_bcast(int comm, void *buf, int count, int row_bytes, int root, int owner) {
    MPI_Datatype type;
    int rc = reserve();
    if (rc || (rc = row_type(row_bytes, &type))) return rc;
    rc = MPI_Ibcast(buf, count, type, root, comms[comm], &requests[active]);
    return started(rc, owner);
}

int hgnn_send(int comm, const void *buf, int count, int row_bytes, int peer, int tag, int owner) {
    MPI_Datatype type;
    int rc = reserve();
    if (rc || (rc = row_type(row_bytes, &type))) return rc;
    rc = MPI_Isend(buf ? buf : &no_rows[0], count, type, peer, tag, comms[comm], &requests[active]);
    return started(rc, owner);
}

int hgnn_ssend(int comm, const void *buf, int count, int row_bytes, int peer, int tag, int owner) {
    MPI_Datatype type;
    int rc = reserve();
    if (rc || (rc = row_type(row_bytes, &type))) return rc;
    rc = MPI_Issend(buf ? buf : &no_rows[0], count, type, peer, tag, comms[comm],
                    &requests[active]);
    return started(rc, owner);
}

int hgnn_recv(int comm, void *buf, int count, int row_bytes, int peer, int tag, int owner) {
    MPI_Datatype type;
    int rc = reserve();
    if (rc || (rc = row_type(row_bytes, &type))) return rc;
    rc = MPI_Irecv(buf ? buf : &no_rows[1], count, type, peer, tag, comms[comm], &requests[active]);
    return started(rc, owner);
}

void hgnn_wake(void) {
    pthread_mutex_lock(&bell_lock);
    __atomic_store_n(&rung, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&bell);
    pthread_mutex_unlock(&bell_lock);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// Sleeps until hgnn_wake is called, or until the given time; 0 means no time limit.
static void rest(int64_t until_ns) {
    struct timespec t = {until_ns / 1000000000, until_ns % 1000000000};
    pthread_mutex_lock(&bell_lock);
    while (!rung)
        if (until_ns == 0)
            pthread_cond_wait(&bell, &bell_lock);
        else if (pthread_cond_timedwait(&bell, &bell_lock, &t) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&bell_lock);
}

// Tests the operations once. Moves those that have completed to finished and closes the gaps. Sets
// *n to the number of completed operations.
static int test(int *n) {
    *n = 0;
    if (active == 0) return MPI_SUCCESS;
    int rc = MPI_Testsome(active, requests, n, indices, statuses);
    if (rc != MPI_SUCCESS && rc != MPI_ERR_IN_STATUS) return rc;
    for (int i = 0; i < *n; i++)
        finished[i] = (hgnn_done){owners[indices[i]],
                                  rc == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR};
    if (*n == 0) return MPI_SUCCESS;
    int kept = 0;
    for (int i = 0; i < active; i++)
        // MPI_Testsome has set the requests of completed operations to this value
        if (requests[i] != MPI_REQUEST_NULL) {
            requests[kept] = requests[i];
            owners[kept++] = owners[i];
        }
    active = kept;
    return MPI_SUCCESS;
}

// The longer nothing completes, the less often operations are tested: each sleep is an eighth of
// the time waited so far. So sleeping makes a wait longer by an eighth at most. (Linux adds some 50
// us to every sleep.)
enum { SPIN_NS = 50 * 1000, MAX_REST_NS = 100 * 1000 };

hgnn_polled hgnn_poll(void) {
    hgnn_polled p = {early, MPI_SUCCESS, finished};
    early = 0;
    if (p.n > 0) return p;
    int64_t begin = now_ns();
    for (;;) {
        if (__atomic_exchange_n(&rung, 0, __ATOMIC_ACQUIRE)) return p;
        p.code = test(&p.n);
        if (p.code || p.n > 0) return p;
        if (active == 0) {
            rest(0);
            continue;
        }
        int64_t now = now_ns(), waited = now - begin;
        if (waited < SPIN_NS)
            sched_yield();
        else
            rest(now + (waited / 8 < MAX_REST_NS ? waited / 8 : MAX_REST_NS));
    }
}
