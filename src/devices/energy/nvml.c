#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

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

/* Copies the text of an error. The text belongs to the library, which may be closed before the
 * caller reads the text. */
static int failed(char *text, size_t size, const char *why) {
    snprintf(text, size, "%s", why);
    return 1;
}

static int check(int error, char *text, size_t size) {
    return error == 0 ? 0 : failed(text, size, nvml.text(error));
}

int halognn_nvml_open(const char *path, char *text, size_t size) {
    nvml.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (nvml.library == NULL)
        return failed(text, size, dlerror());
    int wrong;
    if (!find(&nvml.init, "nvmlInit_v2") || !find(&nvml.shutdown, "nvmlShutdown") ||
        !find(&nvml.text, "nvmlErrorString") || !find(&nvml.find, "nvmlDeviceGetHandleByUUID") ||
        !find(&nvml.total, "nvmlDeviceGetTotalEnergyConsumption"))
        wrong = failed(text, size, "it lacks a function of NVML that counts energy");
    else
        wrong = check(nvml.init(), text, size);
    if (wrong) {
        dlclose(nvml.library);
        nvml.library = NULL;
    }
    return wrong;
}

int halognn_nvml_find(const char *uuid, void **device, char *text, size_t size) {
    return check(nvml.find(uuid, device), text, size);
}

int halognn_nvml_millijoules(void *device, unsigned long long *total, char *text, size_t size) {
    return check(nvml.total(device, total), text, size);
}

void halognn_nvml_close(void) {
    nvml.shutdown();
    dlclose(nvml.library);
    nvml.library = NULL;
}
