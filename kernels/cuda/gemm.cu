// Matrix products by cuBLAS, which is column-major: a row-major [a,b] is its [b,a], so every
// product is computed transposed.
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "settle.cuh"

namespace halognn {
namespace {

int status(cublasStatus_t s) {
    return s == CUBLAS_STATUS_SUCCESS ? 0 : BLAS_CODE + static_cast<int>(s);
}

// blas returns the handle, after making its device current on the thread.
cublasHandle_t blas(halognn_cuda *c) { return on(c), c->blas; }

const float one = 1, zero = 0;

// gemm multiplies a batch of float32, or, with stride 0, one product.
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
         const float *a, int lda, int64_t stride_a, const float *b, int ldb, int64_t stride_b,
         const float *beta, float *to, int64_t stride, int64_t count) {
    if (stride == 0)
        return status(cublasSgemm(blas(c), ta, tb, m, n, k, &one, a, lda, b, ldb, beta, to, m));
    return status(cublasSgemmStridedBatched(blas(c), ta, tb, m, n, k, &one, a, lda, stride_a, b,
                                            ldb, stride_b, beta, to, m, stride,
                                            static_cast<int>(count)));
}

// The same for the first count products of a table.
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
         const float *const *table, int lda, int ldb, int64_t count) {
    return status(cublasSgemmBatched(blas(c), ta, tb, m, n, k, &one, table, lda, table + TABLE, ldb,
                                     &zero, const_cast<float *const *>(table + 2 * TABLE), m,
                                     static_cast<int>(count)));
}

// Rounded factors as tensor cores take them. A TF32 is a float32 whose low bits are 0: the cores do
// not read them.
using bf16 = uint16_t;
struct tf32 {
    float value;
};

// cores say how cuBLAS multiplies them.
template <typename T>
struct cores;
template <>
struct cores<bf16> {
    static constexpr int dropped = 16;
    static constexpr cudaDataType_t type = CUDA_R_16BF;
    static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};
template <>
struct cores<tf32> {
    static constexpr int dropped = 13;
    static constexpr cudaDataType_t type = CUDA_R_32F;
    static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F_FAST_TF32;
};

// Pedantic arithmetic, as for float32, would exclude the tensor cores; instead tensor_math forbids
// reduced-precision reductions, which would add partial sums in bfloat16.
int tensor_math(halognn_cuda *c) {
    return status(cublasSetMathMode(
        blas(c), static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                           CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
}

// Both for rounded factors.
template <typename T>
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
         const T *a, int lda, int64_t stride_a, const T *b, int ldb, int64_t stride_b,
         const float *beta, float *to, int64_t stride, int64_t count) {
    if (int e = tensor_math(c)) return e;
    if (stride == 0)
        return status(cublasGemmEx(blas(c), ta, tb, m, n, k, &one, a, cores<T>::type, lda, b,
                                   cores<T>::type, ldb, beta, to, CUDA_R_32F, m,
                                   cores<T>::compute, CUBLAS_GEMM_DEFAULT));
    return status(cublasGemmStridedBatchedEx(blas(c), ta, tb, m, n, k, &one, a, cores<T>::type, lda,
                                             stride_a, b, cores<T>::type, ldb, stride_b, beta, to,
                                             CUDA_R_32F, m, stride, static_cast<int>(count),
                                             cores<T>::compute, CUBLAS_GEMM_DEFAULT));
}

template <typename T>
int gemm(halognn_cuda *c, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
         const T *const *table, int lda, int ldb, int64_t count) {
    if (int e = tensor_math(c)) return e;
    const auto pointers = reinterpret_cast<const void *const *>(table);
    return status(cublasGemmBatchedEx(blas(c), ta, tb, m, n, k, &one, pointers, cores<T>::type, lda,
                                      pointers + TABLE, cores<T>::type, ldb, &zero,
                                      const_cast<void *const *>(pointers + 2 * TABLE), CUDA_R_32F,
                                      m, static_cast<int>(count), cores<T>::compute,
                                      CUBLAS_GEMM_DEFAULT));
}

// Two products of one shape with other factors have no common stride, so cuBLAS takes pointers,
// which lie on the device. The arrays of a layer seldom move: the table that was written for them
// stays, and nothing is launched to write one in a steady step. cuBLAS cannot see such pointers
// when it chooses a kernel, so all must be multiples of 16 bytes.
__global__ void write_table(const char **table, pairs of) {
    const int64_t at = item(), k = at / 2;
    const bool second = at % 2; // an index would move the parameters to local memory
    if (at >= TABLE) return;
    table[at] = (second ? of.a[1] : of.a[0]) + k * of.step_a;
    table[TABLE + at] = (second ? of.b[1] : of.b[0]) + k * of.step_b;
    table[2 * TABLE + at] = (second ? of.c[1] : of.c[0]) + k * of.step_c;
}

// table_of sets *table to pointers of these products. Those beyond the arrays' ends are not read.
template <typename T>
int table_of(halognn_cuda *c, const pairs &of, const T *const **table) {
    int t = 0;
    while (t < TABLES && memcmp(&c->told[t], &of, sizeof of) != 0) t++;
    const bool known = t < TABLES;
    if (!known) t = static_cast<int>(c->tellings++ % TABLES);
    const char **at = c->tables + t * 3 * TABLE;
    *table = reinterpret_cast<const T *const *>(at);
    if (known) return 0;
    c->told[t] = of;
    return LAUNCH(c, write_table, blocks(TABLE), at, of);
}

// aligned reports whether all these can be in a table.
bool aligned(std::initializer_list<const void *> all) {
    for (const void *p : all)
        if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
    return true;
}

template <typename T>
int matmul(halognn_cuda *c, float *y, const T *x, const T *w, int r, int f, int o, int add) {
    return gemm(c, CUBLAS_OP_T, CUBLAS_OP_N, o, r, f, w, f, 0, x, f, 0, add ? &one : &zero, y, 0,
                1);
}

template <typename T>
int matmul_input(halognn_cuda *c, float *x, const T *y, const T *w, int r, int f, int o, int add) {
    return gemm(c, CUBLAS_OP_N, CUBLAS_OP_N, f, r, o, w, f, 0, y, o, 0, add ? &one : &zero, x, 0,
                1);
}

// SMALL is the number of weights up to which the rows after the whole chunks are left to settle: a
// product of at most CHUNK rows is then bound by its launch.
constexpr int64_t SMALL = int64_t{1} << 17;

// gradients are those of weights w[i] [o,f], which multiply rows [r,f]: of one matrix, or, if w[1]
// is not null, two; and, unless it is null, b, the sum of the rows of dy [r,o]. Factors are rounded
// by so many bits.
struct gradients {
    float *w[2], *b;
    const float *dy, *x[2];
    int64_t r;
    int f, o;
    float *scratch;
    int dropped;
};

// Every chunk of rows is a separate product: one batch, which fills the device better than a single
// product of small [o,f] and large r. The remaining rows are another product, or part of the sum of
// the chunks, which is made later. y and x are factors, rounded or not.
template <typename T>
int matmul_weights(halognn_cuda *c, const gradients &g, const T *y, const T *x, const T *x2) {
    const int64_t whole = g.r / CHUNK, left = g.r - whole * CHUNK, two = x2 ? 2 : 1;
    const int64_t o = g.o, f = g.f, n = o * f, step = ceil_div(n, 4) * 4;
    const int64_t bytes = static_cast<int64_t>(sizeof(T));
    const bool alone = g.r <= CHUNK; // no sum of chunks
    const pairs of{{reinterpret_cast<const char *>(x), reinterpret_cast<const char *>(x2)},
                   {reinterpret_cast<const char *>(y), reinterpret_cast<const char *>(y)},
                   {reinterpret_cast<char *>(alone ? g.w[0] : g.scratch),
                    reinterpret_cast<char *>(alone ? g.w[1] : g.scratch + step)},
                   CHUNK * f * bytes,
                   CHUNK * o * bytes,
                   2 * step * 4};
    const T *const *table = nullptr;
    if (x2 != nullptr)
        if (int e = table_of(c, of, &table)) return e;
    // product multiplies count chunks of so many rows, from the given one.
    const auto product = [&](int64_t from, int64_t rows, int64_t count) {
        const int k = static_cast<int>(rows);
        if (table != nullptr)
            return gemm(c, CUBLAS_OP_N, CUBLAS_OP_T, g.f, g.o, k, table + 2 * from, g.f, g.o,
                        2 * count);
        float *to = alone ? g.w[0] : g.scratch + from * step;
        return gemm(c, CUBLAS_OP_N, CUBLAS_OP_T, g.f, g.o, k, x + from * CHUNK * f, g.f, CHUNK * f,
                    y + from * CHUNK * o, g.o, CHUNK * o, &zero, to, count > 1 ? step : 0, count);
    };
    sums rest{};
    rest.o = o;
    rest.f = f;
    rest.b = g.b;
    rest.dy = g.dy;
    rest.rows = g.r;
    rest.chunks = g.scratch + two * step * chunks(g.r);
    if (alone) {
        if (int e = product(0, g.r, 1)) return e;
        return g.b ? later(c, rest) : 0;
    }
    if (int e = product(0, CHUNK, whole)) return e;
    const bool apart = left > 0 && n > SMALL;
    if (apart)
        if (int e = product(whole, left, 1)) return e;
    const int64_t first = whole * CHUNK;
    for (int i = 0; i < two; i++) {
        rest.w[i] = g.w[i];
        rest.x[i] = g.x[i] + first * f; // not the rounded copies: the next product overwrites them
    }
    rest.y = g.dy + first * o;
    rest.partial = g.scratch;
    rest.step = step;
    rest.whole = whole + apart;
    rest.left = apart ? 0 : left;
    rest.dropped = g.dropped;
    return later(c, rest);
}

__device__ void put(bf16 *dst, uint32_t bits) {
    *dst = static_cast<bf16>(bits >> cores<bf16>::dropped);
}
__device__ void put(tf32 *dst, uint32_t bits) {
    memcpy(dst, &bits, sizeof bits);
}

// factors are up to four arrays to be rounded; those that are null are empty.
struct factors {
    const float *of[4];
    int64_t n[4];
};

// Rounds arrays. Each begins at a multiple of HALOGNN_FACTOR_ALIGN elements.
template <typename T>
__global__ void round_kernel(T *to, factors all) {
    int64_t i = item();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (i >= 0 && i < all.n[k]) put(to + i, rounded(all.of[k][i], cores<T>::dropped));
        i -= all.n[k];
        to += (all.n[k] + HALOGNN_FACTOR_ALIGN - 1) / HALOGNN_FACTOR_ALIGN * HALOGNN_FACTOR_ALIGN;
    }
}

// rounded_product rounds the factors and multiplies them.
template <typename T, typename F>
int rounded_product(halognn_cuda *c, void *room, const factors &all, const F &multiply) {
    T *at[4], *next = static_cast<T *>(room);
    int64_t items = 0;
    for (int k = 0; k < 4; k++) {
        at[k] = all.of[k] ? next : nullptr;
        next += ceil_div(all.n[k], HALOGNN_FACTOR_ALIGN) * HALOGNN_FACTOR_ALIGN;
        items += all.n[k];
    }
    const int e = LAUNCH(c, round_kernel<T>, blocks(items), static_cast<T *>(room), all);
    return e ? e : multiply(at[0], at[1], at[2], at[3]);
}

// product multiplies factors, rounded or not.
template <typename F>
int product(halognn_cuda *c, void *room, int dropped, const factors &all, const F &multiply) {
    if (room == nullptr) return multiply(all.of[0], all.of[1], all.of[2], all.of[3]);
    return dropped == cores<bf16>::dropped ? rounded_product<bf16>(c, room, all, multiply)
                                           : rounded_product<tf32>(c, room, all, multiply);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_matmul(halognn_cuda *c, float *y, const float *x, const float *w, int64_t r,
                        int64_t f, int64_t o, int add, void *rounded, int dropped) {
    if (r == 0 || o == 0) return 0;
    if (f == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, y, r * o * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    return product(c, rounded, dropped, {{x, w}, {r * f, o * f}},
                   [&](auto *x, auto *w, auto *, auto *) {
                       return matmul(c, y, x, w, ri, fi, oi, add);
                   });
}

int halognn_cuda_matmul_two(halognn_cuda *c, float *y, float *y2, const float *x, const float *x2,
                            const float *w, const float *w2, int64_t r, int64_t f, int64_t o,
                            void *rounded, int dropped) {
    if (r == 0 || o == 0) return 0;
    if (f == 0) return zero_both(c, y, y2, r * o);
    if (!aligned({y, y2, x, x2, w, w2})) {
        if (int e = halognn_cuda_matmul(c, y, x, w, r, f, o, 0, rounded, dropped)) return e;
        return halognn_cuda_matmul(c, y2, x2, w2, r, f, o, 0, rounded, dropped);
    }
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    return product(
        c, rounded, dropped, {{x, x2, w, w2}, {r * f, r * f, o * f, o * f}},
        [&](auto *x, auto *x2, auto *w, auto *w2) {
            using T = std::remove_const_t<std::remove_pointer_t<decltype(x)>>;
            const pairs of{
                {reinterpret_cast<const char *>(w), reinterpret_cast<const char *>(w2)},
                {reinterpret_cast<const char *>(x), reinterpret_cast<const char *>(x2)},
                {reinterpret_cast<char *>(y), reinterpret_cast<char *>(y2)}, 0, 0, 0};
            const T *const *table;
            if (int e = table_of(c, of, &table)) return e;
            return gemm(c, CUBLAS_OP_T, CUBLAS_OP_N, oi, ri, fi, table, fi, fi, 2);
        });
}

int halognn_cuda_matmul_input(halognn_cuda *c, float *x, const float *y, const float *w, int64_t r,
                              int64_t f, int64_t o, int add, void *rounded, int dropped) {
    if (r == 0 || f == 0) return 0;
    if (o == 0) return add ? 0 : halognn_cuda_zero(c, HALOGNN_COMPUTE, x, r * f * 4);
    const int ri = static_cast<int>(r), fi = static_cast<int>(f), oi = static_cast<int>(o);
    return product(c, rounded, dropped, {{y, w}, {r * o, o * f}},
                   [&](auto *y, auto *w, auto *, auto *) {
                       return matmul_input(c, x, y, w, ri, fi, oi, add);
                   });
}

int halognn_cuda_matmul_weights(halognn_cuda *c, float *w, float *w2, float *b, const float *y,
                                const float *x, const float *x2, int64_t r, int64_t f, int64_t o,
                                float *scratch, void *rounded, int dropped) {
    if (o == 0) return 0;
    if (r == 0 || f == 0) {
        if (int e = halognn_cuda_zero(c, HALOGNN_COMPUTE, w, o * f * 4)) return e;
        if (int e = w2 ? halognn_cuda_zero(c, HALOGNN_COMPUTE, w2, o * f * 4) : 0) return e;
        return b ? halognn_cuda_column_sum(c, b, r, o, y, scratch) : 0;
    }
    if (b != nullptr && o >= COUNTERS) return cudaErrorInvalidValue;
    if (x2 != nullptr && (2 * chunks(r) > TABLE || !aligned({w, w2, y, x, x2}))) {
        // Both keep their chunks in scratch until they settle; behind the latter are those of b.
        if (int e = halognn_cuda_matmul_weights(c, w2, nullptr, nullptr, y, x2, nullptr, r, f, o,
                                                scratch, rounded, dropped))
            return e;
        return halognn_cuda_matmul_weights(c, w, nullptr, b, y, x, nullptr, r, f, o,
                                           scratch + ceil_div(o * f, 4) * 4 * chunks(r), rounded,
                                           dropped);
    }
    const gradients g{{w, w2},  b,       y, {x, x2}, r, static_cast<int>(f), static_cast<int>(o),
                      scratch, rounded ? dropped : 0};
    return product(c, rounded, dropped, {{y, x, x2}, {r * o, r * f, x2 ? r * f : 0}},
                   [&](auto *y, auto *x, auto *x2, auto *) {
                       return matmul_weights(c, g, y, x, x2);
                   });
}

}  // extern "C"
