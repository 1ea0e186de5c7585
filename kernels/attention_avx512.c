#ifdef __x86_64__
#define LANES 16
#include "cpu/attention.c"
#endif
