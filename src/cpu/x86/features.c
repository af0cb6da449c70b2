/* What this x86 processor and its operating system offer. */
#include "../cpu.h"

#if defined(__x86_64__)

unsigned dg_cpu_detect(void) {
  unsigned features = 0;
  __builtin_cpu_init(); /* also looks at XCR0: whether the system keeps the registers */
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) features |= DG_CPU_AVX2;
  if ((features & DG_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    features |= DG_CPU_AVX512;
  return features;
}

#endif
