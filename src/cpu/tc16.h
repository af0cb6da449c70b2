/* What the fast tc16 kernels share: the panels, and which way a step may be computed.
 *
 * A panel is a sequence of steps of 16 k. A step of A is a head and, per row, 16 exponents (each
 * four times in a 32-bit word, to be broadcast) and 16 values as binary32. A step of B of width nr
 * is a head, 16 x nr exponents and 16 x nr values; its columns may be permuted ("slots").
 *
 * Two ways:
 *   fast    vectors of binary32; all factors zero or with exponents FAST_MIN..FAST_MAX
 *   wide    vectors of binary64; everything, infinities and NaN included
 *
 * The exponent bytes of the fast way. An exponent e of A is held as up = e + 191 (zero: 0), one of
 * B as down = 64 - e (zero: 255). In the window up is 141..248 and down 7..114, so the saturating
 * difference up - down is e_a + e_b + 127 > 0 for a non-zero product and 0 for a zero one: the
 * biased exponent of the product, whose maximum over k is taken bytewise. */
#ifndef DETGEMM_TC16_H
#define DETGEMM_TC16_H

#include "cpu.h"

enum {
  DG_TC16_FAST_MIN = -50,
  DG_TC16_FAST_MAX = 57,
  DG_TC16_UP = 191,
  DG_TC16_DOWN = 64,
  /* Marks of a step, added for the two operands: below WIDE the way is fast. A heavy line has
   * mantissas so large that the integer sum could leave 32 bits if the other line is heavy too. */
  DG_TC16_HEAVY = 1,
  DG_TC16_WIDE = 2
};

typedef struct dg_tc16_head {
  int32_t marks;
  int32_t e_min; /* the least exponent of the type, where significands are not normalised */
  int32_t unused[14];
} dg_tc16_head;

typedef struct dg_tc16_row {
  uint32_t up[16];
  float value[16];
} dg_tc16_row;

#define DG_TC16_A_BYTES(mr) ((int)(sizeof(dg_tc16_head) + (mr) * sizeof(dg_tc16_row)))
#define DG_TC16_B_BYTES(nr) ((int)sizeof(dg_tc16_head) + 16 * 5 * (nr))

static inline const dg_tc16_row *dg_tc16_rows(const void *a) {
  return (const dg_tc16_row *)((const dg_tc16_head *)a + 1);
}
static inline const uint8_t *dg_tc16_down(const void *b) {
  return (const uint8_t *)((const dg_tc16_head *)b + 1);
}
static inline const float *dg_tc16_values(const void *b, int nr) {
  return (const float *)(const void *)(dg_tc16_down(b) + 16 * nr);
}

/* A mantissa sum of a line above this is heavy: see DG_TC16_FAST_STEPS. */
#define DG_TC16_LIGHT(fraction_bits) (15 << (fraction_bits))

/* Why the fast way is right. Write X = E + 127, unit = 2^(E-25), rounding toward zero throughout.
 *
 * State before: each acc is zero or a multiple of 2^-126, and |acc| <= 2^126. A step adds less than
 * 16 * 2^(57+57+2) = 2^120, so after FAST_STEPS = 64 steps |acc| < 2^127: nothing overflows, E <=
 * 126. E is never below -101: a non-zero product has E >= -100, and with zero products only,
 * cutting at 2^(-101-25) leaves a multiple of 2^-126 as it is. So E := max(E, -101) changes
 * nothing, results are multiples of 2^-126 again, none is subnormal, and 2^(25-E), 2^(E-25) are
 * normal. Terms: a product of two factors is exact in binary32 (22 bits, at least 2^-100). Times
 * 2^(25-E) it is exact, or smaller than 1 and cut to 0 by the conversion. acc * 2^(25-E) likewise.
 * Sum: terms are |p| <= m_a m_b 2^25 with mantissas m < 2, so 16 of them stay below 2^31 (BF16:
 * 255^2 2^11 16 = 2130739200; F16: 2047^2 2^5 16 = 2145387008). The acc's term is below 2^26. The
 * whole leaves 32 bits only if the sum of m_a m_b is above 62, so the sums of both the m_a and the
 * m_b are above 31, the sums of the fractions above 15: both lines heavy, and that is not fast.
 * Result: the conversion to binary32 cuts to 24 bits, the power of two is exact; a sum of 0 is +0.
 */
enum { DG_TC16_FAST_STEPS = 64, DG_TC16_LEAST_X = 127 - 101 };
#define DG_TC16_STATE_LEAST 0x0c000000u /* bits of 2^-103: multiples of 2^-126 from here on */
#define DG_TC16_STATE_MOST 0x7e800000u  /* bits of 2^126 */

/* One step of the first rows of a state of nr columns. */
typedef void dg_tc16_way(const void *a, const void *b, float *state, int rows, int nr);
typedef struct dg_tc16_ways {
  int mr, nr;
  bool (*calm)(const float *state, int count); /* whether the state allows FAST_STEPS fast steps */
  dg_tc16_way *fast, *wide;
  /* All steps of a row-major tile from BF16 columns where they lie. Or NULL. */
  void (*pairs)(int64_t k, const void *a, const dg_strip *b, float *tile, int rows,
                const struct dg_tc16_ways *ways);
} dg_tc16_ways;

/* Runs the steps of two panels, each in the fastest way that is right for it. */
void dg_tc16_steps(int64_t k, const void *a, const void *b, float *state, int rows,
                   const dg_tc16_ways *ways);

#endif
