// Sums over ranks, and exchanges of slices between ranks, from device to device by NCCL. NCCL is
// loaded when it is first needed.
//
// Communicators do not block. A call that has to wait for other ranks returns at once, and
// halognn_cuda_nccl_state says when it is complete. So no call blocks for ever because another rank
// has failed.
#include "nccl.cuh"

#include <dlfcn.h>

#include <cstdio>
#include <new>

#include "context.cuh"

struct halognn_nccl {
    halognn_cuda *c;
    ncclComm_t comm;
    int rank, ranks;
};

namespace {

struct functions {
#define POINTER(type, name, params) type(*name) params;
    NCCL_FUNCTIONS(POINTER)
#undef POINTER
} nccl;

int code(ncclResult_t r) { return r == ncclSuccess ? 0 : halognn::NCCL_CODE + r; }

// first returns the first error of two results. If neither is an error, it returns whether one of
// them is in progress.
ncclResult_t first(ncclResult_t a, ncclResult_t b) {
    return a == ncclSuccess || (a == ncclInProgress && b != ncclSuccess) ? b : a;
}

}  // namespace

const char *halognn::nccl_error(int code) {
    static thread_local char text[512];
    const char *last = nccl.ncclGetLastError(nullptr);
    std::snprintf(text, sizeof text, "NCCL: %s%s%s", nccl.ncclGetErrorString(code - NCCL_CODE),
                  last && *last ? ": " : "", last ? last : "");
    return text;
}

extern "C" {

int halognn_cuda_nccl_load(const char *path, char *text, int size) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::snprintf(text, static_cast<size_t>(size), "%s", dlerror());
        return 1;
    }
    functions found{};
    int version = 0;
#define LOAD(type, name, params)                                                        \
    if ((*reinterpret_cast<void **>(&found.name) = dlsym(library, #name)) == nullptr) { \
        std::snprintf(text, static_cast<size_t>(size),                                  \
                      "%s has no %s: NCCL 2.14 or later is needed", path, #name);       \
        dlclose(library);                                                               \
        return 1;                                                                       \
    }
    NCCL_FUNCTIONS(LOAD)
#undef LOAD
    if (found.ncclGetVersion(&version) != ncclSuccess || version < static_cast<int>(NCCL_OLDEST)) {
        std::snprintf(text, static_cast<size_t>(size),
                      "%s is version %d: NCCL 2.14 or later is needed", path, version);
        dlclose(library);
        return 1;
    }
    nccl = found;
    std::snprintf(text, static_cast<size_t>(size), "%d.%d.%d", version / 10000, version / 100 % 100,
                  version % 100);
    return 0;
}

int halognn_cuda_nccl_id(char *id) {
    ncclUniqueId made;
    static_assert(sizeof made == HALOGNN_NCCL_ID, "the size of an id");
    const ncclResult_t r = nccl.ncclGetUniqueId(&made);
    for (size_t i = 0; i < sizeof made; i++) id[i] = made.internal[i];
    return code(r);
}

int halognn_cuda_nccl_open(halognn_cuda *c, const char *id, int rank, int ranks,
                           halognn_nccl **out) {
    halognn_nccl *n = new (std::nothrow) halognn_nccl{c, nullptr, rank, ranks};
    if (n == nullptr) return cudaErrorMemoryAllocation;
    ncclUniqueId made;
    for (size_t i = 0; i < sizeof made; i++) made.internal[i] = id[i];
    ncclConfig_t config = {sizeof config, NCCL_MAGIC, NCCL_OLDEST, 0, INT_MIN};
    halognn::on(c);
    const ncclResult_t r = nccl.ncclCommInitRankConfig(&n->comm, ranks, made, rank, &config);
    if (r != ncclSuccess && r != ncclInProgress) {
        if (n->comm) nccl.ncclCommAbort(n->comm);
        delete n;
        return code(r);
    }
    *out = n;
    return code(r);
}

int halognn_cuda_nccl_state(halognn_nccl *n) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t r = nccl.ncclCommGetAsyncError(n->comm, &state);
    return code(first(r, state));
}

int halognn_cuda_nccl_exchange(halognn_nccl *n, void *const *send, const int64_t *sends,
                               void *const *recv, const int64_t *recvs) {
    cudaStream_t s = halognn::on(n->c, HALOGNN_COMM);
    ncclResult_t r = nccl.ncclGroupStart();
    for (int hop = 1; hop < n->ranks && (r == ncclSuccess || r == ncclInProgress); hop++) {
        const int to = (n->rank + hop) % n->ranks, from = (n->rank - hop + n->ranks) % n->ranks;
        if (sends[to])
            r = first(r, nccl.ncclSend(send[to], static_cast<size_t>(sends[to]), NCCL_FLOAT, to,
                                       n->comm, s));
        if (recvs[from])
            r = first(r, nccl.ncclRecv(recv[from], static_cast<size_t>(recvs[from]), NCCL_FLOAT,
                                       from, n->comm, s));
    }
    return code(first(r, nccl.ncclGroupEnd()));
}

int halognn_cuda_nccl_sum(halognn_nccl *n, float *buf, int64_t count) {
    cudaStream_t s = halognn::on(n->c, HALOGNN_COMM);
    return count ? code(nccl.ncclAllReduce(buf, buf, static_cast<size_t>(count), NCCL_FLOAT,
                                           NCCL_SUM, n->comm, s))
                 : 0;
}

int halognn_cuda_nccl_finish(halognn_nccl *n) {
    halognn::on(n->c);
    return code(nccl.ncclCommFinalize(n->comm));
}

int halognn_cuda_nccl_close(halognn_nccl *n) {
    halognn::on(n->c);
    const ncclResult_t r = nccl.ncclCommDestroy(n->comm);
    delete n;
    return code(r);
}

int halognn_cuda_nccl_abort(halognn_nccl *n) {
    halognn::on(n->c);
    const ncclResult_t r = nccl.ncclCommAbort(n->comm);
    delete n;
    return r == ncclInProgress ? 0 : code(r); // an abort in progress completes without another call
}

}  // extern "C"
