// The part of the CUDA runtime that halognn uses, on the host: the kernels compiled by a C++
// compiler and run as loops, so that they and their callers can be tested without a GPU. It is made
// to find errors, not to be fast:
//
//   - Work queued on a stream runs as late as possible, or at random (HALOGNN_EMULATED_SEED), so
//     that a missing wait has an effect.
//   - Only queued work may access device memory; a host that reads or writes it faults, and so does
//     a kernel that runs past the end of an allocation. Fresh memory is full of NaN.
//   - A copy must lie in one allocation; freeing or closing something twice, or while queued work
//     may use it, is an error; objects not freed when the last context closes are counted
//     (emulated_leaks).
//   - Kernels may access only memory of the device and mapped host memory: anything else aborts.
//     Pages that the process may not write cannot be mapped, as with some drivers, unless
//     HALOGNN_EMULATED_READ_ONLY=1.
//   - Copies read host memory when they run: the runtime may read what is not pinned at once, or
//     not.
//   - A thread must make the device current whose memory, streams and events it uses; on another
//     one the runtime would make a context. A thread's last error stays until it is read, and a
//     launch returns it.
//   - HALOGNN_EMULATED_DEVICES is the number of devices, at most 4.
//   - HALOGNN_EMULATED_SHARED=1 gives the devices of all processes the same names,
//     HALOGNN_EMULATED_TELL=1 reports when the first one is set.
//   - HALOGNN_EMULATED_OPEN=1 leaves device memory open to the host, for an MPI that reads it.
//   - Kernels may read memory of another device only after the thread's device has been let near it
//     (cudaDeviceEnablePeerAccess). HALOGNN_EMULATED_IPC=1 puts device memory where other processes
//     can open it; else it cannot be shared with them. HALOGNN_EMULATED_ISLANDS=1: no device can
//     reach another.
//   - HALOGNN_EMULATED_HANG=FILE/KERNEL:N: the Nth launch of that kernel in the process never ends.
//   - cuBLAS is that of this library; HALOGNN_EMULATED_CUBLAS lists others instead, with : between.
//   - The blocks of a grid run in order or, if at random, beginning at any of them. The threads of
//     a block run in order or, if at random, thread i ^ k as the ith, for any k.
//   - Each block finds shared memory full of NaN.
//   - What is put on streams is counted by name (emulated_launches): kernels, products, copies,
//     zeros. So are allocations and the calls that the host waits in: for kernels or copies,
//     asleep; spinning; and copies of memory that is not pinned.
//   - Threads of a warp run in lock step where they exchange values; a kernel in which they do not
//     meet aborts.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern __thread dim3 threadIdx, blockIdx, blockDim, gridDim; // constants first, which need no guard

enum cudaError_t : int {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidContext = 201,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorNotSupported = 801,
    cudaErrorStillInUse = 9001,       // the emulation's own: freed while queued work may use it
    cudaErrorNothingToWaitFor = 9002, // the emulation's own: an event that was never recorded
    // the emulation's own: the calling thread's device is not that of what it uses
    cudaErrorOtherDevice = 9003
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
constexpr unsigned cudaStreamNonBlocking = 1, cudaHostAllocPortable = 1;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
constexpr unsigned cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2,
                   cudaHostRegisterReadOnly = 8;
enum cudaDeviceAttr { cudaDevAttrHostRegisterReadOnlySupported = 113 };

struct emulated_stream;
struct emulated_event;
using cudaStream_t = emulated_stream *;
using cudaEvent_t = emulated_event *;
constexpr cudaStream_t cudaStreamLegacy = nullptr;

struct cudaDeviceProp {
    char name[256];
    unsigned char uuid[16];
    int major, minor, multiProcessorCount;
};

const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaRuntimeGetVersion(int *v);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);

cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaGetLastError();
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s);

struct cudaIpcMemHandle_t {
    char reserved[64];
};
constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p);
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *p);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);

void __syncthreads();
void __syncwarp();

// The threads of an emulated device run one after the other, so nothing else orders their accesses.
inline void __threadfence() {}
template <typename T>
T atomicAdd(T *p, T v) {
    const T old = *p;
    *p += v;
    return old;
}
template <typename T>
T atomicMin(T *p, T v) {
    const T old = *p;
    if (v < old) *p = v;
    return old;
}
template <typename T>
T __ldcg(const T *p) {
    return *p;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

namespace emulated {

// enqueue puts work on a stream.
cudaError_t enqueue(cudaStream_t s, std::function<void()> work);

// meeting is an operation of a stream together with streams of other devices.
struct meeting {
    virtual ~meeting() = default;
    virtual bool ready() const = 0;                  // the other streams have reached it
    // one that must come nearer first; null if some have not even been told to come
    virtual emulated_stream *behind() const = 0;
    virtual void work() = 0;
};
cudaError_t enqueue(cudaStream_t s, std::shared_ptr<meeting> m);
// first reports whether a meeting is the next operation of its stream.
bool first(cudaStream_t s, const meeting *m);
// on_device reports whether [p, p+bytes) is memory of a device, and belongs the device of a stream.
bool on_device(const void *p, size_t bytes, int device);
int belongs(cudaStream_t s);
int thread_device();
// everything is the lock of all emulated state; wake wakes threads that wait for calls of others;
// made counts objects that must be freed.
std::recursive_mutex &everything();
void wake();
void made(int n);

// count counts a launch of a kernel as FILE/KERNEL, without directories and template arguments; or
// another piece of work of that name.
void count(const char *file, const char *kernel);
void count(const char *name);

// draw returns a number below n: 0 unless work runs at random.
uint64_t draw(uint64_t n);

// run_grid runs body for every thread of a grid.
void run_grid(bool together, dim3 grid, unsigned block, const std::function<void()> &body);

// aligned aborts unless p is a multiple of bytes.
void aligned(const void *p, size_t bytes);
// readable aborts unless [p, p+bytes) is device memory or mapped host memory.
void readable(const void *p, size_t bytes);

// shared is an array that the threads of a block share. Queued work runs under one lock, block by
// block, so there is one for all of them. T is an array type.
void dirty(void *p, size_t bytes); // fills memory with NaN
void dirty_for_each_block(void *p, size_t bytes);
template <typename T>
struct shared {
    T array;
    shared() { dirty_for_each_block(&array, sizeof array); }
};

// handed checks the addresses among a kernel's arguments: pointers, matrices, and those in
// arguments that have several.
template <typename T>
void handed(T *p) {
    if (p != nullptr) readable(p, 1);
}
template <typename... T>
void handed(T *...p) {
    (handed(p), ...);
}
template <typename T>
auto handed_in(const T &m, int) -> decltype(m.bf16, void()) {
    handed(m.of);
}
template <typename T>
auto handed_in(const T &then, int) -> decltype(then.add.bf16, void()) {
    handed(then.add.of, then.vertices);
}
template <typename T>
auto handed_in(const T &ending, int) -> decltype(ending.own.bf16, ending.back.add.bf16, void()) {
    handed(ending.own.of, ending.scale, ending.of.of, ending.back.add.of, ending.back.vertices);
}
template <typename T>
auto handed_in(const T &joinings, int) -> decltype(joinings.of[0].y.bf16, void()) {
    for (const auto &j : joinings.of) handed(j.y.of, j.a.of, j.b.of);
}
template <typename T>
auto handed_in(const T &pending, int) -> decltype(pending.of[0].dy.bf16, void()) {
    for (const auto &s : pending.of) handed(s.b, s.b2, s.dy.of, s.times.of, s.chunks);
}
template <typename T>
auto handed_in(const T &queued, int) -> decltype(queued.of[0].x.bf16, void()) {
    handed(queued.head, queued.places, queued.skipped);
    for (const auto &s : queued.of) handed(s.x.of, s.vertices);
}
template <typename T>
void handed_in(const T &, long) {}
template <typename T>
void handed(const T &argument) {
    handed_in(argument, 0);
}

// TALLEST is how many blocks a grid may have in y. A GPU takes 65,535, and what counts rows in y
// would fail there at more rows than a test has.
constexpr unsigned TALLEST = 64;

// launch copies the arguments, as a launch does.
template <typename... Params, typename... Args>
int launch(cudaStream_t s, bool together, dim3 grid, unsigned block, void (*kernel)(Params...),
           Args... args) {
    if (grid.x == 0 || grid.y == 0 || grid.y > TALLEST || grid.x > 0x7fffffffu)
        return cudaErrorInvalidConfiguration;
    (handed(args), ...);
    static_assert(sizeof(std::tuple<Params...>) <= 4096, "what a launch can pass");
    std::tuple<Params...> copy(args...);
    enqueue(s, [=] {
        run_grid(together, grid, block, [&copy, kernel] { std::apply(kernel, copy); });
    });
    return cudaGetLastError(); // the thread's last error, of any call
}

// exchange passes 8 bytes to the warp and returns those of another lane.
uint64_t exchange(uint64_t mine, unsigned lane_mask);

}  // namespace emulated

template <typename T>
T __shfl_xor_sync(unsigned, T v, int mask) {
    static_assert(sizeof(T) <= 8, "a lane exchanges at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &v, sizeof v);
    bits = emulated::exchange(bits, static_cast<unsigned>(mask));
    std::memcpy(&v, &bits, sizeof v);
    return v;
}

template <typename T>
T __shfl_sync(unsigned, T v, int lane) {
    return __shfl_xor_sync(0u, v, static_cast<int>(threadIdx.x % 32) ^ lane);
}

inline unsigned __ballot_sync(unsigned, int yes) {
    unsigned bits = yes ? 1u << threadIdx.x % 32 : 0u;
    for (int mask = 16; mask > 0; mask /= 2) bits |= __shfl_xor_sync(0u, bits, mask);
    return bits;
}
