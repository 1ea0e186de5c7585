// Sums of gradients are collected, so that one launch computes all sums of a layer.
#pragma once

#include "reduce.cuh"

namespace halognn {

// later adds sums to those that halognn_cuda_settle will compute. The arrays that they read must
// not change until then.
int later(halognn_cuda *c, const sums &s);

}  // namespace halognn
