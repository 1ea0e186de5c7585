// The functions of libhalognn_cuda.so, as pointers that halognn_gpu_load sets, so that the program
// is linked without the library. The function halognn_cuda_X of the library is called gpu_X here.
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

/* Loads the library and its functions, which stay loaded. Returns NULL, or an error text if it
   fails. */
const char *halognn_gpu_load(const char *path);
/* Number of objects in the emulated library that have not been freed; -1 for a library that does
   not count them. */
int halognn_gpu_leaks(void);
/* Sets when the emulated library runs queued work: with 0 as late as possible, with another seed at
   random times. */
void halognn_gpu_emulated_seed(uint64_t seed);
/* Makes the communicators of a rank fail in the emulated NCCL. */
void halognn_gpu_emulated_break(int rank);
/* Makes the next n calls that pin host memory fail in the emulated library. */
void halognn_gpu_emulated_refuse(int n);
/* Work that was put on the streams of the emulated library since the last call, in lines "NAME
 * COUNT". NULL for a library that does not count it. */
const char *halognn_gpu_emulated_launches(void);
