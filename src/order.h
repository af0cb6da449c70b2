/* What the bits are: one step of each order, the definition every kernel is compared with. */
#ifndef DETGEMM_ORDER_H
#define DETGEMM_ORDER_H

#include "problem.h"

/* A factor of the tc16 order: sign and integer significand in s, of value s * 2^(e - 10). A BF16's
 * 8-bit significand is held shifted by 3, so that both input types share this scale. */
typedef struct dg_tc16_factor {
  int32_t s; /* -2047 .. 2047; 0 for a zero */
  int32_t e; /* never normalised: a subnormal has the least normal exponent */
  enum { DG_FINITE, DG_INFINITE, DG_NAN } kind; /* infinite: s is +1 or -1 */
} dg_tc16_factor;

/* fma: acc = fma(a, b, acc), all as binary32 values, in the default floating-point environment. */
float dg_fma_step(float a, float b, float acc);

/* tc16: decodes the 16 bits of a BF16 or F16. */
dg_tc16_factor dg_tc16_decode(uint16_t bits, int dtype);

/* tc16: acc, as binary32 bits, plus 16 products. Integer arithmetic only. */
uint32_t dg_tc16_step(const dg_tc16_factor a[16], const dg_tc16_factor b[16], uint32_t acc);

/* The whole product by these steps, one element at a time. */
void dg_reference_run(const dg_problem *p);

#endif
