// Losses: one warp for each row of logits; exp and log are in double precision, whose cost is
// negligible for a few thousand rows. Rows are then added in chunks by one block, so the sum does
// not depend on the grid.
#include "warp.cuh"

#include <cmath>

namespace halognn {
namespace {

// of_row is the contribution of one row to a halognn_cuda_loss.
struct of_row {
    double loss;
    int32_t counts[3];
};

// largest finds the first largest logit of a row, over the lanes of a warp.
__device__ inline int64_t largest(const float *z, int64_t cols) {
    int64_t top = my_lane() < cols ? my_lane() : 0;
    for (int64_t j = top + WARP; j < cols; j += WARP)
        if (z[j] > z[top]) top = j;
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        const int64_t other = __shfl_xor_sync(0xffffffffu, top, mask);
        if (z[other] > z[top] || (z[other] == z[top] && other < top)) top = other;
    }
    return top;
}

__global__ void softmax_rows(float *dlogits, int64_t rows, int64_t cols, const float *logits, const int32_t *labels, float scale,
                             of_row *out) {
    const int64_t r = my_row();
    if (r >= rows) return;
    const float *z = logits + r * cols;
    const int64_t label = labels[r], top = largest(z, cols);
    const double most = z[top];
    // Sum without the label: its gradient is minus their share, exact even when near 0.
    double others = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP)
        if (j != label) others += exp(static_cast<double>(z[j]) - most);
    others = warp_sum(others);
    const double total = others + exp(static_cast<double>(z[label]) - most);
    if (my_lane() == 0) out[r] = of_row{log(total) + most - static_cast<double>(z[label]), {top == label, 0, 0}};
    if (dlogits == nullptr) return;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const double share = j == label ? -others / total : exp(static_cast<double>(z[j]) - most) / total;
        dlogits[r * cols + j] = static_cast<float>(share * static_cast<double>(scale));
    }
}

__global__ void sigmoid_rows(float *dlogits, int64_t rows, int64_t cols, const float *logits, const uint8_t *targets, float scale,
                             of_row *out) {
    const int64_t r = my_row();
    if (r >= rows) return;
    double loss = 0;
    int32_t right = 0, wrong = 0, missed = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const int64_t i = r * cols + j;
        const double z = logits[i], t = targets[i], e = exp(-fabs(z));
        loss += (z > 0 ? z : z * 0) - z * t + log1p(e); // z*0 keeps a NaN
        if (dlogits != nullptr) dlogits[i] = static_cast<float>(((z > 0 ? 1 / (1 + e) : e / (1 + e)) - t) * static_cast<double>(scale));
        right += z > 0 && targets[i] != 0;
        wrong += z > 0 && targets[i] == 0;
        missed += !(z > 0) && targets[i] != 0;
    }
    loss = warp_sum(loss);
    right = warp_sum(right);
    wrong = warp_sum(wrong);
    missed = warp_sum(missed);
    if (my_lane() == 0) out[r] = of_row{loss, {right, wrong, missed}};
}

__device__ inline void add(halognn_cuda_loss *sum, double loss, int64_t a, int64_t b, int64_t c) {
    sum->loss += loss;
    sum->counts[0] += a;
    sum->counts[1] += b;
    sum->counts[2] += c;
}

// One block: its threads share the chunks, then the first one adds them in order.
__global__ void add_rows(halognn_cuda_loss *result, int64_t rows, const of_row *each, halognn_cuda_loss *partial, int64_t count) {
    for (int64_t k = threadIdx.x; k < count; k += blockDim.x) {
        halognn_cuda_loss sum{};
        for (int64_t r = k * CHUNK; r < rows && r < (k + 1) * CHUNK; r++) add(&sum, each[r].loss, each[r].counts[0], each[r].counts[1], each[r].counts[2]);
        partial[k] = sum;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    halognn_cuda_loss sum{};
    for (int64_t k = 0; k < count; k++) add(&sum, partial[k].loss, partial[k].counts[0], partial[k].counts[1], partial[k].counts[2]);
    *result = sum;
}

// The scratch holds the chunks, then the rows.
of_row *rows_of(void *scratch, int64_t rows) {
    return reinterpret_cast<of_row *>(static_cast<halognn_cuda_loss *>(scratch) + chunks(rows));
}

int add_up(halognn_cuda *c, halognn_cuda_loss *result, int64_t rows, void *scratch) {
    return LAUNCH_TOGETHER(c, add_rows, dim3(1, 1, 1), result, rows, rows_of(scratch, rows), static_cast<halognn_cuda_loss *>(scratch), chunks(rows));
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int64_t halognn_cuda_loss_scratch(int64_t rows) {
    return chunks(rows) * static_cast<int64_t>(sizeof(halognn_cuda_loss)) + rows * static_cast<int64_t>(sizeof(of_row));
}

int halognn_cuda_softmax_ce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols, const float *logits, const int32_t *labels,
                            float scale, halognn_cuda_loss *result, void *scratch) {
    if (rows > 0)
        if (int e = LAUNCH_TOGETHER(c, softmax_rows, rows_by_warp(rows), dlogits, rows, cols, logits, labels, scale, rows_of(scratch, rows)))
            return e;
    return add_up(c, result, rows, scratch);
}

int halognn_cuda_sigmoid_bce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols, const float *logits, const uint8_t *targets,
                             float scale, halognn_cuda_loss *result, void *scratch) {
    if (rows > 0)
        if (int e = LAUNCH_TOGETHER(c, sigmoid_rows, rows_by_warp(rows), dlogits, rows, cols, logits, targets, scale, rows_of(scratch, rows)))
            return e;
    return add_up(c, result, rows, scratch);
}

}  // extern "C"
