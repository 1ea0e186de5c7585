// The sums over rows that make the gradients of parameters of what a batch of products left.
#include "settle.cuh"

#include <cstring>

namespace halognn {
namespace {

__device__ inline float factor(const float *p, int dropped) {
    if (dropped == 0) return *p;
    const uint32_t bits = rounded(*p, dropped);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// settle_one makes one number: first one thread an element of the weights adds the products of
// whole chunks, in order, and that of the rows left; behind them one thread a column and chunk sums
// rows.
__device__ inline void settle_one(const sums &s, int64_t at, uint32_t *arrived) {
    const int64_t two = s.w[1] ? 2 : 1, n = s.w[0] ? s.o * s.f : 0;
    if (at < two * n) {
        const bool second = at >= n;
        if (second) at -= n;
        const float *partial = s.partial + (second ? s.step : 0);
        float sum = 0, last = 0;
        for (int64_t k = 0; k < s.whole; k++) sum += partial[k * two * s.step + at];
        const float *y = s.y + at / s.f, *x = (second ? s.x[1] : s.x[0]) + at % s.f;
#pragma unroll 8
        for (int64_t row = 0; row < s.left; row++)
            last += factor(y + row * s.o, s.dropped) * factor(x + row * s.f, s.dropped);
        (second ? s.w[1] : s.w[0])[at] = s.left > 0 ? sum + last : sum;
        return;
    }
    at -= two * n;
    const int64_t chunks = (s.rows + CHUNK - 1) / CHUNK, chunk = at / s.o, j = at % s.o;
    if (s.b == nullptr || chunk >= chunks) return;
    s.chunks[chunk * s.o + j] = sum_in_order(chunk, s.rows, [=](int64_t r) {
        const int64_t i = r * s.o + j;
        return s.times ? s.dy[i] * s.times[i] : s.dy[i];
    });
    if (!arrive(arrived + j, chunks)) return;
    const float sum = add_in_order(s.chunks + j, s.o, chunks);
    if (!s.total) {
        s.b[j] = sum;
        return;
    }
    float *columns = s.chunks + chunks * s.o;
    columns[j] = sum;
    if (arrive(arrived + s.o, s.o)) *s.b = add_in_order(columns, 1, s.o);
}

__global__ void settle(pending p, uint32_t *arrived) {
    int64_t at = item();
#pragma unroll // no indexed access to parameters, which would move them to local memory
    for (int k = 0; k < PENDING; k++) {
        if (k < p.count && at >= 0 && at < p.items[k])
            settle_one(p.of[k], at, arrived + p.counters[k]);
        at -= p.items[k];
    }
}

}  // namespace

int later(halognn_cuda *c, const sums &s) {
    const uint32_t counters = static_cast<uint32_t>(s.b ? s.o + 1 : 0);
    if (s.b && s.o + 1 > COUNTERS) return cudaErrorInvalidValue;
    pending &p = c->pending;
    if (p.count == PENDING || p.counted + counters > COUNTERS)
        if (int e = halognn_cuda_settle(c)) return e;
    p.of[p.count] = s;
    p.items[p.count] =
        (s.w[0] ? (s.w[1] ? 2 : 1) * s.o * s.f : 0) + (s.b ? s.o * chunks(s.rows) : 0);
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
