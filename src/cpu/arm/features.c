/* Every AArch64 processor has NEON with fused multiply-add. */
#include "../cpu.h"

#if defined(__aarch64__)

unsigned dg_cpu_detect(void) {
#if defined(__AARCH64EB__)
  return 0; /* the kernels count lanes as in little-endian memory */
#else
  return DG_CPU_NEON;
#endif
}

#endif
