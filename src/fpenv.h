/* The floating-point environment the orders are defined in: round to nearest even, subnormals
 * kept, no traps. Set on entry in every thread that computes, restored on leaving. */
#ifndef DETGEMM_FPENV_H
#define DETGEMM_FPENV_H

#if defined(__x86_64__) || defined(__SSE2__)
#include <immintrin.h>

typedef unsigned int dg_fpenv;

static inline dg_fpenv dg_fpenv_enter(void) {
  dg_fpenv saved = _mm_getcsr();
  _mm_setcsr(0x1f80); /* all exceptions masked, nearest, no flush-to-zero, no denormals-are-zero */
  return saved;
}
static inline void dg_fpenv_leave(dg_fpenv saved) { _mm_setcsr(saved); }

#elif defined(__aarch64__)
#include <stdint.h>

typedef struct dg_fpenv {
  uint64_t control, flags;
} dg_fpenv;

static inline dg_fpenv dg_fpenv_enter(void) {
  dg_fpenv saved;
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved.control));
  __asm__ volatile("mrs %0, fpsr" : "=r"(saved.flags));
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
  return saved;
}
static inline void dg_fpenv_leave(dg_fpenv saved) {
  __asm__ volatile("msr fpcr, %0" : : "r"(saved.control));
  __asm__ volatile("msr fpsr, %0" : : "r"(saved.flags));
}

#else
#include <fenv.h>

typedef fenv_t dg_fpenv;

static inline dg_fpenv dg_fpenv_enter(void) {
  fenv_t saved;
  feholdexcept(&saved);
  fesetround(FE_TONEAREST);
  return saved;
}
static inline void dg_fpenv_leave(dg_fpenv saved) { fesetenv(&saved); }
#endif

#endif
