// Sums of gradients that wait, so that one launch makes all those of a layer.
#pragma once

#include "reduce.cuh"

namespace halognn {

// later leaves sums to halognn_cuda_settle. What they read must not change until then.
int later(halognn_cuda *c, const sums &s);

}  // namespace halognn
