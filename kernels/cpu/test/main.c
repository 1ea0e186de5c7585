/*
 * Compares the kernels of every SIMD level of this machine with the plain ones, on the shapes that
 * break kernels, with every output between sentinels (ASan and UBSan check the inputs: make test
 * SANITIZE=1). All must agree in every bit except LayerNorm, which adds along a row in another
 * order.
 */
#include <stdio.h>

#include "half.h"
#include "rounding.h"
#include "test.h"

static const test *const families[] = {draw_tests, rows_tests,      segment_tests, pointwise_tests,
                                       attention_tests, norm_tests,    optimizer_tests};
enum { FAMILIES = sizeof families / sizeof *families };

static int failures;

static void compare(const shape *s, const test *t, const char *level, outputs got, outputs want) {
    for (int o = 0; o < 3 && got.at[o] != NULL; o++) {
        double worst = 0, scale = 1;
        int64_t differ = 0;
        for (int64_t i = 0; i < got.len[o]; i++) {
            const double off = fabs((double)got.at[o][i] - want.at[o][i]);
            differ += memcmp(got.at[o] + i, want.at[o] + i, 4) != 0;
            worst = off <= worst ? worst : isnan(worst) ? worst : off; /* fmax would drop a NaN */
            scale = fmax(scale, fabs(want.at[o][i]));
        }
        const int stayed = intact(got.at[o], got.len[o]);
        const int close = t->tolerance > 0 && worst <= t->tolerance * scale;
        if (!stayed || (differ > 0 && !close)) {
            failures++;
            printf("FAIL %s, %s, %s, output %d: %lld elements differ, by up to %g; "
                   "stayed in its output: %d\n",
                   t->name, level, s->name, o, (long long)differ, worst, stayed);
        }
    }
    for (int o = 0; o < 3 && got.at[o] != NULL; o++) {
        free(got.at[o] - GUARD);
        free(want.at[o] - GUARD);
    }
}

/* Every kernel of the table is tested: the name of a test is a kernel's name and, after a blank or
 * comma, the variant. */
static void test_all_are_tested(void) {
    static const char *const table[] = {
#define EACH_CPU_KERNEL(name, params, args) #name,
#include "halognn_kernels.def"
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int tested = 0;
        for (size_t f = 0; f < FAMILIES; f++)
            for (const test *t = families[f]; t->name != NULL; t++) {
                const size_t n = strcspn(t->name, " ,");
                tested |= n == strlen(table[i]) && strncmp(t->name, table[i], n) == 0;
            }
        if (!tested) {
            failures++;
            printf("FAIL there is no test of %s\n", table[i]);
        }
    }
}

static void check(int ok, const char *what) {
    if (!ok) {
        failures++;
        printf("FAIL %s\n", what);
    }
}

/* Compares every float16 with its arithmetic definition. */
static void test_half(void) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
        const double sign = h & 0x8000 ? -1 : 1, got = halognn_half((uint16_t)h);
        if (exponent == 31) {
            check(fraction == 0 ? got == sign * INFINITY : isnan(got), "float16 infinity or NaN");
            continue;
        }
        const double want =
            exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, (int)exponent - 25);
        check(got == sign * want && signbit(got) == (sign < 0), "float16 conversion");
    }
}

/* Every bfloat16, and numbers between it and the next one, which round to the nearer of the two,
 * ties to the one whose last bit is 0. Infinity, after the largest, counts as 2^128. */
static void test_bf16(void) {
    static const uint32_t between[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t upper = 0; upper < 0x10000; upper++) {
        for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
            const uint32_t bits = upper << 16 | between[i];
            const int up = between[i] > 0x8000 || (between[i] == 0x8000 && upper % 2 == 1);
            float x, rounded;
            memcpy(&x, &bits, 4);
            rounded = halognn_rounded(x, HALOGNN_BF16_DROPPED);
            const uint16_t got = halognn_bf16(x);
            check(isnan(x) ? isnan(rounded) : got == (uint16_t)(upper + up),
                  "rounding to bfloat16");
            uint32_t kept;
            memcpy(&kept, &rounded, 4);
            check(kept == (uint32_t)got << 16, "bfloat16 and its float32");
        }
    }
}

static void test_checks(void) {
    const int32_t ids[] = {0, 4, 2, -1, 9};
    const halognn_table tables[] = {{ids, 3}, {ids, 0}};
    const uint64_t one = (uint64_t)1 << HALOGNN_REF_ROW_BITS, refs[] = {2, 0, 3}, empty[] = {one},
                   beyond[] = {2 * one};
    check(halognn_check_ids(ids, 0, 0) == -1, "check_ids: none");
    check(halognn_check_ids(ids, 3, 5) == -1, "check_ids: in range");
    check(halognn_check_ids(ids, 3, 4) == 1, "check_ids: one too large");
    check(halognn_check_ids(ids, 5, 5) == 3, "check_ids: negative");
    check(halognn_check_sources(ids, 3, 5) == -1, "check_sources: in range");
    check(halognn_check_sources(ids, 3, 4) == 1, "check_sources: one too large");
    check(halognn_check_sources(ids + 3, 1, 1) == -1,
          "check_sources: one that begins a group is row 0");
    check(halognn_check_refs(refs, 2, tables, 2) == -1, "check_refs: in range");
    check(halognn_check_refs(refs, 3, tables, 2) == 2, "check_refs: row too large");
    check(halognn_check_refs(empty, 1, tables, 2) == 0, "check_refs: empty table");
    check(halognn_check_refs(beyond, 1, tables, 2) == 0, "check_refs: no such table");
    check(halognn_cpu_open("sse9") == NULL, "an unknown level opens");
}

/* Compares all kernels of a level with the plain ones on a shape. */
static void test_level(const halognn_cpu *k, const halognn_cpu *plain, const char *level,
                       const shape *s) {
    input in = build(s);
    for (size_t f = 0; f < FAMILIES; f++)
        for (const test *t = families[f]; t->name != NULL; t++)
            compare(s, t, level, t->run(k, &in), t->run(plain, &in));
    release(&in);
}

int main(void) {
    static const char *const levels[] = {"avx2", "avx512"};
    const halognn_cpu *plain = halognn_cpu_open("scalar");
    test_half();
    test_bf16();
    test_checks();
    test_all_are_tested();
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        const halognn_cpu *k = halognn_cpu_open(levels[l]);
        if (k == NULL) {
            printf("skipped %s: this machine does not have it\n", levels[l]);
            continue;
        }
        for (const shape *s = shapes; s->name != NULL; s++)
            test_level(k, plain, levels[l], s);
        /* Rows are added strip by strip, with code of its own for each number of vectors: widths
         * have every number, of 8 and of 16, and a last vector that is not full. */
        for (int64_t cols = 5; cols < 270; cols += 8) {
            const shape strips = {"a strip of some vectors", 3, 12, 3, cols};
            test_level(k, plain, levels[l], &strips);
        }
        for (int64_t cols = 16; cols <= 1024; cols *= 2) {
            const shape whole = {"heads of whole vectors", 3, 12, 3, cols};
            test_level(k, plain, levels[l], &whole);
        }
        printf("tested %s\n", k->level);
    }
    failures += test_products();
    printf(failures == 0 ? "ok\n" : "%d failures\n", failures);
    return failures > 0;
}
