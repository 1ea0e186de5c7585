//go:build cgo

#define _GNU_SOURCE
#include "guard.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static struct sigaction before[NSIG]; // the handlers that Go has installed
// times in ns: the limit that was given as same_ns, and when the first signal came (0 if none has)
static int64_t same, first;

// The handler. It calls only functions that a signal handler may call.
static void guarded(int signal, siginfo_t *info, void *context) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec, began = 0;
    int is_first = __atomic_compare_exchange_n(&first, &began, now, 0, __ATOMIC_RELAXED,
                                               __ATOMIC_RELAXED);
    if (!is_first && now - began > same) _exit(128 + signal);
    before[signal].sa_sigaction(signal, info, context);
}

static int sender; // process that sent the last signal for which the function `noted` was called

static void noted(int signal, siginfo_t *info, void *context) {
    __atomic_store_n(&sender, info->si_pid, __ATOMIC_RELAXED);
    before[signal].sa_sigaction(signal, info, context);
}

void hgnn_note(int signal) {
    struct sigaction now;
    sigaction(signal, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction == noted) return;
    before[signal] = now;
    now.sa_sigaction = noted;
    sigaction(signal, &now, NULL);
}

int hgnn_sender(void) { return __atomic_load_n(&sender, __ATOMIC_RELAXED); }

void hgnn_guard(int signal, int64_t same_ns) {
    struct sigaction now;
    same = same_ns;
    sigaction(signal, NULL, &now);
    // the handler is not one of Go's, or is guarded already
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction == guarded) return;
    before[signal] = now;
    // keeps Go's flags: the handler runs on an alternate stack with all signals blocked
    now.sa_sigaction = guarded;
    sigaction(signal, &now, NULL);
}
