#ifdef __x86_64__
#define LANES 16
#include "cpu/products.c"
#endif
