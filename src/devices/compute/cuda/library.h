// The functions of libhalognn_cuda.so, by pointers that halognn_gpu_load sets: the program is linked without the
// library. halognn_cuda_X of the library is gpu_X here.
#include <stddef.h>

#include "halognn_cuda.h"

struct halognn_gpu_functions {
#define FUNCTION(type, name, params, args) type (*name) params;
#include "halognn_cuda.def"
};
extern struct halognn_gpu_functions halognn_gpu;

#define FUNCTION(type, name, params, args) \
    static inline type gpu_##name params { return halognn_gpu.name args; }
#include "halognn_cuda.def"

/* Loads the library and its functions for good. Returns NULL or an error text. */
const char *halognn_gpu_load(const char *path);
/* Number of unfreed objects in the emulated library; -1 for a library that does not count. */
int halognn_gpu_leaks(void);
/* Sets when queued work of the emulated library runs: 0, as late as possible; others, at random. */
void halognn_gpu_emulated_seed(uint64_t seed);
/* Breaks the communicators of a rank that the emulated NCCL has. */
void halognn_gpu_emulated_break(int rank);
/* Makes the next n calls that pin host memory fail in the emulated library. */
void halognn_gpu_emulated_refuse(int n);
/* What has been put on the streams of the emulated library since the last call, a line "NAME COUNT"
 * each; NULL for a library that does not count. */
const char *halognn_gpu_emulated_launches(void);
