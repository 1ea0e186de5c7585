/* A profiler as NVTX 3 finds it, that writes the ranges which a program begins and ends into LOG.
 * STARTS=0: it refuses; RANGES=0: it takes none; NAMED=0: it is no profiler. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef void (*function)(void);
struct callbacks {
    size_t size;
    int (*functions)(int module, function ***table, unsigned *size);
};
struct version {
    size_t size;
    uint32_t version, reserved;
    void (*set)(uint32_t);
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ranges;
static FILE *out;

static uint64_t start(const char *name) {
    pthread_mutex_lock(&lock);
    uint64_t range = ++ranges;
    fprintf(out, "start %llu %s\n", (unsigned long long)range, name);
    pthread_mutex_unlock(&lock);
    return range;
}

static void end(uint64_t range) {
    pthread_mutex_lock(&lock);
    fprintf(out, "end %llu\n", (unsigned long long)range);
    fflush(out); /* the program may end by a signal */
    pthread_mutex_unlock(&lock);
}

#if NAMED
/* Modules: 1 core, 2 CUDA, 3 OpenCL, 4 CUDA's runtime, 5 core 2, 6 sync; in core 5 RangeStartA,
 * 7 RangeEnd. */
int InitializeInjectionNvtx2(const void *(*exported)(uint32_t)) {
    static const unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7};
    const struct callbacks *callbacks = exported(1);
    const struct version *version = exported(3);
    if (callbacks == NULL || callbacks->size < sizeof *callbacks ||
        version == NULL || version->version < 2)
        return 0;
    version->set(3);
    function **table;
    unsigned size;
    for (int module = 1; module <= 6; module++) {
        if (!callbacks->functions(module, &table, &size) || size < sizes[module])
            return 0;
        for (unsigned i = 1; i < sizes[module]; i++)
            if (table[i] == NULL) return 0;
    }
    if (callbacks->functions(0, &table, &size) || callbacks->functions(7, &table, &size)) return 0;
    if (RANGES && STARTS) {
        callbacks->functions(1, &table, &size);
        *table[5] = (function)start;
        *table[7] = (function)end;
        out = fopen(LOG, "a");
        if (out == NULL) return 0;
    }
    return STARTS;
}
#endif
