#include <dlfcn.h>
#include <stdio.h>

#include "nvtx.h"

/* A profiler expects these tables in a program with NVTX 3. There is a table for each module, into
 * which the profiler writes its functions, numbered from 1. This program calls only two of the
 * functions. The other entries exist so that the profiler can write them. */
typedef void (*function)(void);

enum { core = 1, modules = 7, most = 16, range_start = 5, range_end = 7 };

static const unsigned sizes[modules] = {0, 16, 9, 15, 7, 16, 7};
static function functions[modules][most];
static function *places[modules][most + 1];

static int module_functions(int module, function ***table, unsigned *size) {
    if (module < core || module >= modules)
        return 0;
    for (unsigned i = 1; i < sizes[module]; i++)
        places[module][i] = &functions[module][i];
    if (table != NULL)
        *table = places[module];
    if (size != NULL)
        *size = sizes[module];
    return 1;
}

static void other_version(uint32_t version) { (void)version; }

static const struct {
    size_t size;
    int (*functions)(int module, function ***table, unsigned *size);
} callbacks = {sizeof callbacks, module_functions};

static const struct {
    size_t size;
    uint32_t version, reserved;
    void (*set)(uint32_t version);
} versions = {sizeof versions, 3, 0, other_version};

static const void *exported(uint32_t table) {
    switch (table) {
    case 1: return &callbacks;
    case 3: return &versions;
    default: return NULL;
    }
}

static uint64_t (*start)(const char *name);
static void (*end)(uint64_t range);

int halognn_nvtx_attach(const char *path, char *text, size_t size) {
    void *library = dlopen(path, RTLD_LAZY);
    if (library == NULL) {
        snprintf(text, size, "%s", dlerror());
        return 1;
    }
    int (*attach)(const void *(*exported)(uint32_t table));
    *(void **)&attach = dlsym(library, "InitializeInjectionNvtx2");
    const char *why = NULL;
    if (attach == NULL)
        why = "it has no InitializeInjectionNvtx2";
    else if (!attach(exported))
        why = "it does not start";
    if (why != NULL) {
        snprintf(text, size, "%s: %s", path, why);
        dlclose(library);
        return 1;
    }
    start = (uint64_t (*)(const char *))functions[core][range_start];
    end = (void (*)(uint64_t))functions[core][range_end];
    /* The library stays loaded, because it may have registered other functions. */
    if (start == NULL || end == NULL) {
        snprintf(text, size, "%s: it takes no ranges", path);
        return 1;
    }
    return 0;
}

uint64_t halognn_nvtx_start(const char *name) { return start(name); }

void halognn_nvtx_end(uint64_t range) { end(range); }
