//go:build cgo

#define _GNU_SOURCE
#include "guard.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static struct sigaction before[NSIG]; // Go's
static int64_t same, first;           // ns; first is the time of the first signal, 0 before it

// Calls nothing but what a signal handler may.
static void guarded(int signal, siginfo_t *info, void *context) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = t.tv_sec * INT64_C(1000000000) + t.tv_nsec, began = 0;
    int is_first = __atomic_compare_exchange_n(&first, &began, now, 0, __ATOMIC_RELAXED,
                                               __ATOMIC_RELAXED);
    if (!is_first && now - began > same) _exit(128 + signal);
    before[signal].sa_sigaction(signal, info, context);
}

static int sender; // of the last signal that is noted

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
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction == guarded) return; // not Go's, or guarded
    before[signal] = now;
    // with Go's flags: an alternate stack, all signals blocked meanwhile
    now.sa_sigaction = guarded;
    sigaction(signal, &now, NULL);
}
