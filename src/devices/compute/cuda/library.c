#include <dlfcn.h>
#include <stdio.h>

#include "library.h"

struct halognn_gpu_functions halognn_gpu;
static void *library;

const char *halognn_gpu_load(const char *path) {
    static char text[512];
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return dlerror();
#define FUNCTION(type, name, params, args)                                                    \
    if ((*(void **)&halognn_gpu.name = dlsym(library, "halognn_cuda_" #name)) == NULL) {      \
        snprintf(text, sizeof text,                                                           \
                 "%s has no function halognn_cuda_%s: build it and this program from one source", \
                 path, #name);                                                                \
        return text;                                                                          \
    }
#include "halognn_cuda.def"
    if (halognn_gpu.version() != halognn_cuda_interface()) {
        snprintf(text, sizeof text,
                 "%s has other functions than this program expects: build both from one source",
                 path);
        return text;
    }
    return NULL;
}

int halognn_gpu_leaks(void) {
    int (*leaks)(void);
    *(void **)&leaks = dlsym(library, "emulated_leaks");
    return leaks ? leaks() : -1;
}

void halognn_gpu_emulated_break(int rank) {
    void (*set)(int);
    *(void **)&set = dlsym(library, "emulated_nccl_break");
    if (set) set(rank);
}

void halognn_gpu_emulated_seed(uint64_t seed) {
    void (*set)(uint64_t);
    *(void **)&set = dlsym(library, "emulated_seed");
    if (set) set(seed);
}

void halognn_gpu_emulated_refuse(int n) {
    void (*refuse)(int);
    *(void **)&refuse = dlsym(library, "emulated_refuse");
    if (refuse) refuse(n);
}

const char *halognn_gpu_emulated_launches(void) {
    const char *(*launches)(void);
    *(void **)&launches = dlsym(library, "emulated_launches");
    return launches ? launches() : NULL;
}
