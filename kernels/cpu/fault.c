/*
 * Reading a mapped file beyond its end, because it has shrunk, raises SIGBUS. While a kernel that
 * reads tables of rows runs, the handler of SIGBUS jumps back into the kernel, which then returns
 * the address:
 *
 *	kernel ── SIGBUS ──> on_fault ── armed? ── siglongjmp ──> return address
 *	                                   └─ no ── the previous handler (Go's, which panics or exits)
 *
 * The kernels take no locks and own no memory, so they may be left by a jump at any point.
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
        /* the jump does not restore the signal mask from before the handler; saving the mask in
         * every sigsetjmp would cost a system call */
        pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
        siglongjmp(landing, 1);
    }
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else {
        signal(number, SIG_DFL); /* the access is then repeated and ends the process */
    }
}

int halognn_catch_faults(void) {
    /* the handler runs on the thread's own signal stack and with all signals blocked, because Go's
     * handler, which it may call, expects this */
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigfillset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous) == 0 ? 0 : errno;
}

#define CPU_TABLE_KERNEL(name, params, args)                                       \
    uintptr_t halognn_##name(const halognn_cpu *k, HALOGNN_LIST params) {          \
        if (sigsetjmp(landing, 0))                                                 \
            return address;                                                        \
        armed = 1;                                                                 \
        k->name args;                                                              \
        armed = 0;                                                                 \
        return 0;                                                                  \
    }
#include "halognn_kernels.def"
