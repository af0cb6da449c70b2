/* Architectures without kernels of their own. */
#include "cpu.h"

unsigned dg_cpu_detect(void) { return 0; }
