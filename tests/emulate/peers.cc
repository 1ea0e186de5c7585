// The part of NCCL that halognn uses, between emulated devices of one process: ranks are threads.
// It is made to find errors:
//
//   - No call waits: an operation with other ranks is in progress until its state has been queried
//     twice, and is queued only then; any other call meanwhile is an error.
//   - A transfer happens when the streams of both ends have reached it. Different lengths at the
//     two ends are an error at both.
//   - Buffers must lie in memory of the communicator's device, the stream must belong to it, and
//     it must be the calling thread's.
//   - HALOGNN_EMULATED_NCCL_FAILS is a rank whose communicators fail to open.
//   - ncclAllReduce does not add in rank order, so that code that relies on the order is detected.
#include "nccl.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

struct group;

// transfer is a message; group is the call of each end, null before that call.
struct transfer {
    group *sender = nullptr, *receiver = nullptr;
    const void *from = nullptr;
    void *to = nullptr;
    size_t sent = 0, expected = 0;
    bool done = false, dead = false;
};

// reduction is an all-reduce.
struct reduction {
    std::vector<group *> by;
    std::vector<float *> bufs;
    size_t count = 0;
    bool done = false, dead = false;
};

struct world {
    int ranks = 0, joined = 0, left = 0;
    std::vector<ncclComm *> members;
    // by sender and receiver, for the other end
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<transfer>>> waiting;
    std::vector<std::shared_ptr<reduction>> reductions;
};

std::map<std::string, std::shared_ptr<world>> worlds;
int ids;
std::string last;

ncclResult_t fail(ncclResult_t r, const std::string &why) {
    last = "emulated: " + why;
    return r;
}

}  // namespace

struct ncclComm {
    std::shared_ptr<world> in;
    int rank, device;
    ncclResult_t fault = ncclSuccess;
    std::string why;
    int asked = 0;
    bool joining = true, finishing = false, finished = false;
    std::shared_ptr<group> pending; // called and not yet queued
    std::vector<group *> underway;
    size_t reductions = 0;

    bool busy() const { return joining || pending != nullptr || (finishing && !finished); }
    void broken(ncclResult_t r, const std::string &what) {
        if (fault == ncclSuccess) fault = r, why = what;
    }
};

namespace {

struct part {
    bool sends;
    int peer;
    void *buf;
    size_t count;
};

// group is the transfers of one call, or a sum.
struct group : emulated::meeting {
    ncclComm *comm; // null after the communicator has been freed
    cudaStream_t stream;
    std::vector<part> parts;
    std::vector<std::shared_ptr<transfer>> transfers;
    std::shared_ptr<reduction> sum;

    group(ncclComm *c, cudaStream_t s) : comm(c), stream(s) {}
    ~group() override {
        if (comm)
            comm->underway.erase(std::remove(comm->underway.begin(), comm->underway.end(), this),
                                 comm->underway.end());
    }

    const group *other(const transfer &t) const { return t.sender == this ? t.receiver : t.sender; }

    bool ready() const override {
        if (comm == nullptr) return true;
        if (comm->fault != ncclSuccess) return false; // hangs until it is aborted
        for (const auto &t : transfers)
            if (!t->done &&
                (t->dead || other(*t) == nullptr || !emulated::first(other(*t)->stream, other(*t))))
                return false;
        if (sum && !sum->done)
            for (const group *g : sum->by)
                if (sum->dead || g == nullptr || (g != this && !emulated::first(g->stream, g)))
                    return false;
        return true;
    }

    emulated_stream *behind() const override {
        if (comm->fault != ncclSuccess) return nullptr;
        for (const auto &t : transfers)
            if (!t->done && !t->dead && other(*t) && !emulated::first(other(*t)->stream, other(*t)))
                return other(*t)->stream;
        if (sum && !sum->done && !sum->dead)
            for (const group *g : sum->by)
                if (g && g != this && !emulated::first(g->stream, g)) return g->stream;
        return nullptr;
    }

    void work() override {
        if (comm == nullptr) return;
        for (const auto &t : transfers) {
            if (t->done) continue;
            std::memcpy(t->to, t->from, t->sent * sizeof(float));
            t->done = true;
        }
        if (!sum || sum->done) return;
        for (size_t i = 0; i < sum->count; i++) {
            float total = sum->bufs.back()[i];
            for (size_t r = sum->bufs.size() - 1; r-- > 0;) total += sum->bufs[r][i];
            for (float *b : sum->bufs) b[i] = total;
        }
        sum->done = true;
    }

    // meet matches the transfers with their other ends.
    void meet() {
        world &w = *comm->in;
        for (const part &p : parts) {
            auto &waiting = w.waiting[p.sends ? std::make_pair(comm->rank, p.peer)
                                              : std::make_pair(p.peer, comm->rank)];
            std::shared_ptr<transfer> t;
            if (!waiting.empty() &&
                (p.sends ? waiting.front()->sender : waiting.front()->receiver) == nullptr) {
                t = waiting.front();
                waiting.pop_front();
            } else {
                waiting.push_back(t = std::make_shared<transfer>());
            }
            transfers.push_back(t);
            if (p.sends) {
                t->sender = this, t->from = p.buf, t->sent = p.count;
            } else {
                t->receiver = this, t->to = p.buf, t->expected = p.count;
            }
            if (!t->dead && t->sender && t->receiver && t->sent != t->expected)
                for (const group *g : {t->sender, t->receiver})
                    if (g->comm)
                        g->comm->broken(
                            ncclInvalidUsage,
                            "rank " + std::to_string(t->sender->comm ? t->sender->comm->rank : -1) +
                                " sends " + std::to_string(t->sent) + " floats where " +
                                std::to_string(t->expected) + " are expected");
        }
        if (!sum) return;
        const size_t number = comm->reductions++, count = sum->count;
        float *buf = sum->bufs[0];
        if (w.reductions.size() == number) {
            w.reductions.push_back(std::make_shared<reduction>());
            w.reductions[number]->by.resize(static_cast<size_t>(w.ranks));
            w.reductions[number]->bufs.resize(static_cast<size_t>(w.ranks));
            w.reductions[number]->count = count;
        }
        sum = w.reductions[number];
        sum->by[static_cast<size_t>(comm->rank)] = this;
        sum->bufs[static_cast<size_t>(comm->rank)] = buf;
        if (!sum->dead && sum->count != count)
            for (const group *g : sum->by)
                if (g && g->comm)
                    g->comm->broken(ncclInvalidUsage,
                                    "ranks add " + std::to_string(sum->count) + " and " +
                                        std::to_string(count) + " floats");
    }
};

thread_local int depth;
thread_local std::shared_ptr<group> open_group;

// add checks a buffer and the stream, and returns the group that the call belongs to.
ncclResult_t add(ncclComm *c, const void *buf, size_t count, int type, cudaStream_t s) {
    if (c->busy()) return fail(ncclInvalidUsage, "a call while the last one is in progress");
    if (c->fault != ncclSuccess) return fail(c->fault, c->why);
    if (type != NCCL_FLOAT || count == 0) return fail(ncclInvalidArgument, "a type or a count");
    if (emulated::belongs(s) != c->device || emulated::thread_device() != c->device)
        return fail(ncclInvalidUsage, "another device's stream or thread");
    if (!emulated::on_device(buf, count * sizeof(float), c->device))
        return fail(ncclInvalidArgument, "a buffer outside the device's memory");
    if (open_group && (open_group->comm != c || open_group->stream != s))
        return fail(ncclInvalidUsage, "a group over several communicators or streams");
    if (!open_group) open_group = std::make_shared<group>(c, s);
    return ncclSuccess;
}

// leave removes a communicator from its world.
void leave(ncclComm *c) {
    for (group *g : c->underway) {
        for (const auto &t : g->transfers)
            if (!t->done) t->dead = true;
        if (g->sum && !g->sum->done) g->sum->dead = true;
        g->comm = nullptr;
    }
    if (c->pending) c->pending->comm = nullptr;
    world &w = *c->in;
    w.members[static_cast<size_t>(c->rank)] = nullptr;
    if (++w.left == w.ranks)
        for (auto it = worlds.begin(); it != worlds.end(); ++it)
            if (it->second == c->in) {
                worlds.erase(it);
                break;
            }
    delete c;
    emulated::made(-1);
    emulated::wake();
}

using guard = std::lock_guard<std::recursive_mutex>;

}  // namespace

extern "C" {

// emulated_nccl_break breaks all existing communicators of a rank.
void emulated_nccl_break(int rank) {
    const guard hold(emulated::everything());
    for (auto &[id, w] : worlds)
        if (rank < w->ranks && w->members[static_cast<size_t>(rank)])
            w->members[static_cast<size_t>(rank)]->broken(ncclRemoteError, "a link went down");
}

ncclResult_t ncclGetVersion(int *version) { return *version = 21805, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    const guard hold(emulated::everything());
    std::memset(id, 0, sizeof *id);
    std::snprintf(id->internal, sizeof id->internal, "emulated world %d", ids++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    const guard hold(emulated::everything());
    if (config == nullptr || config->size != sizeof *config || config->magic != NCCL_MAGIC ||
        config->version != NCCL_OLDEST || config->blocking != 0)
        return fail(ncclInvalidArgument, "the config");
    if (rank < 0 || rank >= ranks || std::strncmp(id.internal, "emulated world ", 15) != 0)
        return fail(ncclInvalidArgument, "the rank or the id");
    auto &w = worlds[id.internal];
    if (!w) {
        w = std::make_shared<world>();
        w->ranks = ranks;
        w->members.resize(static_cast<size_t>(ranks));
    }
    if (w->ranks != ranks || w->members[static_cast<size_t>(rank)])
        return fail(ncclInvalidArgument, "the number of ranks, or a rank that is there already");
    ncclComm *c = new ncclComm;
    c->in = w, c->rank = rank, c->device = emulated::thread_device();
    for (const ncclComm *m : w->members)
        if (m && m->device == c->device) c->broken(ncclInvalidUsage, "two ranks share a device");
    const char *failing = std::getenv("HALOGNN_EMULATED_NCCL_FAILS");
    if (failing && rank == std::atoi(failing)) c->broken(ncclSystemError, "no network");
    if (c->fault == ncclSuccess) w->joined++;
    w->members[static_cast<size_t>(rank)] = *comm = c;
    emulated::made(1);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
    const guard hold(emulated::everything());
    *error = ncclSuccess;
    if (c->fault != ncclSuccess) {
        *error = fail(c->fault, c->why);
        return ncclSuccess;
    }
    if (!c->busy()) return ncclSuccess;
    *error = ncclInProgress;
    if (++c->asked < 2 || (c->joining && c->in->joined < c->in->ranks)) return ncclSuccess;
    c->asked = 0;
    c->joining = false;
    c->finished = c->finishing;
    if (c->pending) {
        std::shared_ptr<group> g = std::move(c->pending);
        c->pending = nullptr;
        c->underway.push_back(g.get());
        g->meet();
        const int device = emulated::thread_device();
        cudaSetDevice(c->device); // on any calling thread
        const cudaError_t e = emulated::enqueue(g->stream, g);
        cudaSetDevice(device);
        if (e != cudaSuccess) c->broken(ncclSystemError, "the stream");
        emulated::wake();
    }
    *error = c->fault;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) { return depth++, ncclSuccess; }

ncclResult_t ncclGroupEnd(void) {
    const guard hold(emulated::everything());
    if (--depth > 0 || !open_group) return ncclSuccess;
    open_group->comm->pending = open_group;
    open_group = nullptr;
    return ncclInProgress;
}

ncclResult_t ncclSend(const void *buf, size_t count, int type, int peer, ncclComm_t c,
                      cudaStream_t s) {
    const guard hold(emulated::everything());
    if (depth == 0)
        return fail(ncclInvalidUsage, "ncclSend outside of a group, which may wait for ever");
    if (peer < 0 || peer >= c->in->ranks) return fail(ncclInvalidArgument, "the peer");
    const ncclResult_t r = add(c, buf, count, type, s);
    if (r == ncclSuccess) open_group->parts.push_back({true, peer, const_cast<void *>(buf), count});
    return r;
}

ncclResult_t ncclRecv(void *buf, size_t count, int type, int peer, ncclComm_t c, cudaStream_t s) {
    const guard hold(emulated::everything());
    if (depth == 0)
        return fail(ncclInvalidUsage, "ncclRecv outside of a group, which may wait for ever");
    if (peer < 0 || peer >= c->in->ranks) return fail(ncclInvalidArgument, "the peer");
    const ncclResult_t r = add(c, buf, count, type, s);
    if (r == ncclSuccess) open_group->parts.push_back({false, peer, buf, count});
    return r;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
                           ncclComm_t c, cudaStream_t s) {
    const guard hold(emulated::everything());
    if (send != recv || op != NCCL_SUM)
        return fail(ncclInvalidArgument, "only sums in place are emulated");
    ncclGroupStart();
    const ncclResult_t r = add(c, recv, count, type, s);
    if (r == ncclSuccess) {
        open_group->sum = std::make_shared<reduction>();
        open_group->sum->bufs = {static_cast<float *>(recv)};
        open_group->sum->count = count;
    }
    const ncclResult_t end = ncclGroupEnd();
    return r == ncclSuccess ? end : r;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    const guard hold(emulated::everything());
    if (c->busy() || c->finishing || !c->underway.empty())
        return fail(ncclInvalidUsage, "finishing what is in use");
    c->finishing = true;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    const guard hold(emulated::everything());
    if (!c->finished) return fail(ncclInvalidUsage, "closing what is not finished");
    leave(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
    const guard hold(emulated::everything());
    leave(c);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) {
    switch (r) {
        case ncclSystemError: return "unhandled system error";
        case ncclInvalidArgument: return "invalid argument";
        case ncclInvalidUsage: return "invalid usage";
        case ncclRemoteError: return "remote process exited or there was a network error";
        default: return "another error";
    }
}

const char *ncclGetLastError(ncclComm_t) { return last.c_str(); }

}  // extern "C"
