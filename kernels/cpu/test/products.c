/* The products of bfloat16, beside the plain ones: all bits must agree, for no input here makes
 * subnormal numbers. Gaps between rows hold NaN, which a kernel that reads them spreads. */
#include <stdio.h>

#include "test.h"

enum { GAP = 3 };

static int failures;

static void check(int ok, const char *what, int64_t a, int64_t b, int64_t c) {
    if (ok)
        return;
    failures++;
    printf("FAIL %s, %lld, %lld, %lld\n", what, (long long)a, (long long)b, (long long)c);
}

/* A matrix with gaps; special: among its numbers are those that break roundings. */
static float *matrix(int64_t rows, int64_t cols, int special) {
    /* NaN whose only set bits are dropped, and NaN with all bits set; infinities; the largest
     * number; a subnormal one; ties, and their neighbours; -0. */
    static const uint32_t specials[] = {0x7f800001, 0xffffffff, 0x7f800000, 0xff800000, 0x7f7fffff,
                                        0x000116c2, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                                        0x80000000};
    float *x = floats(rows * (cols + GAP));
    for (int64_t i = 0; i < rows * (cols + GAP); i++)
        if (i % (cols + GAP) >= cols)
            x[i] = NAN;
        else if (special && i % 3 == 0)
            memcpy(x + i, specials + i / 3 % (int64_t)(sizeof specials / sizeof *specials), 4);
    return x;
}

/* The pairs of x [rows,cols] by the plain kernel. The pairs by the kernel of by must have the same
 * bits. */
static uint32_t *pairs(const halognn_products *by, int64_t rows, int64_t cols, int64_t panel,
                       const float *x, int bf16) {
    const int64_t n = (rows + 1) / 2 * ((cols + panel - 1) / panel * panel), stride = cols + GAP;
    const halognn_products *const of[] = {by, halognn_products_open(1)};
    uint16_t *half = must_alloc((size_t)(rows * stride) * 2);
    halognn_to_bf16(halognn_cpu_open("scalar"), half, rows * stride, 1, rows * stride, x,
                    rows * stride);
    const halognn_matrix m = bf16 ? of_bf16(half) : of_floats(x);
    float *to[2];
    for (int i = 0; i < 2; i++) {
        to[i] = guarded(n, NULL);
        halognn_pair_rows(of[i], (uint32_t *)(void *)to[i], panel, rows, cols, m, stride);
    }
    check(intact(to[0], n) && memcmp(to[0], to[1], (size_t)n * 4) == 0,
          bf16 ? "pair_rows of bfloat16" : "pair_rows", rows, cols, panel);
    uint32_t *result = must_alloc((size_t)n * 4);
    memcpy(result, to[1], (size_t)n * 4);
    free(to[0] - GUARD), free(to[1] - GUARD), free(half);
    return result;
}

static void test_pairs(const halognn_products *by, int64_t rows, int64_t cols) {
    float *x = matrix(rows, cols, 1);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        free(pairs(by, rows, cols, HALOGNN_COLUMN_PANEL, x, bf16));
        free(pairs(by, rows, cols, cols, x, bf16));
    }
    free(x);
}

/* Both products equal the plain ones, and a row that is multiplied alone has the same result as in
 * the whole matrix. */
static void test_product(const halognn_products *by, int64_t m, int64_t n, int64_t k, int add) {
    const halognn_products *const of[] = {by, halognn_products_open(1)};
    const int64_t apart = n + GAP, size = m * apart;
    float *x = floats(m * k), *turned = matrix(k, m, 0), *y = matrix(k, n, 0), *c = floats(size);
    uint16_t *rows = must_alloc((size_t)(m * k) * 2);
    halognn_to_bf16(halognn_cpu_open("scalar"), rows, m * k, 1, m * k, x, m * k);
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            turned[p * (m + GAP) + i] = x[i * k + p];
    uint32_t *a = pairs(by, k, m, m > 0 ? m : 1, turned, 0);
    uint32_t *b = pairs(by, k, n, HALOGNN_COLUMN_PANEL, y, 0);
    float *plain = guarded(size, c), *of_rows = guarded(size, c), *of_pairs = guarded(size, c);
    float *alone = guarded(size, c);
    halognn_product_of_rows(of[1], plain, apart, m, n, k, rows, b, add);
    halognn_product_of_rows(of[0], of_rows, apart, m, n, k, rows, b, add);
    halognn_product_of_pairs(of[0], of_pairs, apart, m, n, k, a, b, add);
    for (int64_t i = 0; i < m; i++)
        halognn_product_of_rows(of[0], alone + i * apart, apart, 1, n, k, rows + i * k, b, add);
    const size_t bytes = (size_t)size * 4;
    check(intact(of_rows, size) && memcmp(of_rows, plain, bytes) == 0, "product_of_rows", m, n, k);
    check(intact(of_pairs, size) && memcmp(of_pairs, plain, bytes) == 0, "product_of_pairs", m, n,
          k);
    check(memcmp(alone, of_rows, bytes) == 0, "product_of_rows, row by row", m, n, k);
    halognn_product_of_pairs(of[1], of_pairs, apart, m, n, k, a, b, 0);
    halognn_product_of_rows(of[1], plain, apart, m, n, k, rows, b, 0);
    check(memcmp(of_pairs, plain, bytes) == 0, "the plain products", m, n, k);
    free(x), free(turned), free(y), free(c), free(rows), free(a), free(b);
    free(plain - GUARD), free(of_rows - GUARD), free(of_pairs - GUARD), free(alone - GUARD);
}

int test_products(void) {
    static const int64_t sizes[][3] = {{512, 256, 256}, {23, 130, 1023}, {8, 5, 1025},
                                       {4, 70, 2048},   {3, 9, 2051},    {1, 47, 602},
                                       {0, 5, 4},       {5, 64, 0}};
    const halognn_products *by = halognn_products_open(0);
    if (by == NULL) {
        printf("skipped products of bfloat16: this machine does not have AVX512-BF16\n");
        return 0;
    }
    for (int64_t rows = 1; rows < 8; rows++)
        for (int64_t cols = 1; cols < 140; cols += 9)
            test_pairs(by, rows, cols);
    for (int add = 0; add < 2; add++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            test_product(by, sizes[i][0], sizes[i][1], sizes[i][2], add);
        for (int64_t m = 1; m < 14; m++) /* every block: rows, vectors, lanes, a last half pair */
            for (int64_t n = 1; n < 140; n += 7)
                test_product(by, m, n, 1 + (m + n) % 6, add);
    }
    printf("tested %s\n", by->isa);
    return failures;
}
