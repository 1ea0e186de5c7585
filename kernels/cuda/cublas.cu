// Loads cuBLAS.
#include "cublas.cuh"
#include "halognn_cuda.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace halognn {

blas_functions cublas;

namespace {

std::mutex one;   // guards the variables below
bool loaded;      // whether cublas has the functions of a library that has made a handle
std::string why;  // the reasons why no library could be loaded

// opened is a library that has all functions. If it could not be opened, its pointer (`library`) is
// NULL.
struct opened {
    void *library;
    blas_functions functions;
};

// open_blas opens the library with a name or path. If it fails, it adds the reason to the variable
// why.
opened open_blas(const std::string &path) {
    const auto fail = [](const std::string &text) {
        why += (why.empty() ? "" : "; ") + text;
        return opened{};
    };
    opened o{dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), {}};
    if (o.library == nullptr) return fail(dlerror());
#define LOAD(type, name, symbol, params)                                    \
    if ((*reinterpret_cast<void **>(&o.functions.name) =                    \
             dlsym(o.library, #symbol)) == nullptr) {                       \
        dlclose(o.library);                                                 \
        return fail(path + " has no " #symbol);                             \
    }
    BLAS_FUNCTIONS(LOAD)
#undef LOAD
    return o;
}

// names returns the libraries to try, in this order.
std::vector<std::string> names() {
#ifdef HALOGNN_EMULATED // the emulated cuBLAS in this library, or what the test names
    if (const char *list = std::getenv("HALOGNN_EMULATED_CUBLAS")) {
        std::vector<std::string> all;
        std::istringstream text(list);
        for (std::string name; std::getline(text, name, ':');) all.push_back(name);
        return all;
    }
    Dl_info here;
    if (dladdr(reinterpret_cast<void *>(&names), &here)) return {here.dli_fname};
    return {};
#else
    const char *path = std::getenv("HALOGNN_CUBLAS_LIB");
    if (path != nullptr && *path != 0) return {path};
    // first the library of the CUDA version that this was compiled with, then other versions
    constexpr int own = CUDART_VERSION / 1000;
    std::vector<std::string> all{"libcublas.so." + std::to_string(own)};
    for (int version : {13, 12, 11})
        if (version != own) all.push_back("libcublas.so." + std::to_string(version));
    return all;
#endif
}

// version_of returns the version of a library.
std::string version_of(const blas_functions &of) {
    std::string text;
    for (libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
        int number = 0;
        if (of.property(part, &number) != CUBLAS_STATUS_SUCCESS) return "of an unknown version";
        text += (text.empty() ? "" : ".") + std::to_string(number);
    }
    return text;
}

}  // namespace

int new_blas(cublasHandle_t *handle) {
    const std::lock_guard<std::mutex> hold(one);
    if (loaded) return blas_code(cublas.create(handle));
    why.clear();
    for (const std::string &name : names()) {
        const opened o = open_blas(name);
        if (o.library == nullptr) continue;
        const cublasStatus_t status = o.functions.create(handle);
        // if memory is short, another library would not get any either
        if (status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_ALLOC_FAILED) {
            cublas = o.functions;
            loaded = true;
            return blas_code(status);
        }
        // the library stays open, because it may have started threads or work
        why += (why.empty() ? "" : "; ") + name + ": " + o.functions.text(status);
    }
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

extern "C" const char *halognn_cuda_blas(int *found) {
    using namespace halognn;
    static thread_local std::string text;
    const std::lock_guard<std::mutex> hold(one);
    *found = 0;
    why.clear();
    for (const std::string &name : names()) {
        const opened o = open_blas(name);
        if (o.library == nullptr) continue;
        Dl_info file;
        const bool known = dladdr(reinterpret_cast<void *>(o.functions.create), &file) != 0;
        text = version_of(o.functions) + " (" + (known ? file.dli_fname : name) + ")";
        dlclose(o.library);
        *found = 1;
        return text.c_str();
    }
    text = why;
    return text.c_str();
}
