#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "onednn.h"

/* dnnl_version_t of dnnl_types.h, versions 2 and 3. */
typedef struct {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} version;

enum { SEQUENTIAL = 1, OPENMP = 2, AVX512 = 0x20, AVX512_BF16 = 0x80, AMX = 0x200 };

static struct {
    int (*sgemm)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha,
                 const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                 int64_t ldc);
    int (*bgemm)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha,
                 const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta,
                 float *c, int64_t ldc);
    const version *(*version)(void);
    int (*isa)(void);
    void (*omp_set_num_threads)(int n);
} onednn;

static int find(void *library, void *function, const char *name) {
    return (*(void **)function = dlsym(library, name)) != NULL;
}

const char *halognn_onednn_load(const char *path) {
    static char text[512];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return dlerror();
    text[0] = '\0';
    if (!find(library, &onednn.sgemm, "dnnl_sgemm") ||
        !find(library, &onednn.version, "dnnl_version") ||
        !find(library, &onednn.isa, "dnnl_get_effective_cpu_isa")) {
        snprintf(text, sizeof text, "%s is no oneDNN with dnnl_sgemm", path);
    } else if (onednn.version()->major != 2 && onednn.version()->major != 3) {
        snprintf(text, sizeof text, "%s is version %d of oneDNN; 2 and 3 are known", path,
                 onednn.version()->major);
    } else if (onednn.version()->cpu_runtime == OPENMP) {
        if (!find(library, &onednn.omp_set_num_threads, "omp_set_num_threads"))
            snprintf(text, sizeof text,
                     "%s has threads of OpenMP, but no omp_set_num_threads", path);
    } else if (onednn.version()->cpu_runtime != SEQUENTIAL) {
        snprintf(text, sizeof text,
                 "%s was built with TBB, SYCL or a thread pool (runtime %u), whose threads cannot "
                 "be held to one; use a build with OpenMP", path, onednn.version()->cpu_runtime);
    }
    /* The library exports this function, but no header declares it. */
    find(library, &onednn.bgemm, "dnnl_gemm_bf16bf16f32");
    if (text[0] == '\0')
        return NULL;
    dlclose(library);
    return text;
}

void halognn_onednn_version(int *major, int *minor, int *patch, int *avx512) {
    const version *v = onednn.version();
    *major = v->major, *minor = v->minor, *patch = v->patch;
    *avx512 = (onednn.isa() & AVX512) != 0;
}

int halognn_onednn_has_bf16(void) {
    return onednn.bgemm != NULL && (onednn.isa() & AVX512_BF16) != 0;
}

int halognn_onednn_has_amx(void) { return onednn.bgemm != NULL && (onednn.isa() & AMX) != 0; }

/* Makes OpenMP use one thread for calls from this thread. OpenMP has a separate setting for each
 * calling thread. */
static void be_alone(void) {
    static __thread int alone;
    if (!alone && onednn.omp_set_num_threads != NULL)
        onednn.omp_set_num_threads(1);
    alone = 1;
}

int halognn_onednn_sgemm(char transa, char transb, int64_t m, int64_t n, int64_t k, const float *a,
                         int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                         int64_t ldc) {
    be_alone();
    return onednn.sgemm(transa, transb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

int halognn_onednn_bgemm(char transa, char transb, int64_t m, int64_t n, int64_t k,
                         const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta,
                         float *c, int64_t ldc) {
    be_alone();
    return onednn.bgemm(transa, transb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}
