/* The choice of kernels. There is one table of kernels for each SIMD level. It is chosen by the
 * level's name or by the instructions that the machine has. */
#include <string.h>

#include "kernels.h"

#define EACH_CPU_KERNEL(name, params, args) .name = name##_ref,
static const halognn_cpu scalar = {.level = "scalar",
#include "halognn_kernels.def"
};

#define PRODUCT_KERNEL(name, params, args) .name = name##_ref,
static const halognn_products plain_products = {.isa = "plain C",
#include "halognn_kernels.def"
};

#ifdef __x86_64__
#include <cpuid.h>

#define EACH_CPU_KERNEL(name, params, args) .name = name##_avx2,
static const halognn_cpu avx2 = {.level = "avx2",
#include "halognn_kernels.def"
};

#define EACH_CPU_KERNEL(name, params, args) .name = name##_avx512,
static const halognn_cpu avx512 = {.level = "avx512",
#include "halognn_kernels.def"
};

#define PRODUCT_KERNEL(name, params, args) .name = name##_avx512bf16,
static const halognn_products avx512bf16 = {.isa = "AVX512-BF16",
#include "halognn_kernels.def"
};

/* __builtin_cpu_supports also tests whether the operating system saves the vector registers. The
 * kernels also need F16C, which not every compiler can test for; every processor with AVX2 has
 * it. */
static int has_avx2(void) { return __builtin_cpu_supports("avx2"); }
static int has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_avx2();
}
static int has_avx512bf16(void) {
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 5);
}
#endif

const halognn_products *halognn_products_open(int plain) {
    if (plain)
        return &plain_products;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (has_avx512bf16())
        return &avx512bf16;
#endif
    return NULL;
}

int halognn_products_pay(void) {
#ifdef __x86_64__
    __builtin_cpu_init();
    return has_avx512bf16() && !__builtin_cpu_is("intel");
#else
    return 0;
#endif
}

const halognn_cpu *halognn_cpu_open(const char *level) {
    const int any = level == NULL || *level == '\0';
#ifdef __x86_64__
    __builtin_cpu_init();
    if ((any || strcmp(level, "avx512") == 0) && has_avx512())
        return &avx512;
    if ((any || strcmp(level, "avx2") == 0) && has_avx2())
        return &avx2;
#endif
    return any || strcmp(level, "scalar") == 0 ? &scalar : NULL;
}

int64_t halognn_check_refs(const uint64_t *of, int64_t n, const halognn_table *tables,
                           int64_t ntables) {
    for (int64_t i = 0; i < n; i++) {
        const uint64_t table = of[i] >> HALOGNN_REF_ROW_BITS;
        const uint64_t row = of[i] & (((uint64_t)1 << HALOGNN_REF_ROW_BITS) - 1);
        if (table >= (uint64_t)ntables || row >= (uint64_t)tables[table].rows)
            return i;
    }
    return -1;
}

int64_t halognn_check_ids(const int32_t *ids, int64_t n, int64_t limit) {
    uint32_t largest = 0; /* as an unsigned number, a negative id is larger than any limit */
    for (int64_t i = 0; i < n; i++)
        largest = (uint32_t)ids[i] > largest ? (uint32_t)ids[i] : largest;
    if (n == 0 || largest < (uint64_t)limit)
        return -1;
    for (int64_t i = 0;; i++)
        if ((uint32_t)ids[i] >= (uint64_t)limit)
            return i;
}

int64_t halognn_check_sources(const int32_t *indices, int64_t n, int64_t limit) {
    int32_t largest = -1;
    for (int64_t e = 0; e < n; e++)
        largest = source_of(indices[e]) > largest ? source_of(indices[e]) : largest;
    if (largest < limit)
        return -1;
    for (int64_t e = 0;; e++)
        if (source_of(indices[e]) >= limit)
            return e;
}
