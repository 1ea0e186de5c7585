/* NVIDIA's management library, loaded at run time. A process may open it only once at a time.
 * Functions return 0. If something is wrong, they return 1 and write what is wrong to text, which
 * has size bytes. */
#ifndef HALOGNN_NVML_H
#define HALOGNN_NVML_H

#include <stddef.h>

int halognn_nvml_open(const char *path, char *text, size_t size);
int halognn_nvml_find(const char *uuid, void **device, char *text, size_t size);
int halognn_nvml_millijoules(void *device, unsigned long long *total, char *text, size_t size);
void halognn_nvml_close(void);

#endif
