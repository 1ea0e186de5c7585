// The threads of a grid. Independent threads are a loop. Threads that synchronise are fibers,
// resumed in turn: in every round each of them runs to its next synchronisation, and all threads of
// a warp must have reached the same kind. If work runs at random, turns go by another order in each
// block, so that what a thread reads of another without a synchronisation differs.
//
// A fiber is entered once by its context and left and resumed by jumps, which need no system call;
// it runs block after block of one grid after another.
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

__thread dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr unsigned WARP = 32;
constexpr size_t STACK = (32 << 10) + 13 * 64; // tops of stacks share few lines of a cache

enum meeting { LEFT, WARP_WIDE, BLOCK_WIDE };

struct block {
    struct fiber {
        jmp_buf at;
        std::unique_ptr<char[]> stack; // none before it is entered
    };
    const std::function<void()> *body;
    std::deque<fiber> fibers; // as many as the largest block so far
    std::vector<meeting> place; // of the threads of this block
    struct passed {
        uint64_t value[2]; // the last one, and the one before it
        unsigned turn = 0;
    };
    std::vector<passed> given;
    jmp_buf scheduler;
    unsigned now = 0;
};

__thread block *current; // while its threads run

// fibers_of_thread are kept from grid to grid: fresh stacks take longer than most kernels.
thread_local block fibers_of_thread;

std::vector<std::pair<void *, size_t>> shared_arrays; // under the lock of all queued work

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "emulated CUDA: %s\n", what);
    std::abort();
}

// leave returns control to the scheduler; it returns when the fiber is resumed.
void leave(meeting m) {
    block *b = current;
    const unsigned me = b->now;
    b->place[me] = m;
    if (_setjmp(b->fibers[me].at) == 0) _longjmp(b->scheduler, 1);
}

void fiber() {
    for (;;) {
        (*current->body)();
        leave(LEFT);
    }
}

// enter goes on where a fiber left, or begins it.
[[noreturn]] void enter(block::fiber &f) {
    if (f.stack) _longjmp(f.at, 1);
    f.stack.reset(new char[STACK]);
    ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = f.stack.get();
    first.uc_stack.ss_size = STACK;
    first.uc_link = nullptr;
    makecontext(&first, fiber, 0);
    setcontext(&first);
    fail("a context that cannot be set");
}

// resume runs a fiber until it leaves.
void resume(block &b, unsigned t) {
    threadIdx = dim3(t);
    b.now = t;
    if (_setjmp(b.scheduler) == 0) enter(b.fibers[t]);
}

void wait(meeting m) {
    if (current == nullptr)
        fail("threads meet in a kernel that was launched as one of independent threads");
    leave(m);
}

// check aborts unless the threads of each warp wait at the same kind of place, and those of the
// block if any waits for all.
void check(const block &b) {
    bool whole = false;
    for (unsigned t = 0; t < b.place.size(); t++) {
        if (b.place[t] != b.place[t - t % WARP])
            fail("the threads of a warp part where they should meet");
        whole = whole || b.place[t] == BLOCK_WIDE;
    }
    for (unsigned t = 0; whole && t < b.place.size(); t++)
        if (b.place[t] != BLOCK_WIDE) fail("a thread does not come to __syncthreads");
}

void run_block(block &b, unsigned order) {
    for (const auto &[p, bytes] : shared_arrays) emulated::dirty(p, bytes);
    current = &b;
    const unsigned n = static_cast<unsigned>(b.place.size());
    for (unsigned t = 0; t < n; t++) b.place[t] = WARP_WIDE;
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < n; i++) {
            const unsigned t = i ^ order;
            if (b.place[t] == LEFT) continue;
            resume(b, t);
            more = more || b.place[t] != LEFT;
        }
        check(b);
    }
    current = nullptr;
}

}  // namespace

void __syncthreads() { wait(BLOCK_WIDE); }
void __syncwarp() { wait(WARP_WIDE); }

uint64_t emulated::exchange(uint64_t mine, unsigned lane_mask) {
    if (current == nullptr)
        fail("threads exchange values in a kernel that was launched as one of independent threads");
    block *b = current;
    block::passed &my = b->given[b->now];
    // The next value goes elsewhere: a lane may pass it before others have read this one, but none
    // passes a third before all have come to the second.
    const unsigned turn = my.turn ^= 1;
    my.value[turn] = mine;
    const unsigned other = b->now ^ lane_mask;
    wait(WARP_WIDE);
    return b->given[other].value[turn];
}

void emulated::dirty(void *p, size_t bytes) { std::memset(p, 0xff, bytes); }
void emulated::dirty_for_each_block(void *p, size_t bytes) {
    shared_arrays.emplace_back(p, bytes);
    dirty(p, bytes); // for the block that comes to it first
}

void emulated::run_grid(bool together, dim3 grid, unsigned n, const std::function<void()> &body) {
    blockDim = dim3(n);
    gridDim = grid;
    block &b = fibers_of_thread;
    b.body = &body;
    if (together) {
        if (b.fibers.size() < n) b.fibers.resize(n);
        b.place.resize(n);
        b.given.assign(n, {}); // every lane at the same turn
    }
    const uint64_t blocks = uint64_t{grid.x} * grid.y, first = draw(blocks);
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t at = (first + i) % blocks;
        blockIdx = dim3(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x));
        // threads are as many as a power of two, so that numbers with some bits turned are theirs
        const unsigned order = static_cast<unsigned>(draw(n));
        if (together) {
            run_block(b, order);
            continue;
        }
        for (unsigned t = 0; t < n; t++) {
            threadIdx = dim3(t ^ order);
            body();
        }
    }
}
