/* NVIDIA's profilers by their injection protocol. */
#ifndef HALOGNN_NVTX_H
#define HALOGNN_NVTX_H

#include <stddef.h>
#include <stdint.h>

/* halognn_nvtx_attach loads a profiler's library and lets it take what functions it wants. Called once
 * in a process. It returns 0, or 1 and writes into text, of size bytes, what is wrong. */
int halognn_nvtx_attach(const char *path, char *text, size_t size);

/* A range may end in another thread than it began in. Only once attached. */
uint64_t halognn_nvtx_start(const char *name);
void halognn_nvtx_end(uint64_t range);

#endif
