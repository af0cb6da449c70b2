/* Every AArch64 processor has NEON with fused multiply-add. */
#include "../cpu.h"

#if defined(__aarch64__)

unsigned dg_cpu_detect(void) { return DG_CPU_NEON; }

#endif
