/*
 * Reading a mapped file beyond its end, because it has shrunk, raises SIGBUS. While one of the kernels below runs, its
 * thread has a place to jump back to, and the caller learns the address:
 *
 *	kernel ── SIGBUS ──> on_fault ── armed? ── siglongjmp ──> return address
 *	                                   └─ no ── the handler that was there before (Go's, which panics or dies)
 *
 * The kernels hold no locks and own no memory, so leaving them anywhere is safe.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include "kernels.h"

static struct sigaction previous;
static __thread sigjmp_buf landing;
static __thread volatile sig_atomic_t armed;
static __thread volatile uintptr_t address;

static void on_fault(int number, siginfo_t *info, void *context) {
    if (armed) {
        armed = 0;
        address = (uintptr_t)info->si_addr;
        /* a jump does not undo the mask of the handler; saving it in every sigsetjmp would cost a system call */
        pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
        siglongjmp(landing, 1);
    }
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else {
        signal(number, SIG_DFL); /* the access is repeated and ends the process */
    }
}

int halognn_catch_faults(void) {
    /* on the thread's own signal stack and with all signals blocked, as the handler of Go that it may call expects */
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigfillset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous) == 0 ? 0 : errno;
}

#define GUARDED(call)                                                                                                  \
    if (sigsetjmp(landing, 0))                                                                                         \
        return address;                                                                                                \
    armed = 1;                                                                                                         \
    call;                                                                                                              \
    armed = 0;                                                                                                         \
    return 0

uintptr_t halognn_gather_rows(const halognn_cpu *k, float *dst, int64_t n, int64_t cols, int half,
                              const halognn_table *tables, const uint64_t *of) {
    GUARDED(k->gather_rows(dst, n, cols, half, tables, of));
}

uintptr_t halognn_slice_rows(const halognn_cpu *k, uint8_t *dst, int64_t n, int64_t row_bytes, const uint8_t *table,
                             const int32_t *ids) {
    GUARDED(k->slice_rows(dst, n, row_bytes, table, ids));
}

uintptr_t halognn_segment_mean_rows(const halognn_cpu *k, float *out, int64_t segments, int64_t cols,
                                    const int64_t *indptr, const int32_t *indices, int half,
                                    const halognn_table *tables, const uint64_t *of) {
    GUARDED(k->segment_mean_rows(out, segments, cols, indptr, indices, half, tables, of));
}
