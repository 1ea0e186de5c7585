#include <dlfcn.h>
#include <stddef.h>

#include "nvml.h"

static struct {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*text)(int error);
    int (*find)(const char *uuid, void **device);
    int (*total)(void *device, unsigned long long *millijoules);
} nvml;

static int find(void *function, const char *name) {
    return (*(void **)function = dlsym(nvml.library, name)) != NULL;
}

static const char *failure(int error) { return error == 0 ? NULL : nvml.text(error); }

const char *halognn_nvml_open(const char *path) {
    nvml.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (nvml.library == NULL)
        return dlerror();
    const char *text = NULL;
    if (!find(&nvml.init, "nvmlInit_v2") || !find(&nvml.shutdown, "nvmlShutdown") ||
        !find(&nvml.text, "nvmlErrorString") || !find(&nvml.find, "nvmlDeviceGetHandleByUUID") ||
        !find(&nvml.total, "nvmlDeviceGetTotalEnergyConsumption"))
        text = "it lacks a function of NVML that counts energy";
    else
        text = failure(nvml.init());
    if (text != NULL) {
        dlclose(nvml.library);
        nvml.library = NULL;
    }
    return text;
}

const char *halognn_nvml_find(const char *uuid, void **device) {
    return failure(nvml.find(uuid, device));
}

const char *halognn_nvml_millijoules(void *device, unsigned long long *total) {
    return failure(nvml.total(device, total));
}

void halognn_nvml_close(void) {
    nvml.shutdown();
    dlclose(nvml.library);
    nvml.library = NULL;
}
