/* Floating-point environments that a caller may have set: the results must not depend on them. */
#include <fenv.h>

#include "verify.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const int modes[] = {FE_TONEAREST,
#ifdef FE_UPWARD
                            FE_UPWARD,
#endif
#ifdef FE_DOWNWARD
                            FE_DOWNWARD,
#endif
#ifdef FE_TOWARDZERO
                            FE_TOWARDZERO
#endif
};
enum { MODES = sizeof modes / sizeof modes[0] };

static void flush_subnormals(void) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
#elif defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | UINT64_C(1) << 24));
#endif
}

bool hostile_set(int i) {
  if (i >= 2 * MODES) return false;
  fesetround(modes[i % MODES]);
  if (i >= MODES) flush_subnormals();
  return true;
}

void hostile_reset(void) { fesetenv(FE_DFL_ENV); }
