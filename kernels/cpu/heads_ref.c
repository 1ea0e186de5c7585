#include "kernels.h"

void head_mean_ref(float *y, int64_t rows, int64_t heads, int64_t width, const float *x) {
    const float share = 1.0f / (float)heads;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++) {
            float sum = 0;
            for (int64_t h = 0; h < heads; h++)
                sum += x[(r * heads + h) * width + j];
            y[r * width + j] = sum * share;
        }
}

void head_mean_backward_ref(float *dx, int64_t rows, int64_t heads, int64_t width,
                            const float *dy) {
    const float share = 1.0f / (float)heads;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < width; j++)
                dx[(r * heads + h) * width + j] = dy[r * width + j] * share;
}

void head_max_ref(float *y, int64_t rows, int64_t heads, int64_t width, const float *x) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++) {
            float most = x[r * heads * width + j];
            for (int64_t h = 1; h < heads; h++) {
                const float v = x[(r * heads + h) * width + j];
                if (most == most && !(v <= most))
                    most = v;
            }
            y[r * width + j] = most;
        }
}

void head_max_backward_ref(float *dx, int64_t rows, int64_t heads, int64_t width, const float *dy,
                           const float *x) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++) {
            int64_t first = 0;
            float most = x[r * heads * width + j];
            for (int64_t h = 1; h < heads; h++) {
                const float v = x[(r * heads + h) * width + j];
                if (most == most && !(v <= most)) {
                    most = v;
                    first = h;
                }
            }
            for (int64_t h = 0; h < heads; h++)
                dx[(r * heads + h) * width + j] = h == first ? dy[r * width + j] : 0;
        }
}
