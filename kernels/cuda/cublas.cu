// Loading cuBLAS.
#include "cublas.cuh"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace halognn {

blas_functions cublas;

namespace {

std::mutex one;  // guards what follows
bool loaded;
std::string why; // it is not

// open_blas takes the library of that name or path, or adds to why.
bool open_blas(const std::string &path) {
    const auto fail = [](const std::string &text) {
        why += (why.empty() ? "" : "; ") + text;
        return false;
    };
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(dlerror());
    blas_functions found{};
#define LOAD(type, name, symbol, params)                                                  \
    if ((*reinterpret_cast<void **>(&found.name) = dlsym(library, #symbol)) == nullptr) { \
        dlclose(library);                                                                 \
        return fail(path + " has no " #symbol);                                           \
    }
    BLAS_FUNCTIONS(LOAD)
#undef LOAD
    cublas = found;
    return true;
}

// names returns what to try, in order.
std::vector<std::string> names() {
#ifdef HALOGNN_EMULATED // the one in this library, whatever a GPU would take
    if (const char *path = std::getenv("HALOGNN_EMULATED_CUBLAS")) return {path, "none-either"};
    Dl_info here;
    if (dladdr(reinterpret_cast<void *>(&names), &here)) return {here.dli_fname};
    return {};
#else
    if (const char *path = std::getenv("HALOGNN_CUBLAS_LIB")) return {path};
    // the one of the CUDA that this was compiled with, or else another
    constexpr int own = CUDART_VERSION / 1000;
    std::vector<std::string> all{"libcublas.so." + std::to_string(own)};
    for (int version : {13, 12, 11})
        if (version != own) all.push_back("libcublas.so." + std::to_string(version));
    return all;
#endif
}

}  // namespace

int load_blas() {
    const std::lock_guard<std::mutex> hold(one);
    if (loaded) return 0;
    why.clear();
    for (const std::string &name : names())
        if ((loaded = open_blas(name))) return 0;
    return NO_BLAS;
}

const char *blas_error(int code) {
    static thread_local std::string text;
    if (code != NO_BLAS) return cublas.text(static_cast<cublasStatus_t>(code - BLAS_CODE));
    const std::lock_guard<std::mutex> hold(one);
    text = "cuBLAS cannot be loaded: " + why + " (HALOGNN_CUBLAS_LIB names the library)";
    return text.c_str();
}

}  // namespace halognn
