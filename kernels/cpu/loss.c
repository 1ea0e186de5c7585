#include <math.h>
#include <stddef.h>

#include "halognn_cpu.h"

/*
 * Let m be the largest logit. It uses e_j = exp(z_j - m) <= 1, so nothing overflows. The gradient
 * of the label's logit is p - 1. It is computed as minus the sum of the other probabilities, which
 * stays precise if p is close to 1.
 */
static double softmax_row(float *dlogits, int64_t cols, const float *z, int32_t label, double scale,
                          int *correct) {
    int64_t top = 0;
    double sum = 0, others = 0;
    for (int64_t j = 1; j < cols; j++)
        top = z[j] > z[top] ? j : top;
    const double max = z[top];
    for (int64_t j = 0; j < cols; j++) {
        const double e = exp(z[j] - max);
        sum += e;
        others += j == label ? 0 : e;
        if (dlogits != NULL)
            dlogits[j] = (float)e;
    }
    if (dlogits != NULL) {
        for (int64_t j = 0; j < cols; j++)
            dlogits[j] = (float)(dlogits[j] / sum * scale);
        dlogits[label] = (float)(-others / sum * scale);
    }
    *correct = top == label;
    return log(sum) + max - z[label];
}

double halognn_softmax_ce(float *dlogits, int64_t rows, int64_t cols, const float *logits,
                          const int32_t *labels, float scale, int64_t *correct) {
    double loss = 0;
    *correct = 0;
    for (int64_t r = 0; r < rows; r++) {
        int hit;
        float *row = dlogits == NULL ? NULL : dlogits + r * cols;
        loss += softmax_row(row, cols, logits + r * cols, labels[r], scale, &hit);
        *correct += hit;
    }
    return loss;
}

/* loss = max(z,0) - z*t + log(1 + exp(-|z|)). Its derivative is sigmoid(z) - t. exp(-|z|) <= 1, so
 * nothing overflows. */
double halognn_sigmoid_bce(float *dlogits, int64_t n, const float *logits, const uint8_t *targets,
                           float scale, int64_t counts[3]) {
    double loss = 0;
    counts[0] = counts[1] = counts[2] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double z = logits[i], e = exp(-fabs(z));
        const int t = targets[i], positive = z > 0;
        loss += (z > 0 ? z : z < 0 ? 0 : z) - z * t + log1p(e);
        /* For either t, sigmoid(z) - t is computed without subtracting nearly equal numbers. */
        if (dlogits != NULL)
            dlogits[i] = (float)((t ? -(positive ? e : 1) : positive ? 1 : e) / (1 + e) * scale);
        counts[0] += positive && t;
        counts[1] += positive && !t;
        counts[2] += !positive && t;
    }
    return loss;
}
