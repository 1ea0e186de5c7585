#ifndef HALOGNN_INTERRUPT_GUARD_H
#define HALOGNN_INTERRUPT_GUARD_H

#include <stdint.h>

// Ends the process with 128 + signal when the signal comes more than same_ns after the first one
// that is guarded; until then passes it on to the handler that stands now. The two are one rule for
// all signals that are guarded.
void hgnn_guard(int signal, int64_t same_ns);

// Notes who sends the signal, and passes it on to the handler that stands now.
void hgnn_note(int signal);

// The process that sent the last signal that was noted; 0 if there is none, or if it is not of this
// process's namespace.
int hgnn_sender(void);

#endif
