#ifndef HALOGNN_INTERRUPT_GUARD_H
#define HALOGNN_INTERRUPT_GUARD_H

#include <stdint.h>

// Ends the process with 128 + signal when the signal comes more than same_ns after the first one
// that is guarded; until then passes it on to the handler that stands now. The two are one rule for
// all signals that are guarded.
void hgnn_guard(int signal, int64_t same_ns);

#endif
