// The threads of a grid. Independent threads are a loop. Threads that synchronise are fibers,
// resumed in turn: in every round each of them runs to its next synchronisation, and all threads of
// a warp must have reached the same kind.
//
// A fiber is entered once by its context and left and resumed by jumps, which need no system call;
// it runs block after block of a grid.
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <vector>

#include "cuda_runtime.h"

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 32 << 10;

enum meeting { LEFT, WARP_WIDE, BLOCK_WIDE };

struct block {
    block(unsigned n, const std::function<void()> &body)
        : body(body), fibers(n), stacks(n * STACK), place(n), given(n) {}
    struct fiber {
        jmp_buf at;
        bool entered = false;
    };
    const std::function<void()> &body;
    std::vector<fiber> fibers;
    std::vector<char> stacks;
    std::vector<meeting> place;
    std::vector<uint64_t> given;
    jmp_buf scheduler;
    unsigned now = 0;
};

thread_local block *current;

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
        current->body();
        leave(LEFT);
    }
}

// resume runs a fiber until it leaves.
void resume(block &b, unsigned t) {
    threadIdx = dim3(t);
    b.now = t;
    if (_setjmp(b.scheduler) != 0) return;
    if (b.fibers[t].entered) _longjmp(b.fibers[t].at, 1);
    b.fibers[t].entered = true;
    ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = &b.stacks[t * STACK];
    first.uc_stack.ss_size = STACK;
    first.uc_link = nullptr;
    makecontext(&first, fiber, 0);
    setcontext(&first);
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

void run_block(block &b) {
    current = &b;
    const unsigned n = static_cast<unsigned>(b.fibers.size());
    for (unsigned t = 0; t < n; t++) b.place[t] = WARP_WIDE;
    for (bool more = true; more;) {
        more = false;
        for (unsigned t = 0; t < n; t++) {
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
    const unsigned me = b->now;
    b->given[me] = mine;
    wait(WARP_WIDE);
    const uint64_t theirs = b->given[me ^ lane_mask];
    wait(WARP_WIDE); // before any lane passes the next value
    return theirs;
}

void emulated::run_grid(bool together, dim3 grid, unsigned n, const std::function<void()> &body) {
    blockDim = dim3(n);
    gridDim = grid;
    block b(together ? n : 0, body);
    const uint64_t blocks = uint64_t{grid.x} * grid.y, first = draw(blocks);
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t at = (first + i) % blocks;
        blockIdx = dim3(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x));
        if (together) {
            run_block(b);
            continue;
        }
        for (unsigned t = 0; t < n; t++) {
            threadIdx = dim3(t);
            body();
        }
    }
}
