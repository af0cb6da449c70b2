/* Architectures without kernels of their own. */
#include "cpu.h"

#if !defined(__x86_64__) && !defined(__aarch64__)

unsigned dg_cpu_detect(void) { return 0; }

#endif
