// Devices, memory, copies, streams and events.
#include "context.cuh"

#include <cstdio>
#include <cstring>
#include <new>

namespace {

// cuBLAS recommends 32 MiB on Hopper and 4 MiB on older devices. All devices use the larger size.
#ifdef HALOGNN_EMULATED
constexpr size_t WORKSPACE = 1 << 12;
#else
constexpr size_t WORKSPACE = size_t{32} << 20;
#endif

// LARGE is the least number of blocks of several segments a thread. With fewer, a segment a thread
// has more threads to hide latency.
#ifdef HALOGNN_EMULATED // whose tests are small, and are to take both ways
constexpr int64_t LARGE = 2;
#else
constexpr int64_t LARGE = 1024;
#endif

// A thread that waits for a SLEEPING event sleeps, where cudaStreamSynchronize may spin.
constexpr unsigned SLEEPING = cudaEventDisableTiming | cudaEventBlockingSync;

// told returns a code of the CUDA runtime. If it is an error, told also clears the last error of
// the thread, because otherwise the next launch would return it again.
int told(int code) {
    if (code) cudaGetLastError();
    return code;
}

// open_parts makes the streams and handles of a context. If it fails, the caller closes the streams
// and handles that were made.
int open_parts(halognn_cuda *c) {
    using namespace halognn;
    if (int e = cudaSetDevice(c->device)) return e;
    for (cudaStream_t &s : c->streams)
        if (int e = cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)) return e;
    for (cudaEvent_t &e : c->reached)
        if (int code = cudaEventCreateWithFlags(&e, SLEEPING)) return code;
    if (int e = cudaMalloc(&c->workspace, WORKSPACE)) return e;
    constexpr int64_t counters = halognn::COUNTERS * sizeof *c->arrived;
    if (int e = cudaMalloc(reinterpret_cast<void **>(&c->arrived), counters)) return e;
    if (int e = halognn_cuda_zero(c, HALOGNN_COMPUTE, c->arrived, counters)) return e;
    if (int e = new_blas(&c->blas)) return e;
    if (int e = blas_code(cublas.set_stream(c->blas, c->streams[HALOGNN_COMPUTE]))) return e;
    if (int e = blas_code(cublas.set_workspace(c->blas, c->workspace, WORKSPACE))) return e;
    return blas_code(cublas.set_math(c->blas, CUBLAS_PEDANTIC_MATH));
}

}  // namespace

extern "C" {

int halognn_cuda_version(void) { return halognn_cuda_interface(); }

const char *halognn_cuda_error(int code) {
    if (code >= halognn::NCCL_CODE) return halognn::nccl_error(code);
    if (code >= halognn::BLAS_CODE) return halognn::blas_error(code);
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}

int halognn_cuda_is_out_of_memory(int code) {
    return code == cudaErrorMemoryAllocation ||
           code == halognn::BLAS_CODE + CUBLAS_STATUS_ALLOC_FAILED;
}

int halognn_cuda_count(int *devices) {
    const int e = told(cudaGetDeviceCount(devices));
    if (e != cudaErrorNoDevice) return e;
    *devices = 0;
    return 0;
}

int halognn_cuda_choose(int device, unsigned char *uuid, int64_t *available) {
    cudaDeviceProp p;
    size_t free, all;
    if (int e = cudaGetDeviceProperties(&p, device)) return told(e);
    std::memcpy(uuid, &p.uuid, sizeof p.uuid);
    if (int e = cudaSetDevice(device)) return told(e);
    // This makes the device's context now. Without it, older runtimes would make it at a later
    // call.
    if (int e = cudaFree(nullptr)) return told(e);
    if (int e = cudaMemGetInfo(&free, &all)) return told(e);
    *available = static_cast<int64_t>(free);
    return 0;
}

int halognn_cuda_open(int device, int64_t large, halognn_cuda **out) {
    halognn_cuda *c = new (std::nothrow) halognn_cuda{};
    if (c == nullptr) return cudaErrorMemoryAllocation;
    c->device = device;
    c->large = large ? large : LARGE;
    if (int e = open_parts(c)) {
        halognn_cuda_close(c);
        return told(e);
    }
    *out = c;
    return 0;
}

int halognn_cuda_close(halognn_cuda *c) {
    int first = 0;
    auto note = [&first](int e) { first = first ? first : e; };
    note(cudaSetDevice(c->device));
    for (cudaStream_t s : c->streams)
        if (s) note(cudaStreamSynchronize(s));
    if (c->blas) note(halognn::blas_code(halognn::cublas.destroy(c->blas)));
    if (c->workspace) note(cudaFree(c->workspace));
    if (c->arrived) note(cudaFree(c->arrived));
    for (cudaEvent_t e : c->reached)
        if (e) note(cudaEventDestroy(e));
    for (cudaStream_t s : c->streams)
        if (s) note(cudaStreamDestroy(s));
    delete c;
    return told(first);
}

static int describe(halognn_cuda *c, halognn_cuda_properties *out) {
    std::memset(out, 0, sizeof *out);
    cudaDeviceProp p;
    if (int e = cudaGetDeviceProperties(&p, c->device)) return e;
    std::snprintf(out->name, sizeof out->name, "%s", p.name);
    out->major = p.major;
    out->minor = p.minor;
    out->multiprocessors = p.multiProcessorCount;
    static_assert(sizeof out->uuid == sizeof p.uuid, "the size of an id");
    std::memcpy(out->uuid, &p.uuid, sizeof out->uuid);
    if (int e = cudaDriverGetVersion(&out->driver)) return e;
    if (int e = cudaRuntimeGetVersion(&out->runtime)) return e;
    size_t available, memory;
    if (int e = cudaSetDevice(c->device)) return e;
    if (int e = cudaMemGetInfo(&available, &memory)) return e;
    out->available = static_cast<int64_t>(available);
    out->memory = static_cast<int64_t>(memory);
#ifdef HALOGNN_EMULATED
    out->emulated = 1;
#endif
    return 0;
}

int halognn_cuda_describe(halognn_cuda *c, halognn_cuda_properties *out) {
    return told(describe(c, out));
}

int halognn_cuda_alloc(halognn_cuda *c, int64_t bytes, void **out) {
    halognn::on(c);
    return told(cudaMalloc(out, static_cast<size_t>(bytes)));
}
int halognn_cuda_free(halognn_cuda *c, void *p) {
    halognn::on(c);
    return told(cudaFree(p));
}
int halognn_cuda_alloc_host(halognn_cuda *c, int64_t bytes, void **out) {
    halognn::on(c);
    return told(cudaHostAlloc(out, static_cast<size_t>(bytes), cudaHostAllocPortable));
}
int halognn_cuda_free_host(halognn_cuda *c, void *p) {
    halognn::on(c);
    return told(cudaFreeHost(p));
}

// pin maps host memory into the device's addresses. It maps it read-only if the device supports
// this, because the pages of a file that is open for reading cannot be written.
static int pin(halognn_cuda *c, void *host, size_t bytes, void **out) {
    int read_only = 0;
    if (int e =
            cudaDeviceGetAttribute(&read_only, cudaDevAttrHostRegisterReadOnlySupported, c->device))
        return e;
    const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped |
                           (read_only ? cudaHostRegisterReadOnly : 0);
    if (int e = cudaHostRegister(host, bytes, flags)) return e;
    const int e = cudaHostGetDevicePointer(out, host, 0);
    if (e) cudaHostUnregister(host);
    return e;
}

int halognn_cuda_map_host(halognn_cuda *c, const char *host, int64_t bytes, void **out) {
    halognn::on(c);
    return told(pin(c, const_cast<char *>(host), static_cast<size_t>(bytes), out));
}
int halognn_cuda_unmap_host(halognn_cuda *c, const char *host) {
    halognn::on(c);
    return told(cudaHostUnregister(const_cast<char *>(host)));
}

static int copy(halognn_cuda *c, int stream, void *dst, const void *src, int64_t bytes,
                cudaMemcpyKind kind) {
    return bytes ? told(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), kind,
                                        halognn::on(c, stream)))
                 : 0;
}
int halognn_cuda_upload(halognn_cuda *c, int stream, void *dst, const char *host_src,
                        int64_t bytes) {
    return copy(c, stream, dst, host_src, bytes, cudaMemcpyHostToDevice);
}
int halognn_cuda_download(halognn_cuda *c, int stream, char *host_dst, const void *src,
                          int64_t bytes) {
    return copy(c, stream, host_dst, src, bytes, cudaMemcpyDeviceToHost);
}
int halognn_cuda_copy(halognn_cuda *c, int stream, void *dst, const void *src, int64_t bytes) {
    return copy(c, stream, dst, src, bytes, cudaMemcpyDeviceToDevice);
}
int halognn_cuda_zero(halognn_cuda *c, int stream, void *dst, int64_t bytes) {
    return bytes ? told(cudaMemsetAsync(dst, 0, static_cast<size_t>(bytes), halognn::on(c, stream)))
                 : 0;
}

int halognn_cuda_make_event(halognn_cuda *c, int timed, void **out) {
    halognn::on(c);
    return told(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t *>(out),
                                         timed ? cudaEventDefault : SLEEPING));
}
int halognn_cuda_free_event(halognn_cuda *c, void *event) {
    halognn::on(c);
    return told(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
}
int halognn_cuda_record(halognn_cuda *c, int stream, void *event) {
    return told(cudaEventRecord(static_cast<cudaEvent_t>(event), halognn::on(c, stream)));
}
int halognn_cuda_order(halognn_cuda *c, int stream, void *event) {
    return told(cudaStreamWaitEvent(halognn::on(c, stream), static_cast<cudaEvent_t>(event), 0));
}
int halognn_cuda_wait(halognn_cuda *c, void *event) {
    halognn::on(c);
    return told(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}
int halognn_cuda_passed(halognn_cuda *c, void *event) {
    halognn::on(c);
    return told(cudaEventQuery(static_cast<cudaEvent_t>(event)));
}
int halognn_cuda_elapsed(halognn_cuda *c, void *begin, void *end, float *milliseconds) {
    halognn::on(c);
    return told(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(begin),
                                     static_cast<cudaEvent_t>(end)));
}
int halognn_cuda_copy_now(char *dst, const char *src, int64_t bytes) {
    if (bytes == 0) return 0;
    if (int e = cudaMemcpy(dst, src, static_cast<size_t>(bytes), cudaMemcpyDefault)) return told(e);
    // for copies between two devices, cudaMemcpy returns before the copy is complete
    return told(cudaStreamSynchronize(cudaStreamLegacy));
}

int halognn_cuda_sync(halognn_cuda *c, int stream) {
    cudaEvent_t reached = c->reached[stream];
    if (int e = cudaEventRecord(reached, halognn::on(c, stream))) return told(e);
    return told(cudaEventSynchronize(reached));
}

}  // extern "C"
