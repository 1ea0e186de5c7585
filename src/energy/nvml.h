/* NVIDIA's management library, loaded at run time. Functions return NULL or what is wrong. */
#ifndef HALOGNN_NVML_H
#define HALOGNN_NVML_H

const char *halognn_nvml_open(const char *path);
const char *halognn_nvml_find(const char *uuid, void **device);
const char *halognn_nvml_millijoules(void *device, unsigned long long *total);
void halognn_nvml_close(void);

#endif
