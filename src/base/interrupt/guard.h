#ifndef HALOGNN_INTERRUPT_GUARD_H
#define HALOGNN_INTERRUPT_GUARD_H

#include <stdint.h>

// Installs a handler for the signal. A signal that comes more than same_ns after the first one ends
// the process with exit code 128 + signal. Earlier signals are passed on to the handler that was
// installed before. The first signal is the first of all the signals that are guarded.
void hgnn_guard(int signal, int64_t same_ns);

// Installs a handler that stores which process sent the signal, and passes the signal on to the
// handler that was installed before.
void hgnn_note(int signal);

// Returns the number of the process that sent the last signal for which hgnn_note has a handler. It
// returns 0 if no such signal has come, or if the process is in another namespace.
int hgnn_sender(void);

#endif
