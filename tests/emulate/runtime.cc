// Memory, streams and events of the emulated device.
#include <dlfcn.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

struct emulated_event {
    int64_t recorded = 0, fired = 0; // records queued; records that have run
    std::chrono::steady_clock::time_point at;
    emulated_stream *on = nullptr;
    int device;
    bool timed;
};

namespace {

struct op {
    std::function<void()> work;      // empty for a wait and a meeting
    emulated_event *event = nullptr; // waited for
    int64_t ticket = 0;
    const void *from = nullptr, *to = nullptr; // of a copy
    std::shared_ptr<emulated::meeting> meeting = nullptr;
    bool hangs = false; // for ever
};

struct allocation {
    size_t bytes;
    char *page;    // where it was mapped
    size_t mapped; // without the guard page after it
    bool device;
    int number; // of the device
    bool registered = false; // existing host memory, mapped for kernels to read
    int file = -1;           // that other processes can map
    bool imported = false;   // from another process
};

}  // namespace

struct emulated_stream {
    int device;
    std::deque<op> queue;
    bool computes = false; // kernels have been queued
};

namespace {

constexpr int DEVICES = 4;

bool set(const char *variable) { return std::getenv(variable) != nullptr; }

__thread int current_device; // 0 for a thread that has not set one
__thread int working = -1;   // the device whose queued work the thread runs; -1 for none
__thread cudaError_t last_error; // until cudaGetLastError

cudaError_t fail(cudaError_t e) { return last_error = e; }

std::recursive_mutex lock;
std::condition_variable_any calls; // signals a call that other threads may wait for
std::map<const char *, allocation> memory; // by address
std::set<emulated_stream *> streams;
std::set<emulated_event *> events;
const int devices = [] {
    const char *s = std::getenv("HALOGNN_EMULATED_DEVICES");
    return s ? std::clamp(std::atoi(s), 0, DEVICES) : DEVICES;
}();
size_t in_use[DEVICES];
bool near[DEVICES][DEVICES]; // the first one may read memory of the second
size_t changes; // of memory
int refusals;   // the number of next calls that fail to pin
int others; // objects to be freed that are counted elsewhere
std::map<std::string, int64_t> launched; // how often, by name

// hanging is a kernel that never ends at one of its launches, which are counted down to it.
struct {
    std::string name;
    int64_t left = 0;
} hanging = [] {
    decltype(hanging) h;
    const char *s = std::getenv("HALOGNN_EMULATED_HANG"), *at = s ? std::strrchr(s, ':') : nullptr;
    if (at) h.name.assign(s, at), h.left = std::atoll(at + 1);
    return h;
}();
__thread bool hangs; // the launch that the thread makes
int running = [] { // nesting depth of running work; device memory is open if > 0
    const char *s = std::getenv("HALOGNN_EMULATED_OPEN");
    return s ? std::atoi(s) : 0;
}();
const int always = running; // it is open
uint64_t random_state = [] {
    const char *s = std::getenv("HALOGNN_EMULATED_SEED");
    return s ? std::strtoull(s, nullptr, 10) : 0;
}();

const size_t total = [] {
    const char *s = std::getenv("HALOGNN_EMULATED_BYTES");
    return s ? std::strtoull(s, nullptr, 10) : size_t{64} << 20;
}();

uint64_t draw(uint64_t n) { // xorshift64
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

void open_device_memory(bool open) {
    for (auto &[p, a] : memory)
        if (a.device) mprotect(a.page, a.mapped, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

struct opened { // device memory, for as long as it lives
    opened() {
        if (running++ == 0) open_device_memory(true);
    }
    ~opened() {
        if (--running == 0) open_device_memory(false);
    }
};

bool runnable(const emulated_stream *s) {
    if (s->queue.empty()) return false;
    const op &o = s->queue.front();
    if (o.hangs) return false;
    if (o.meeting) return o.meeting->ready();
    return o.event == nullptr || o.event->fired >= o.ticket;
}

void step(emulated_stream *s) {
    op o = std::move(s->queue.front());
    s->queue.pop_front();
    const int outer = std::exchange(working, s->device);
    if (o.work) o.work();
    if (o.meeting) o.meeting->work();
    working = outer;
}

// advance runs one queued operation that s depends on; false if that needs a call that has not been
// made.
bool advance(emulated_stream *s) {
    if (random_state != 0) {
        std::vector<emulated_stream *> ready;
        for (emulated_stream *t : streams)
            if (runnable(t)) ready.push_back(t);
        if (!ready.empty()) return step(ready[draw(ready.size())]), true;
    }
    for (size_t hops = 0; !runnable(s); hops++) { // first run the stream that it waits for
        if (s->queue.empty() || hops > streams.size()) return false;
        const op &o = s->queue.front();
        if (o.hangs) return false;
        s = o.meeting ? o.meeting->behind() : o.event->on;
        if (s == nullptr) return false;
    }
    step(s);
    return true;
}

// run advances a stream until done is true. While it waits for calls of other threads, it releases
// the lock, and device memory is closed. It wakes others only where it has made progress: else two
// that wait for the call of a third would wake each other for ever.
template <typename Done>
void run(emulated_stream *s, const Done &done) {
    std::unique_lock<std::recursive_mutex> hold(lock);
    for (;;) {
        bool moved = false;
        {
            opened o;
            while (!done() && advance(s)) moved = true;
        }
        if (moved) calls.notify_all();
        if (done()) return;
        calls.wait(hold);
    }
}

// disturb lets queued work run early, at random.
void disturb() {
    if (random_state == 0 || running > always) return;
    opened o;
    for (uint64_t n = draw(4); n > 0; n--)
        for (emulated_stream *s : streams)
            if (runnable(s)) {
                advance(s);
                break;
            }
}

// within returns the allocation that holds [p, p+bytes), or null.
const allocation *within(const void *p, size_t bytes) {
    const char *c = static_cast<const char *>(p);
    auto it = memory.upper_bound(c);
    if (it == memory.begin()) return nullptr;
    --it;
    return c + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
}

bool inside(const void *p, const char *base, size_t bytes) {
    return p >= base && p < base + bytes;
}

constexpr size_t WIDEST = 16; // access of a kernel

// poison tells AddressSanitizer, if present, that of [first, last) only [begin, end) may be
// accessed.
void poison([[maybe_unused]] char *first, [[maybe_unused]] char *begin, [[maybe_unused]] char *end,
            [[maybe_unused]] char *last) {
#ifdef __SANITIZE_ADDRESS__
    __asan_poison_memory_region(first, static_cast<size_t>(last - first));
    __asan_unpoison_memory_region(begin, static_cast<size_t>(end - begin));
#endif
}

// reserve maps memory, of a file unless that is -1, with a guard page after it; null on failure.
char *reserve(size_t mapped, size_t page, int file) {
    if (file >= 0 && ftruncate(file, static_cast<off_t>(mapped)) != 0) return nullptr;
    char *first = static_cast<char *>(
        mmap(nullptr, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (first == MAP_FAILED) return nullptr;
    const int kind = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    return mmap(first, mapped, PROT_READ | PROT_WRITE, kind | MAP_FIXED, file, 0) == first
               ? first
               : nullptr;
}

cudaError_t make(void **out, size_t bytes, bool device) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (device && in_use[current_device] + bytes > total) return fail(cudaErrorMemoryAllocation);
    emulated::count("allocation");
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)),
                 mapped = (bytes + page - 1) / page * page;
    const int file = device && set("HALOGNN_EMULATED_IPC")
                         ? memfd_create("emulated device memory", MFD_CLOEXEC)
                         : -1;
    char *first = reserve(mapped, page, file);
    if (first == nullptr) return fail(cudaErrorMemoryAllocation);
    madvise(first, mapped, MADV_HUGEPAGE); // huge pages make closing and opening cheap
    std::memset(first, 0xff, mapped);
    char *p = first + (mapped - bytes) / WIDEST * WIDEST; // ends at the guard page, up to alignment
    poison(first, p, p + bytes, first + mapped);
    if (device) {
        in_use[current_device] += bytes;
        if (running == 0) mprotect(first, mapped, PROT_NONE);
    }
    changes++;
    memory[p] = {bytes, first, mapped, device, current_device, false, file};
    *out = p;
    return cudaSuccess;
}

// busy reports whether work is queued whose kernels may use any memory of a device. Of the only
// device nothing can be said: ranks that share it free their own memory while others work.
bool busy(int device) {
    return devices > 1 && std::any_of(streams.begin(), streams.end(), [&](emulated_stream *s) {
               return s->device == device && !s->queue.empty();
           });
}

cudaError_t release(void *p, bool device) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (p == nullptr) return cudaSuccess;
    const auto it = memory.find(static_cast<char *>(p));
    if (it == memory.end() || it->second.device != device || it->second.registered ||
        it->second.imported)
        return fail(cudaErrorInvalidValue);
    if (it->second.number != current_device) return fail(cudaErrorOtherDevice);
    // Kernels may use any memory of their device, but no host memory.
    if (device && busy(it->second.number)) return fail(cudaErrorStillInUse);
    for (const emulated_stream *s : streams)
        for (const op &o : s->queue)
            if (inside(o.from, it->first, it->second.bytes) ||
                inside(o.to, it->first, it->second.bytes))
                return fail(cudaErrorStillInUse);
    const allocation &a = it->second;
    poison(a.page, a.page, a.page + a.mapped, a.page + a.mapped); // the addresses may be reused
    munmap(a.page, a.mapped + static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    if (a.file >= 0) close(a.file);
    if (device) in_use[it->second.number] -= it->second.bytes;
    changes++;
    memory.erase(it);
    return cudaSuccess;
}

// usable returns an error if an event is not of the calling thread's device: on another one the
// runtime would make a context.
cudaError_t usable(const emulated_event *e) {
    if (events.count(const_cast<emulated_event *>(e)) == 0)
        return fail(cudaErrorInvalidResourceHandle);
    return e->device == current_device ? cudaSuccess : fail(cudaErrorOtherDevice);
}

// writable reports whether the process may write all its pages of [begin, end).
bool writable(const char *begin, const char *end) {
    std::FILE *maps = std::fopen("/proc/self/maps", "r");
    if (maps == nullptr) return true;
    const auto from = reinterpret_cast<uintptr_t>(begin), to = reinterpret_cast<uintptr_t>(end);
    unsigned long first, last;
    char may[5];
    bool all = true;
    while (all && std::fscanf(maps, "%lx-%lx %4s%*[^\n]", &first, &last, may) == 3)
        all = last <= from || first >= to || may[1] == 'w';
    std::fclose(maps);
    return all;
}

cudaError_t push(emulated_stream *s, op o) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (streams.count(s) == 0 || s->device != current_device)
        return fail(cudaErrorInvalidResourceHandle);
    s->queue.push_back(std::move(o));
    calls.notify_all();
    disturb();
    return cudaSuccess;
}

}  // namespace

cudaError_t emulated::enqueue(cudaStream_t s, std::function<void()> work) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (streams.count(s) > 0) s->computes = true;
    op o{std::move(work), nullptr, 0, nullptr, nullptr};
    o.hangs = std::exchange(hangs, false);
    return push(s, std::move(o));
}
cudaError_t emulated::enqueue(cudaStream_t s, std::shared_ptr<meeting> m) {
    return push(s, op{nullptr, nullptr, 0, nullptr, nullptr, std::move(m)});
}
bool emulated::first(cudaStream_t s, const meeting *m) {
    return streams.count(s) > 0 && !s->queue.empty() && s->queue.front().meeting.get() == m;
}
bool emulated::on_device(const void *p, size_t bytes, int device) {
    const allocation *a = within(p, bytes);
    return a && a->device && a->number == device;
}
int emulated::belongs(cudaStream_t s) { return streams.count(s) ? s->device : -1; }
int emulated::thread_device() { return current_device; }
std::recursive_mutex &emulated::everything() { return lock; }
void emulated::wake() { calls.notify_all(); }
void emulated::made(int n) { others += n; }

uint64_t emulated::draw(uint64_t n) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    return random_state ? ::draw(n) : 0;
}

void emulated::count(const char *name) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    launched[name]++;
}
void emulated::count(const char *file, const char *kernel) {
    std::string name(file), what(kernel);
    name = name.substr(name.rfind('/') + 1); // npos + 1 is 0
    name.erase(name.rfind('.'));
    if (what[0] == '(') what.erase(0, 1);
    what.erase(std::min(what.size(), what.find('<')));
    name += "/" + what;
    count(name.c_str());
    const std::lock_guard<std::recursive_mutex> hold(lock);
    hangs = name == hanging.name && --hanging.left == 0;
}

// emulated_launches returns a line for each kernel, copy and so on that was put on a stream since
// the last call, and for each call that the host waits in: its name and how often. The text is the
// caller's until its next call.
extern "C" const char *emulated_launches(void) {
    static std::string text;
    const std::lock_guard<std::recursive_mutex> hold(lock);
    text.clear();
    for (const auto &[name, n] : launched) text += name + " " + std::to_string(n) + "\n";
    launched.clear();
    return text.c_str();
}

// emulated_leaks returns the number of objects not freed: allocations, streams, events.
extern "C" int emulated_leaks(void) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    return static_cast<int>(memory.size() + streams.size() + events.size()) + others;
}

// emulated_refuse makes the next n calls that pin host memory fail.
extern "C" void emulated_refuse(int n) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    refusals = n;
}

void emulated::aligned(const void *p, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(p) % bytes == 0) return;
    std::fprintf(stderr, "emulated CUDA: a kernel is to access %zu bytes at once at %p\n", bytes,
                 p);
    std::abort();
}

void emulated::readable(const void *p, size_t bytes) {
    static __thread const char *last; // most lookups repeat the previous one
    static __thread size_t length, seen;
    static __thread int by;
    std::unique_lock<std::recursive_mutex> hold(lock, std::defer_lock);
    if (working < 0) hold.lock(); // queued work runs under the lock
    const int device = working >= 0 ? working : current_device;
    if (by == device && seen == changes && inside(p, last, length) &&
        static_cast<const char *>(p) + bytes <= last + length)
        return;
    const allocation *a = within(p, bytes);
    if (a == nullptr || !(a->device || a->registered)) {
        std::fprintf(stderr,
                     "emulated CUDA: a kernel is to read %zu bytes at %p, which is neither device "
                     "memory nor mapped\n",
                     bytes, p);
        std::abort();
    }
    if (a->device && a->number != device && !near[device][a->number]) {
        std::fprintf(stderr,
                     "emulated CUDA: a kernel of device %d is to read memory of device %d, which "
                     "it was not let near\n",
                     device, a->number);
        std::abort();
    }
    by = device;
    last = std::prev(memory.upper_bound(static_cast<const char *>(p)))->first;
    length = a->bytes;
    seen = changes;
}

// emulated_seed sets when queued work runs: 0 as late as possible, others at random.
extern "C" void emulated_seed(uint64_t seed) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    random_state = seed;
}

const char *cudaGetErrorString(cudaError_t e) {
    switch (e) {
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid grid";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle: return "no such stream or event";
        case cudaErrorStillInUse: return "freed while queued work may still use it";
        case cudaErrorNothingToWaitFor: return "an event that was never recorded";
        case cudaErrorOtherDevice: return "the calling thread's device is another one";
        case cudaErrorNotReady: return "an event that has not happened yet";
        default: return "an address, a size or a kind of memory that does not fit";
    }
}

cudaError_t cudaGetDeviceCount(int *n) {
    *n = devices;
    return devices ? cudaSuccess : fail(cudaErrorNoDevice);
}
// tell reports on standard error when the first device is set, if HALOGNN_EMULATED_TELL is set: for
// tests of the order of that and the start of MPI.
static bool tell(int device) {
    if (std::getenv("HALOGNN_EMULATED_TELL") == nullptr) return true;
    int (*initialized)(int *), yes = 0;
    *reinterpret_cast<void **>(&initialized) = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    if (initialized != nullptr) initialized(&yes);
    std::fprintf(stderr, "emulated CUDA: device %d is set %s MPI starts, on %s thread\n", device,
                 yes ? "after" : "before", gettid() == getpid() ? "the main" : "another");
    return true;
}

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= devices) return fail(cudaErrorInvalidDevice);
    static const bool told = tell(device);
    (void)told;
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    if (device < 0 || device >= devices) return fail(cudaErrorInvalidDevice);
    *p = {};
    std::snprintf(p->name, sizeof p->name, "emulated device %d", device);
    std::snprintf(reinterpret_cast<char *>(p->uuid), sizeof p->uuid, "%d.%d",
                  std::getenv("HALOGNN_EMULATED_SHARED") ? 0 : static_cast<int>(getpid()), device);
    p->major = p->minor = 0;
    p->multiProcessorCount = 1;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) { return *v = 0, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { return *v = 0, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *available, size_t *all) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    *available = total - in_use[current_device];
    *all = total;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return make(p, bytes, true); }
cudaError_t cudaFree(void *p) { return release(p, true); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
    {
        const std::lock_guard<std::recursive_mutex> hold(lock);
        if (refusals > 0) return refusals--, fail(cudaErrorMemoryAllocation);
    }
    return make(p, bytes, false);
}
cudaError_t cudaFreeHost(void *p) { return release(p, false); }

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    return *value = set("HALOGNN_EMULATED_READ_ONLY"), cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (p == nullptr || bytes == 0 || !(flags & cudaHostRegisterMapped))
        return fail(cudaErrorInvalidValue);
    if (refusals > 0) return refusals--, fail(cudaErrorMemoryAllocation);
    const char *c = static_cast<const char *>(p);
    const bool read_only = flags & cudaHostRegisterReadOnly;
    if (read_only && !set("HALOGNN_EMULATED_READ_ONLY")) return fail(cudaErrorNotSupported);
    if (!read_only && !writable(c, c + bytes)) return fail(cudaErrorInvalidValue);
    const auto after = memory.lower_bound(c + bytes);
    if (after != memory.begin() && std::prev(after)->first + std::prev(after)->second.bytes > c)
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    changes++;
    memory[c] = {bytes, nullptr, 0, false, current_device, true};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    const auto it = memory.find(static_cast<char *>(p));
    if (it == memory.end() || !it->second.registered) return fail(cudaErrorHostMemoryNotRegistered);
    if (it->second.number != current_device) return fail(cudaErrorOtherDevice);
    if (busy(it->second.number)) return fail(cudaErrorStillInUse); // its kernels may read it
    changes++;
    memory.erase(it);
    return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    const allocation *a = within(host, 1);
    if (a == nullptr || !a->registered) return fail(cudaErrorInvalidValue);
    return *device = host, cudaSuccess;
}

namespace {

// exported is the content of a cudaIpcMemHandle_t.
struct exported {
    int process, file;
    size_t bytes, mapped, begin;
};
static_assert(sizeof(exported) <= sizeof(cudaIpcMemHandle_t), "it fits");

}  // namespace

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    const auto it = memory.find(static_cast<char *>(p));
    if (it == memory.end() || !it->second.device || it->second.imported)
        return fail(cudaErrorInvalidValue);
    const allocation &a = it->second;
    if (a.file < 0) return fail(cudaErrorNotSupported);
    const exported e{getpid(), a.file, a.bytes, a.mapped, static_cast<size_t>(it->first - a.page)};
    *h = {};
    std::memcpy(h, &e, sizeof e);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t h, unsigned) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    exported e;
    std::memcpy(&e, &h, sizeof e);
    if (e.process == getpid()) return fail(cudaErrorInvalidContext);
    if (set("HALOGNN_EMULATED_ISLANDS")) return fail(cudaErrorPeerAccessUnsupported);
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", e.process, e.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return fail(cudaErrorInvalidValue);
    char *first = reserve(e.mapped, static_cast<size_t>(sysconf(_SC_PAGESIZE)), file);
    close(file);
    if (first == nullptr) return fail(cudaErrorMemoryAllocation);
    if (running == 0) mprotect(first, e.mapped, PROT_NONE);
    changes++;
    memory[first + e.begin] = {e.bytes, first, e.mapped, true, current_device, false, -1, true};
    return *out = first + e.begin, cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *p) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    const auto it = memory.find(static_cast<char *>(p));
    if (it == memory.end() || !it->second.imported) return fail(cudaErrorInvalidValue);
    if (it->second.number != current_device) return fail(cudaErrorOtherDevice);
    if (busy(it->second.number)) return fail(cudaErrorStillInUse); // its kernels may read it
    munmap(it->second.page, it->second.mapped + static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    changes++;
    memory.erase(it);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    if (device < 0 || device >= devices || peer < 0 || peer >= devices)
        return fail(cudaErrorInvalidDevice);
    return *can = device != peer && !set("HALOGNN_EMULATED_ISLANDS"), cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    int can = 0;
    if (cudaError_t e = cudaDeviceCanAccessPeer(&can, current_device, peer)) return e;
    if (!can) return fail(cudaErrorPeerAccessUnsupported);
    if (near[current_device][peer]) return fail(cudaErrorPeerAccessAlreadyEnabled);
    return near[current_device][peer] = true, cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s) {
    std::unique_lock<std::recursive_mutex> hold(lock);
    const allocation *to = within(dst, bytes), *from = within(src, bytes);
    const bool to_device = kind != cudaMemcpyDeviceToHost,
               from_device = kind != cudaMemcpyHostToDevice;
    const bool pinned = (to_device && from_device) || (to_device ? from : to) != nullptr;
    emulated::count(!pinned        ? "pageable copy"
                    : !to_device   ? "copy down"
                    : !from_device ? "copy up"
                                   : "copy");
    if ((to && to->device) != to_device || (from && from->device) != from_device)
        return fail(cudaErrorInvalidValue);
    if (!to_device && !to) { // pageable: complete on return
        if (cudaError_t e =
                push(s, op{[=] { std::memcpy(dst, src, bytes); }, nullptr, 0, nullptr, nullptr}))
            return e;
        hold.unlock(); // which may wait for calls of other threads
        return cudaStreamSynchronize(s);
    }
    return push(s, op{[=] { std::memcpy(dst, src, bytes); }, nullptr, 0, src, dst});
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (kind != cudaMemcpyDefault) return fail(cudaErrorInvalidValue);
    opened o;
    std::memcpy(dst, src, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    const allocation *to = within(dst, bytes);
    if (!to || !to->device) return fail(cudaErrorInvalidValue);
    emulated::count("zero");
    return push(s, op{[=] { std::memset(dst, value, bytes); }, nullptr, 0, nullptr, nullptr});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    streams.insert(*s = new emulated_stream{current_device, {}});
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (streams.count(s) == 0) return fail(cudaErrorInvalidResourceHandle);
    if (!s->queue.empty()) return fail(cudaErrorStillInUse);
    streams.erase(s);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    if (s == cudaStreamLegacy) return cudaSuccess; // nothing is ever queued on it
    {
        const std::lock_guard<std::recursive_mutex> hold(lock);
        emulated::count("spin");
        if (streams.count(s) == 0) return fail(cudaErrorInvalidResourceHandle);
        if (s->device != current_device) return fail(cudaErrorOtherDevice);
    }
    run(s, [s] { return s->queue.empty(); });
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (events.count(e) == 0) return fail(cudaErrorInvalidResourceHandle);
    if (e->recorded == 0) return fail(cudaErrorNothingToWaitFor);
    return push(s, op{nullptr, e, e->recorded, nullptr, nullptr});
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    const bool timed = !(flags & cudaEventDisableTiming);
    events.insert(*e = new emulated_event{0, 0, {}, nullptr, current_device, timed});
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (cudaError_t wrong = usable(e)) return wrong;
    if (e->fired < e->recorded) return fail(cudaErrorStillInUse);
    for (const emulated_stream *s : streams)
        for (const op &o : s->queue)
            if (o.event == e) return fail(cudaErrorStillInUse);
    events.erase(e);
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (cudaError_t wrong = usable(e)) return wrong;
    if (e->fired < e->recorded && e->on != s)
        return fail(cudaErrorStillInUse); // tickets count the records of one stream at a time
    e->recorded++;
    e->on = s;
    return push(s, op{[e] {
        e->fired++;
        e->at = std::chrono::steady_clock::now();
    }, nullptr, 0, nullptr, nullptr});
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    {
        const std::lock_guard<std::recursive_mutex> hold(lock);
        if (cudaError_t wrong = usable(e)) return wrong;
        if (e->recorded == 0) return fail(cudaErrorNothingToWaitFor);
        emulated::count(e->on->computes ? "wait for kernels" : "wait for copies");
    }
    run(e->on, [e] { return e->fired >= e->recorded; });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) { // nothing runs meanwhile: work is as late as it may be
    const std::lock_guard<std::recursive_mutex> hold(lock);
    if (cudaError_t wrong = usable(e)) return wrong;
    return e->fired < e->recorded ? fail(cudaErrorNotReady) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    const std::lock_guard<std::recursive_mutex> hold(lock);
    for (cudaEvent_t e : {begin, end}) {
        if (cudaError_t wrong = usable(e)) return wrong;
        if (!e->timed) return fail(cudaErrorInvalidResourceHandle);
    }
    if (begin->fired < begin->recorded || end->fired < end->recorded)
        return fail(cudaErrorNotReady);
    *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
    return cudaSuccess;
}
