// What gradients of parameters need after the matrix products: sums over rows, and halves of
// matrices.
#include "settle.cuh"
#include "stored.cuh"

namespace halognn {
namespace {

// settle_one sums the rows of a chunk. There is a thread for each column and chunk. Only one of the
// two matrices may be of bfloat16.
__device__ inline void settle_one(const sums &s, int64_t at, uint32_t *arrived) {
    const int64_t chunks = (s.rows + CHUNK - 1) / CHUNK, chunk = at / s.cols, j = at % s.cols;
    const in_chunk in(chunk, s.rows, s.cols, j);
    const auto over = [&](const auto *dy, const auto *times) {
        struct both {
            std::decay_t<decltype(*dy)> d;
            std::decay_t<decltype(*times)> by;
        };
        const auto *d = dy + in.at;
        const auto *by = times + in.at;
        if (times == nullptr)
            return sum_in_order<1>(
                in.rows, [=](int r) { return d[r * in.cols]; },
                [](int, auto v) { return to_float(v); });
        return sum_in_order<2>(
            in.rows, [=](int r) { return both{d[r * in.cols], by[r * in.cols]}; },
            [](int, const both &v) { return to_float(v.d) * to_float(v.by); });
    };
    const auto *dy = static_cast<const float *>(s.dy.of),
               *times = static_cast<const float *>(s.times.of);
    s.chunks[chunk * s.cols + j] =
        s.dy.bf16      ? over(static_cast<const bf16 *>(s.dy.of), times)
        : s.times.bf16 ? over(dy, static_cast<const bf16 *>(s.times.of))
                       : over(dy, times);
    if (!arrive(arrived + j, chunks)) return;
    const float sum = add_in_order(s.chunks + j, s.cols, chunks);
    if (!s.total) {
        s.b[j] = sum;
        return;
    }
    float *columns = s.chunks + chunks * s.cols;
    columns[j] = sum;
    if (arrive(arrived + s.cols, s.cols)) *s.b = add_in_order(columns, 1, s.cols);
}

// part_one copies an element of a matrix to the left or right half.
__device__ inline void part_one(const sums &s, int64_t at) {
    const int64_t half = s.cols / 2, row = at / s.cols, j = at % s.cols;
    float *const to = j < half ? s.b : s.b2;
    to[row * half + j % half] = static_cast<const float *>(s.dy.of)[at];
}

__global__ void BY_CHUNK settle(pending p, uint32_t *arrived) {
    int64_t at = item(), mine = -1;
    uint32_t counter = 0;
    sums of{};
#pragma unroll // no index into parameters, because this would move them to local memory
    for (int k = 0; k < PENDING; k++) {
        if (k < p.count && at >= 0 && at < p.items[k]) {
            of = p.of[k];
            counter = p.counters[k];
            mine = at;
        }
        at -= p.items[k];
    }
    if (mine < 0) return;
    if (of.b2)
        part_one(of, mine);
    else
        settle_one(of, mine, arrived + counter);
}

}  // namespace

int later(halognn_cuda *c, const sums &s) {
    const uint32_t counters = s.b2 ? 0 : static_cast<uint32_t>(s.cols + 1);
    if (!s.b2 && s.cols + 1 > COUNTERS) return cudaErrorInvalidValue;
    pending &p = c->pending;
    if (p.count == PENDING || p.counted + counters > COUNTERS)
        if (int e = halognn_cuda_settle(c)) return e;
    p.of[p.count] = s;
    p.items[p.count] = s.cols * (s.b2 ? s.rows : chunks(s.rows));
    p.counters[p.count] = p.counted;
    p.counted += counters;
    p.count++;
    return 0;
}

}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_settle(halognn_cuda *c) {
    int64_t items = 0;
    for (int k = 0; k < c->pending.count; k++) items += c->pending.items[k];
    const pending p = c->pending;
    c->pending = {};
    return items ? LAUNCH(c, settle, blocks(items), p, c->arrived) : 0;
}

}  // extern "C"
