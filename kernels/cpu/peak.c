/*
 * Measures the processor's peak rate of multiply-adds. Every round of a loop has enough independent
 * multiply-adds, all on registers, to keep all units busy: at least latency times number of units.
 * The loops are in assembly, because a compiler may keep accumulators in memory or remove unused
 * results.
 */
#include <stddef.h>
#include <string.h>

#include "halognn_cpu.h"

#if defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TWELVE(ONE) \
    ONE(0) ONE(1) ONE(2) ONE(3) ONE(4) ONE(5) ONE(6) ONE(7) ONE(8) ONE(9) ONE(10) ONE(11)
/* UPPER repeats ONE for the registers that only AVX-512 has, as TWELVE does for the first
 * twelve. */
#define UPPER(ONE) \
    ONE(16) ONE(17) ONE(18) ONE(19) ONE(20) ONE(21) ONE(22) ONE(23) ONE(24) ONE(25) ONE(26) ONE(27)
/* Repeats STEPS, each on its own accumulator, for the given number of rounds. The last arguments
 * name further registers that are used. The factors are 1/2 and 1, so that accumulators stay normal
 * numbers: a = a/2 + 1, or a = a + 1/2. */
#define LOOP(rounds, SPREAD, ZEROES, STEPS, ...)                                                 \
    __asm__ volatile(SPREAD(12, %1) SPREAD(13, %2) ZEROES "1:\n\t" STEPS                         \
                     "dec %0\n\tjnz 1b\n\tvzeroupper"                                            \
                     : "+r"(rounds)                                                              \
                     : "r"(0x3f000000), "r"(0x3f800000)                                          \
                     : "cc", __VA_ARGS__ "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
                       "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")
#define UPPER_NAMES                                                                          \
    "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", \
        "xmm26", "xmm27",
#define ZERO(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define ZERO512(i) "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n\t"
#define SPREAD256(i, from) \
    "vmovd " #from ", %%xmm" #i "\n\tvbroadcastss %%xmm" #i ", %%ymm" #i "\n\t"
#define SPREAD512(i, from) "vpbroadcastd " #from ", %%zmm" #i "\n\t"
#define FMA256(i) "vfmadd213ps %%ymm13, %%ymm12, %%ymm" #i "\n\t"
#define FMA512(i) "vfmadd213ps %%zmm13, %%zmm12, %%zmm" #i "\n\t"
#define DOT512(i) "vdpbf16ps %%zmm13, %%zmm12, %%zmm" #i "\n\t"

static void fma256(int64_t rounds) { LOOP(rounds, SPREAD256, TWELVE(ZERO), TWELVE(FMA256), ); }
static void fma512(int64_t rounds) { LOOP(rounds, SPREAD512, TWELVE(ZERO), TWELVE(FMA512), ); }
/* This instruction takes longer than a multiply-add, so twelve independent ones would not keep the
 * units busy. */
__attribute__((target("avx512f"))) static void dot512(int64_t rounds) {
    LOOP(rounds, SPREAD512, TWELVE(ZERO) UPPER(ZERO512), TWELVE(DOT512) UPPER(DOT512),
         UPPER_NAMES);
}

/* Products of AMX tiles of 16 rows of 64 bytes, with four accumulators and two tiles for each
 * factor. */
static void tiles(int64_t rounds) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++)
        config.bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0\n\t"
                     "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
                     "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7"
                     :
                     : "m"(config));
    __asm__ volatile("1:\n\t"
                     "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                     "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3\n\t"
                     "dec %0\n\tjnz 1b"
                     : "+r"(rounds)
                     :
                     : "cc");
    __asm__ volatile("tilerelease");
}

static int has_fma256(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static int has_fma512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
}
static int has_dot512(void) { return halognn_products_open(0) != NULL; }
/* A process may use tiles only after it has asked the operating system to save them:
 * arch_prctl(ARCH_REQ_XCOMP_PERM). */
static int has_tiles(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1 << 22) && (d & 1 << 24) &&
           syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

static const struct {
    halognn_peak name;
    int (*has)(void);
    void (*run)(int64_t rounds);
    int64_t flops; /* number of operations in a round */
} peaks[] = {
    {{"AVX2", "float32"}, has_fma256, fma256, 12 * 2 * 8},
    {{"AVX-512", "float32"}, has_fma512, fma512, 12 * 2 * 16},
    {{"AVX512-BF16", "bf16"}, has_dot512, dot512, 24 * 2 * 32},
    {{"AMX-BF16", "bf16"}, has_tiles, tiles, 4 * 2 * 16 * 16 * 32},
};

#elif defined __aarch64__

static void fma128(int64_t rounds) {
#define FMA128(i) "fmla v" #i ".4s, v30.4s, v31.4s\n\t"
#define EIGHT(ONE, a) \
    ONE(a##0) ONE(a##1) ONE(a##2) ONE(a##3) ONE(a##4) ONE(a##5) ONE(a##6) ONE(a##7)
    __asm__ volatile("movi v30.4s, #0\n\tfmov v31.4s, #1.0\n\t"
                     "1:\n\t" EIGHT(FMA128, ) EIGHT(FMA128, 1) "subs %0, %0, #1\n\tb.ne 1b"
                     : "+r"(rounds)
                     :
                     : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v10", "v11", "v12",
                       "v13", "v14", "v15", "v16", "v17", "v30", "v31");
}
static int has_fma128(void) { return 1; }

static const struct {
    halognn_peak name;
    int (*has)(void);
    void (*run)(int64_t rounds);
    int64_t flops;
} peaks[] = {{{"NEON", "float32"}, has_fma128, fma128, 16 * 2 * 4}};

#else
static const struct {
    halognn_peak name;
    int (*has)(void);
    void (*run)(int64_t rounds);
    int64_t flops;
} peaks[1] = {{{NULL, NULL}, NULL, NULL, 0}};
#endif

const halognn_peak *halognn_peak_of(int i) {
    const int n = (int)(sizeof peaks / sizeof *peaks);
    return i >= 0 && i < n && peaks[i].name.isa != NULL ? &peaks[i].name : NULL;
}

int64_t halognn_peak_run(int i, int64_t rounds) {
    if (halognn_peak_of(i) == NULL || rounds <= 0 || !peaks[i].has())
        return 0;
    peaks[i].run(rounds);
    return rounds * peaks[i].flops;
}
