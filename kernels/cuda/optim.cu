// Optimisers. All parameters of a model are in one array, so an update takes one kernel.
#include "context.cuh"

namespace halognn {
namespace {

struct adam_coefficients {
    float l2, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step, root, eps;
};

// allows reports whether the update may be made. If not, only the first thread writes that it was
// skipped. Other threads find the same answer in the loss.
__device__ inline bool allows(const halognn_cuda_bound &within) {
    if (within.loss == nullptr) return true;
    const float loss = *within.loss;
    if (static_cast<double>(loss) <= within.limit && loss - loss == 0) return *within.skipped == 0;
    if (item() == 0) *within.skipped = 1;
    return false;
}

__global__ void adam_kernel(float *p, float *m, float *v, int64_t n, const float *g,
                            adam_coefficients a, halognn_cuda_bound within) {
    const int64_t i = item();
    if (i >= n || !allows(within)) return;
    const float grad = g[i] + a.l2 * p[i];
    const float m1 = a.beta1 * m[i] + a.one_minus_beta1 * grad;
    const float v1 = a.beta2 * v[i] + a.one_minus_beta2 * grad * grad;
    m[i] = m1;
    v[i] = v1;
    p[i] = a.decay * p[i] - a.step * m1 / (sqrtf(v1) * a.root + a.eps);
}

__global__ void sgd_kernel(float *p, float *buf, int64_t n, const float *g, float l2,
                           float momentum, float lr, bool first, halognn_cuda_bound within) {
    const int64_t i = item();
    if (i >= n || !allows(within)) return;
    float grad = g[i] + l2 * p[i];
    if (!first) grad += momentum * buf[i];
    buf[i] = grad;
    p[i] -= lr * grad;
}

}  // namespace
}  // namespace halognn

using namespace halognn;

extern "C" {

int halognn_cuda_adam(halognn_cuda *c, float *p, float *m, float *v, int64_t n, const float *g,
                      float l2, float decay, float beta1, float one_minus_beta1, float beta2,
                      float one_minus_beta2, float step, float root, float eps,
                      halognn_cuda_bound within) {
    const adam_coefficients a{l2,   decay, beta1, one_minus_beta1, beta2, one_minus_beta2,
                              step, root,  eps};
    return n ? LAUNCH(c, adam_kernel, blocks(n), p, m, v, n, g, a, within) : 0;
}

int halognn_cuda_sgd(halognn_cuda *c, float *p, float *buf, int64_t n, const float *g, float l2,
                     float momentum, float lr, int first, halognn_cuda_bound within) {
    return n ? LAUNCH(c, sgd_kernel, blocks(n), p, buf, n, g, l2, momentum, lr, first != 0, within)
             : 0;
}

}  // extern "C"
