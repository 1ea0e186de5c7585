// Losses. A warp computes the losses of some rows of logits, with exp and log in double precision.
// The last warp of a group to finish adds the losses of the group. The last of all groups to finish
// adds the losses of all groups. Losses are added first by lane and then as a tree, so the sum does
// not depend on which warps do this. Each warp needs a memory fence when it has finished. A fence
// takes longer than a row, so there are at most WARPS warps.
#include "reduce.cuh"
#include "stored.cuh"
#include "warp.cuh"

#include <cmath>

namespace halognn {
namespace {

constexpr int64_t WARPS = 8192, GROUP = 128;

// answer has the places to which warps and groups write their losses, and where these are added.
struct answer {
    halognn_cuda_loss *result, *groups, *each; // [1], [groups], [warps]
    uint32_t *arrived;                         // [groups + 1]
    int64_t rows, per_warp, warps;
    float scale;
    bool classes; // whether each row has one class, so that its prediction is right or wrong
    halognn_cuda_queued_loss queued; // queued.head is NULL if the host waits for the loss
};

// over_lanes returns the sum of the losses of the lanes of a warp.
__device__ inline halognn_cuda_loss over_lanes(halognn_cuda_loss sum) {
    sum.loss = warp_sum(sum.loss);
    for (int k = 0; k < 3; k++) sum.counts[k] = warp_sum(sum.counts[k]);
    return sum;
}

// add_all returns the sum of n losses. Other warps of the kernel may have written them. All lanes
// of a warp call it.
__device__ inline halognn_cuda_loss add_all(const halognn_cuda_loss *of, int64_t n) {
    halognn_cuda_loss sum{};
    for (int64_t i = my_lane(); i < n; i += WARP) {
        sum.loss += __ldcg(&of[i].loss);
        for (int k = 0; k < 3; k++)
            sum.counts[k] += __ldcg(reinterpret_cast<const long long *>(&of[i].counts[k]));
    }
    return over_lanes(sum);
}

// handed_in writes the loss of a warp to `to` and counts the warp. It returns whether this was the
// last of the `all` warps that are counted.
__device__ inline bool handed_in(halognn_cuda_loss *to, const halognn_cuda_loss &loss,
                                 uint32_t *arrived, int64_t all) {
    int last = 0;
    if (my_lane() == 0) {
        *to = loss;
        last = arrive(arrived, all);
    }
    // lane 0 must have counted the warp before other lanes read what the other warps have written
    __syncwarp();
    return warp_sum(last) != 0;
}

// find_fault finds the first number of a matrix that is not finite, and writes its place. It is not
// inlined, because 24 copies would make the code of a loss three times as long. The fields of a
// suspect are separate arguments, because taking the address of a kernel's parameter would move all
// parameters to local memory.
__attribute__((noinline)) __device__ void find_fault(halognn_cuda_matrix x, int64_t rows,
                                                     int64_t cols, int64_t known,
                                                     const int32_t *vertices, uint32_t *place) {
    constexpr int FLIGHT = 8;
    constexpr int64_t NONE = INT64_MAX;
    const int64_t n = rows * cols;
    int64_t first = NONE;
    for (int64_t base = my_lane(); base - my_lane() < n && first == NONE; base += FLIGHT * WARP) {
        for (int k = FLIGHT - 1; k >= 0; k--) {
            const int64_t i = base + k * WARP;
            if (i >= n) continue;
            const float number = take<1>(x, i).at[0];
            if (!(number - number == 0)) first = i;
        }
        for (int mask = WARP / 2; mask > 0; mask /= 2) {
            const int64_t other = __shfl_xor_sync(0xffffffffu, first, mask);
            first = other < first ? other : first;
        }
    }
    if (my_lane() != 0 || first == NONE) return;
    const int64_t row = first / cols;
    place[0] = static_cast<uint32_t>(row) + 1;
    place[1] = row < known ? static_cast<uint32_t>(vertices[row]) + 1 : 0;
}

// write_queued writes the results that the host reads later. All lanes of the last warp call it,
// with the loss of all rows.
__device__ inline void write_queued(const answer &to, const halognn_cuda_loss &all) {
    const halognn_cuda_queued_loss &queued = to.queued;
    const float loss = static_cast<float>(all.loss * static_cast<double>(to.scale));
    if (my_lane() == 0) {
        const int64_t wrong = to.rows - all.counts[0];
        queued.head[0] = loss;
        queued.head[1] = static_cast<float>(all.counts[0]);
        queued.head[2] = static_cast<float>(to.classes ? wrong : all.counts[1]);
        queued.head[3] = static_cast<float>(to.classes ? wrong : all.counts[2]);
#pragma unroll // no index into parameters, because this would move them to local memory
        for (int k = 0; k < HALOGNN_EXTRAS; k++) queued.head[4 + k] = queued.extras[k];
    }
    if (loss - loss == 0) return;
    // if so, another bad loss came first: in an earlier step, on this or another rank, or in an
    // earlier minibatch of this step
    const bool late = *queued.skipped != 0 || *queued.places != 0;
    __syncwarp(); // all lanes must have read places before lane 0 writes it
    if (late) return;
    if (my_lane() == 0) *queued.places = 1;
#pragma unroll
    for (int k = 0; k < HALOGNN_SUSPECTS; k++) {
        const halognn_cuda_suspect &in = queued.of[k];
        if (k < queued.suspects)
            find_fault(in.x, in.rows, in.cols, in.known, in.vertices, queued.places + 1 + 2 * k);
    }
}

// put records the loss of warp w. The last warp also adds the losses of all warps. All lanes of the
// warp call put.
__device__ inline void put(const answer &to, int64_t w, const halognn_cuda_loss &loss) {
    const int64_t group = w / GROUP, count = (to.warps + GROUP - 1) / GROUP;
    const int64_t first = group * GROUP, end = first + GROUP < to.warps ? first + GROUP : to.warps;
    if (!handed_in(to.each + w, loss, to.arrived + group, end - first)) return;
    const halognn_cuda_loss sum = add_all(to.each + first, end - first);
    if (!handed_in(to.groups + group, sum, to.arrived + count, count)) return;
    const halognn_cuda_loss all = add_all(to.groups, count);
    if (my_lane() == 0) *to.result = all;
    if (to.queued.head != nullptr) write_queued(to, all);
}

// largest returns the column of the largest logit of a row. If several are equal, it returns the
// first. All lanes of a warp call it.
__device__ inline int64_t largest(const float *z, int64_t cols) {
    int64_t top = my_lane() < cols ? my_lane() : 0;
    float most = z[top];
    for (int64_t j = top + WARP; j < cols; j += WARP)
        if (z[j] > most) {
            top = j;
            most = z[j];
        }
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        const int64_t other = __shfl_xor_sync(0xffffffffu, top, mask);
        const float theirs = __shfl_xor_sync(0xffffffffu, most, mask);
        if (theirs > most || (theirs == most && other < top)) {
            top = other;
            most = theirs;
        }
    }
    return top;
}

// softmax_row returns the loss of row r. Unless dlogits is null, it also writes the gradient.
__device__ inline halognn_cuda_loss softmax_row(float *dlogits, int64_t r, int64_t cols,
                                                const float *logits, const int32_t *labels,
                                                float scale) {
    const float *z = logits + r * cols;
    const int64_t label = labels[r], top = largest(z, cols);
    const double most = z[top];
    // This sums the other classes, without the label. The gradient of the label is minus their
    // share, which is exact even when it is near 0.
    // first is this lane's first term, which is needed again; wider rows compute their terms again
    double others = 0, first = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const double e = exp(static_cast<double>(z[j]) - most);
        if (j == my_lane()) first = e;
        if (j != label) others += e;
    }
    others = warp_sum(others);
    const double total = others + exp(static_cast<double>(z[label]) - most);
    const double loss = log(total) + most - static_cast<double>(z[label]);
    for (int64_t j = my_lane(); dlogits != nullptr && j < cols; j += WARP) {
        const double e = j == my_lane() ? first : exp(static_cast<double>(z[j]) - most);
        const double share = (j == label ? -others : e) / total;
        dlogits[r * cols + j] = static_cast<float>(share * static_cast<double>(scale));
    }
    return {loss, {top == label, 0, 0}};
}

// sigmoid_row does what softmax_row does, for labels that are independent of each other. It returns
// the sums of one lane.
__device__ inline halognn_cuda_loss sigmoid_row(float *dlogits, int64_t r, int64_t cols,
                                                const float *logits, const uint8_t *targets,
                                                float scale) {
    double loss = 0;
    int32_t right = 0, wrong = 0, missed = 0;
    for (int64_t j = my_lane(); j < cols; j += WARP) {
        const int64_t i = r * cols + j;
        const double z = logits[i], t = targets[i], e = exp(-fabs(z));
        loss += (z > 0 ? z : z * 0) - z * t + log1p(e); // z*0 is 0, but keeps a NaN
        if (dlogits != nullptr)
            dlogits[i] = static_cast<float>(((z > 0 ? 1 / (1 + e) : e / (1 + e)) - t) *
                                            static_cast<double>(scale));
        right += z > 0 && targets[i] != 0;
        wrong += z > 0 && targets[i] == 0;
        missed += !(z > 0) && targets[i] != 0;
    }
    return {loss, {right, wrong, missed}};
}

// add_rows returns the sum of row(r) over the rows r of a warp.
template <typename Row>
__device__ inline halognn_cuda_loss add_rows(const answer &to, int64_t w, const Row &row) {
    halognn_cuda_loss sum{};
    const int64_t end = (w + 1) * to.per_warp < to.rows ? (w + 1) * to.per_warp : to.rows;
    for (int64_t r = w * to.per_warp; r < end; r++) {
        const halognn_cuda_loss one = row(r);
        sum.loss += one.loss;
        for (int k = 0; k < 3; k++) sum.counts[k] += one.counts[k];
    }
    return sum;
}

__global__ void softmax_rows(float *dlogits, int64_t cols, const float *logits,
                             const int32_t *labels, float scale, answer to) {
    const int64_t w = my_row();
    if (w >= to.warps) return;
    put(to, w, add_rows(to, w, [=](int64_t r) {
            return softmax_row(dlogits, r, cols, logits, labels, scale);
        }));
}

__global__ void sigmoid_rows(float *dlogits, int64_t cols, const float *logits,
                             const uint8_t *targets, float scale, answer to) {
    const int64_t w = my_row();
    if (w >= to.warps) return;
    put(to, w, over_lanes(add_rows(to, w, [=](int64_t r) {
            return sigmoid_row(dlogits, r, cols, logits, targets, scale);
        })));
}

// answer_in returns the places of an answer. The scratch has room for the losses of groups,
// followed by the losses of warps. If there are no rows, one warp still writes the result.
answer answer_in(halognn_cuda *c, halognn_cuda_loss *result, int64_t rows, float scale,
                 bool classes, void *scratch, const halognn_cuda_queued_loss *queued) {
    const int64_t per_warp = rows > WARPS ? ceil_div(rows, WARPS) : 1;
    const int64_t warps = rows > 0 ? ceil_div(rows, per_warp) : 1;
    halognn_cuda_loss *groups = static_cast<halognn_cuda_loss *>(scratch);
    answer to{result,   groups, groups + ceil_div(warps, GROUP), c->arrived, rows,
              per_warp, warps,  scale, classes, {}};
    if (queued != nullptr) to.queued = *queued;
    return to;
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int64_t halognn_cuda_loss_scratch(int64_t rows) {
    const int64_t warps = rows == 0 ? 1 : rows < WARPS ? rows : WARPS;
    return (ceil_div(warps, GROUP) + warps) * static_cast<int64_t>(sizeof(halognn_cuda_loss));
}

int halognn_cuda_softmax_ce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols,
                            const float *logits, const int32_t *labels, float scale,
                            halognn_cuda_loss *result, void *scratch,
                            const halognn_cuda_queued_loss *queued) {
    const answer to = answer_in(c, result, rows, scale, true, scratch, queued);
    return LAUNCH_TOGETHER(c, softmax_rows, rows_by_warp(to.warps), dlogits, cols, logits, labels,
                           scale, to);
}

int halognn_cuda_sigmoid_bce(halognn_cuda *c, float *dlogits, int64_t rows, int64_t cols,
                             const float *logits, const uint8_t *targets, float scale,
                             halognn_cuda_loss *result, void *scratch,
                             const halognn_cuda_queued_loss *queued) {
    const answer to = answer_in(c, result, rows, scale, false, scratch, queued);
    return LAUNCH_TOGETHER(c, sigmoid_rows, rows_by_warp(to.warps), dlogits, cols, logits, targets,
                           scale, to);
}

}  // extern "C"
