// Bias, ReLU and dropout: one thread an element, neighbours side by side. They are bound by memory whatever they compute.
#include "context.cuh"

namespace halognn {
namespace {

__device__ inline uint64_t mix64(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// bits is compute.DropoutKey.Row(vertex).Bits(column).
__device__ inline uint32_t bits(uint64_t key, int32_t vertex, uint32_t column) {
    const uint64_t h = mix64(key + 0x9e3779b97f4a7c15ull * (static_cast<uint64_t>(static_cast<uint32_t>(vertex)) + 1));
    uint32_t x = static_cast<uint32_t>(h) + column * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15 ^ static_cast<uint32_t>(h >> 32);
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

__global__ void bias_kernel(float *y, int64_t n, int64_t cols, const float *b) {
    const int64_t i = item();
    if (i < n) y[i] += b[i % cols];
}

__global__ void relu_kernel(float *y, int64_t n) {
    const int64_t i = item();
    if (i < n && y[i] < 0) y[i] = 0;
}

__global__ void dropout_kernel(float *y, int64_t n, int64_t cols, uint32_t threshold, float scale, uint64_t key, const int32_t *vertices) {
    const int64_t i = item();
    if (i >= n) return;
    const int64_t row = i / cols, col = i - row * cols;
    const float v = y[i];
    y[i] = v < 0 || bits(key, vertices[row], static_cast<uint32_t>(col)) < threshold ? 0 : v * scale;
}

__global__ void relu_backward_kernel(float *dy, int64_t n, const float *y, float scale) {
    const int64_t i = item();
    if (i < n) dy[i] = y[i] > 0 ? dy[i] * scale : 0;
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_add_bias(halognn_cuda *c, float *y, int64_t rows, int64_t cols, const float *b) {
    const int64_t n = rows * cols;
    return n ? LAUNCH(c, bias_kernel, blocks(n), y, n, cols, b) : 0;
}

int halognn_cuda_relu(halognn_cuda *c, float *y, int64_t n) { return n ? LAUNCH(c, relu_kernel, blocks(n), y, n) : 0; }

int halognn_cuda_relu_dropout(halognn_cuda *c, float *y, int64_t rows, int64_t cols, uint32_t threshold, float scale, uint64_t key,
                              const int32_t *vertices) {
    const int64_t n = rows * cols;
    return n ? LAUNCH(c, dropout_kernel, blocks(n), y, n, cols, threshold, scale, key, vertices) : 0;
}

int halognn_cuda_relu_backward(halognn_cuda *c, float *dy, int64_t n, const float *y, float scale) {
    return n ? LAUNCH(c, relu_backward_kernel, blocks(n), dy, n, y, scale) : 0;
}

}  // extern "C"
