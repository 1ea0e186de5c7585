#ifdef __x86_64__
#define LANES 8
#include "cpu/batchnorm.c"
#include "cpu/draw.c"
#include "cpu/elu.c"
#include "cpu/gather.c"
#include "cpu/heads.c"
#include "cpu/layernorm.c"
#include "cpu/optim.c"
#include "cpu/relu.c"
#include "cpu/rounding.c"
#include "cpu/rows.c"
#endif
