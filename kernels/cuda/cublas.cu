// Loading cuBLAS.
#include "cublas.cuh"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace halognn {

blas_functions cublas;

namespace {

char why[512];

// open_blas takes the library of that name or path.
bool open_blas(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::snprintf(why, sizeof why, "%s", dlerror());
        return false;
    }
    blas_functions found{};
#define LOAD(type, name, symbol, params)                                                  \
    if ((*reinterpret_cast<void **>(&found.name) = dlsym(library, #symbol)) == nullptr) { \
        std::snprintf(why, sizeof why, "%s has no %s", path, #symbol);                    \
        dlclose(library);                                                                 \
        return false;                                                                     \
    }
    BLAS_FUNCTIONS(LOAD)
#undef LOAD
    cublas = found;
    return true;
}

bool find_blas() {
    if (const char *path = std::getenv("HALOGNN_CUBLAS_LIB")) return open_blas(path);
#ifdef HALOGNN_EMULATED // the emulated one is in this library
    Dl_info here;
    return dladdr(reinterpret_cast<void *>(&find_blas), &here) && open_blas(here.dli_fname);
#else
    // the one of the CUDA that this was compiled with, or else another
    char name[32];
    for (int version : {CUDART_VERSION / 1000, 13, 12, 11}) {
        std::snprintf(name, sizeof name, "libcublas.so.%d", version);
        if (open_blas(name)) return true;
    }
    return false;
#endif
}

}  // namespace

int load_blas() {
    static std::mutex one;
    static bool loaded;
    const std::lock_guard<std::mutex> hold(one);
    if (!loaded) loaded = find_blas();
    return loaded ? 0 : NO_BLAS;
}

const char *blas_error(int code) {
    static thread_local char text[640];
    if (code != NO_BLAS) return cublas.text(static_cast<cublasStatus_t>(code - BLAS_CODE));
    std::snprintf(text, sizeof text,
                  "cuBLAS cannot be loaded: %s (HALOGNN_CUBLAS_LIB names the library)", why);
    return text;
}

}  // namespace halognn
