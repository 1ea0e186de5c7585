// Losses: one warp for each row of logits; exp and log are in double precision, whose cost is
// negligible for a few thousand rows. The warp that is the last to finish in a chunk of rows adds
// them, and the one that is the last of these adds the chunks: in order, whichever warps they are.
#include "reduce.cuh"
#include "warp.cuh"

#include <cmath>

namespace halognn {
namespace {

// answer is where the losses of rows and chunks are put and added.
struct answer {
    halognn_cuda_loss *result, *partial, *each; // [1], [chunks], [rows]
    uint32_t *arrived;                          // [chunks + 1]
};

// add_all returns the sum of n losses, in order, which other threads of the kernel may have
// written.
__device__ inline halognn_cuda_loss add_all(const halognn_cuda_loss *of, int64_t n) {
    halognn_cuda_loss sum{};
    for (int64_t i = 0; i < n; i++) {
        sum.loss += __ldcg(&of[i].loss);
        for (int k = 0; k < 3; k++)
            sum.counts[k] += __ldcg(reinterpret_cast<const long long *>(&of[i].counts[k]));
    }
    return sum;
}

// put notes the loss of row r. One thread calls it for each row.
__device__ inline void put(const answer &to, int64_t rows, int64_t r, halognn_cuda_loss loss) {
    const int64_t chunk = r / CHUNK, count = (rows + CHUNK - 1) / CHUNK;
    const int64_t first = chunk * CHUNK, end = first + CHUNK < rows ? first + CHUNK : rows;
    to.each[r] = loss;
    if (!arrive(to.arrived + chunk, end - first)) return;
    to.partial[chunk] = add_all(to.each + first, end - first);
    if (arrive(to.arrived + count, count)) *to.result = add_all(to.partial, count);
}

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

__global__ void softmax_rows(float *dlogits, int64_t rows, int64_t cols, const float *logits,
                             const int32_t *labels, float scale, answer to) {
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
    const double loss = log(total) + most - static_cast<double>(z[label]);
    if (my_lane() == 0) put(to, rows, r, {loss, {top == label, 0, 0}});
    if (dlogits == nullptr) return;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const double share =
            j == label ? -others / total : exp(static_cast<double>(z[j]) - most) / total;
        dlogits[r * cols + j] = static_cast<float>(share * static_cast<double>(scale));
    }
}

__global__ void sigmoid_rows(float *dlogits, int64_t rows, int64_t cols, const float *logits,
                             const uint8_t *targets, float scale, answer to) {
    const int64_t r = my_row();
    if (r >= rows) return;
    double loss = 0;
    int32_t right = 0, wrong = 0, missed = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const int64_t i = r * cols + j;
        const double z = logits[i], t = targets[i], e = exp(-fabs(z));
        loss += (z > 0 ? z : z * 0) - z * t + log1p(e); // z*0 keeps a NaN
        if (dlogits != nullptr)
            dlogits[i] = static_cast<float>(((z > 0 ? 1 / (1 + e) : e / (1 + e)) - t) *
                                            static_cast<double>(scale));
        right += z > 0 && targets[i] != 0;
        wrong += z > 0 && targets[i] == 0;
        missed += !(z > 0) && targets[i] != 0;
    }
    loss = warp_sum(loss);
    right = warp_sum(right);
    wrong = warp_sum(wrong);
    missed = warp_sum(missed);
    if (my_lane() == 0) put(to, rows, r, {loss, {right, wrong, missed}});
}

// answer_in returns the places of an answer: the scratch holds the chunks, then the rows.
answer answer_in(halognn_cuda *c, halognn_cuda_loss *result, int64_t rows, void *scratch) {
    halognn_cuda_loss *partial = static_cast<halognn_cuda_loss *>(scratch);
    return {result, partial, partial + chunks(rows), c->arrived};
}

int no_rows(halognn_cuda *c, halognn_cuda_loss *result) {
    return halognn_cuda_zero(c, HALOGNN_COMPUTE, result, sizeof *result);
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int64_t halognn_cuda_loss_scratch(int64_t rows) {
    return (chunks(rows) + rows) * static_cast<int64_t>(sizeof(halognn_cuda_loss));
}

int halognn_cuda_softmax_ce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols,
                            const float *logits, const int32_t *labels, float scale,
                            halognn_cuda_loss *result, void *scratch) {
    if (rows == 0) return no_rows(c, result);
    if (chunks(rows) >= COUNTERS) return cudaErrorInvalidValue;
    return LAUNCH_TOGETHER(c, softmax_rows, rows_by_warp(rows), dlogits, rows, cols, logits, labels,
                           scale, answer_in(c, result, rows, scratch));
}

int halognn_cuda_sigmoid_bce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols,
                             const float *logits, const uint8_t *targets, float scale,
                             halognn_cuda_loss *result, void *scratch) {
    if (rows == 0) return no_rows(c, result);
    if (chunks(rows) >= COUNTERS) return cudaErrorInvalidValue;
    return LAUNCH_TOGETHER(c, sigmoid_rows, rows_by_warp(rows), dlogits, rows, cols, logits,
                           targets, scale, answer_in(c, result, rows, scratch));
}

}  // extern "C"
