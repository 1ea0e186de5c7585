// What matrix products by cuBLAS share: the types of factors, and the modes of cuBLAS.
#pragma once

#include "stored.cuh"

namespace halognn {

inline constexpr float one = 1, zero = 0;

// blas returns the cuBLAS handle of c. It also makes the device current on the calling thread.
inline cublasHandle_t blas(halognn_cuda *c) { return on(c), c->blas; }

// tf32 is a factor in TF32. It is a float32 whose low bits the tensor cores do not read, so no
// kernel rounds it. Factors of type bfloat16 are rounded by a kernel if they are stored as float32.
struct tf32 {
    float value;
};

// cores<T> has the arguments by which cuBLAS multiplies factors of type T. Tensor cores multiply
// them unless `dropped` is 0.
template <typename T>
struct cores;
template <>
struct cores<float> {
    static constexpr int dropped = 0;
    static constexpr cudaDataType_t type = CUDA_R_32F;
    static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};
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

// in_mode calls the function `multiply` with the handle, in the mode that factors of type T need.
// The handle's usual mode is the pedantic mode for float32, which excludes tensor cores. The other
// mode always forbids reductions of reduced precision, because they would add partial sums in
// bfloat16.
template <typename T, typename F>
int in_mode(halognn_cuda *c, const F &multiply) {
    const cublasHandle_t handle = blas(c);
    if constexpr (cores<T>::dropped == 0) {
        return blas_code(multiply(handle));
    } else {
        constexpr auto math = static_cast<cublasMath_t>(
            CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
        if (int e = blas_code(cublas.set_math(handle, math))) return e;
        const int first = blas_code(multiply(handle));
        const int second = blas_code(cublas.set_math(handle, CUBLAS_PEDANTIC_MATH));
        return first ? first : second;
    }
}

// factors has the two factors of a product, and the number of elements of each.
struct factors {
    halognn_cuda_matrix of[2];
    int64_t n[2];
};

// round_factors rounds each factor that is stored as float32 to bfloat16, into room, where it then
// lies.
int round_factors(halognn_cuda *c, void *room, factors *all);

// product calls `multiply` with two factors, as pointers to the type by which cuBLAS multiplies
// them without `dropped` low bits.
template <typename F>
int product(halognn_cuda *c, void *room, int dropped, factors all, const F &multiply) {
    for (const halognn_cuda_matrix &m : all.of)
        if (m.bf16 && dropped != cores<bf16>::dropped) return cudaErrorInvalidValue;
    if (dropped == cores<bf16>::dropped)
        if (int e = round_factors(c, room, &all)) return e;
    const auto as = [&](auto type, int k) {
        return static_cast<const decltype(type) *>(all.of[k].of);
    };
    switch (dropped) {
    case cores<float>::dropped: return multiply(as(zero, 0), as(zero, 1));
    case cores<tf32>::dropped: return multiply(as(tf32{}, 0), as(tf32{}, 1));
    case cores<bf16>::dropped: return multiply(as(bf16{}, 0), as(bf16{}, 1));
    }
    return cudaErrorInvalidValue;
}

}  // namespace halognn
