#ifdef __x86_64__
#define LANES 8
#include "cpu/attention.c"
#endif
