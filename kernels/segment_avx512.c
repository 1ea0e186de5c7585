#ifdef __x86_64__
#define LANES 16
#include "cpu/segment.c"
#endif
