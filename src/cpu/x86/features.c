/* What this x86 processor and its operating system offer. */
#include "../cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* clang 14's __builtin_cpu_supports does not know it. */
static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

unsigned dg_cpu_detect(void) {
  unsigned features = 0;
  __builtin_cpu_init(); /* also looks at XCR0: whether the system keeps the registers */
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
    features |= DG_CPU_AVX2;
  if ((features & DG_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    features |= DG_CPU_AVX512;
  return features;
}

#endif
