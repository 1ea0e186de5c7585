/* Loads NVIDIA's profilers by their injection protocol. */
#ifndef HALOGNN_NVTX_H
#define HALOGNN_NVTX_H

#include <stddef.h>
#include <stdint.h>

/* halognn_nvtx_attach loads a profiler's library and lets it register its functions. It may be
 * called only once in a process. It returns 0. If something is wrong, it returns 1 and writes what
 * is wrong to text, which has size bytes. */
int halognn_nvtx_attach(const char *path, char *text, size_t size);

/* Start and end of a range, which may be in different threads. They may be called only after
 * halognn_nvtx_attach has succeeded. */
uint64_t halognn_nvtx_start(const char *name);
void halognn_nvtx_end(uint64_t range);

#endif
