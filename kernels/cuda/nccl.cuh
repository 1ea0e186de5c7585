// The part of NCCL's interface that halognn uses (2.14 and later). It is declared here, and not
// taken from nccl.h. So the library compiles where NCCL is not installed, and runs with any version
// that it finds.
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>

extern "C" {

typedef struct ncclComm *ncclComm_t;
typedef int ncclResult_t; // one of these:
enum {
    ncclSuccess = 0,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
};

struct ncclUniqueId {
    char internal[128];
};

// The fields that ncclConfig_t has in version 2.14. Later versions have more, but read only the
// fields that the size and version in the struct cover.
struct ncclConfig_t {
    size_t size;
    unsigned magic, version;
    int blocking, padding;
};
constexpr unsigned NCCL_MAGIC = 0xcafebeef, NCCL_OLDEST = 21400;

// The codes of data types and operators.
constexpr int NCCL_FLOAT = 7, NCCL_SUM = 0;

}  // extern "C"

// The functions: result, name, parameters.
#define NCCL_FUNCTIONS(F)                                                                   \
    F(ncclResult_t, ncclGetVersion, (int *version))                                         \
    F(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *id))                                    \
    F(ncclResult_t, ncclCommInitRankConfig,                                                 \
      (ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))       \
    F(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                    \
    F(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                     \
    F(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                       \
    F(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))          \
    F(const char *, ncclGetErrorString, (ncclResult_t result))                              \
    F(const char *, ncclGetLastError, (ncclComm_t comm))                                    \
    F(ncclResult_t, ncclGroupStart, (void))                                                 \
    F(ncclResult_t, ncclGroupEnd, (void))                                                   \
    F(ncclResult_t, ncclSend,                                                               \
      (const void *buf, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t s)) \
    F(ncclResult_t, ncclRecv,                                                               \
      (void *buf, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t s))       \
    F(ncclResult_t, ncclAllReduce,                                                          \
      (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,       \
       cudaStream_t s))
