/* The parts of the fast tc16 kernels that are plain C: the choice of the way, and the scalar way.
 */
#include "tc16.h"

#include "../num.h"
#include "../order.h"

/* The factor a panel's binary32 holds; its exponent is not below e_min. */
static dg_tc16_factor factor(float value, int e_min) {
  const uint32_t bits = dg_f32_bits(value);
  const int field = (int)(bits >> 23 & 0xff), sign = bits >> 31 ? -1 : 1;
  const uint32_t fraction = bits & 0x7fffffu;
  if (field == 255) return (dg_tc16_factor){sign, 0, fraction ? DG_NAN : DG_INFINITE};
  if ((bits & 0x7fffffffu) == 0) return (dg_tc16_factor){0, e_min, DG_FINITE};
  const int exponent = (field ? field : 1) - 127, e = exponent < e_min ? e_min : exponent;
  const uint32_t s = fraction | (field ? 0x800000u : 0); /* value s * 2^(exponent - 23) */
  return (dg_tc16_factor){sign * (int32_t)(s >> (13 + e - exponent)), e, DG_FINITE};
}

void dg_tc16_scalar(const void *a, const void *b, float *state, int rows, int nr) {
  const int a_min = ((const dg_tc16_head *)a)->e_min, b_min = ((const dg_tc16_head *)b)->e_min;
  const float *values = dg_tc16_values(b, nr);
  for (int j = 0; j < nr; j++) {
    dg_tc16_factor x[16], y[16];
    for (int k = 0; k < 16; k++) y[k] = factor(values[k * nr + j], b_min);
    for (int i = 0; i < rows; i++) {
      for (int k = 0; k < 16; k++) x[k] = factor(dg_tc16_rows(a)[i].value[k], a_min);
      const uint32_t acc = dg_f32_bits(state[i * nr + j]);
      state[i * nr + j] = dg_f32_from_bits(dg_tc16_step(x, y, acc));
    }
  }
}

void dg_tc16_steps(int64_t k, const void *a, const void *b, float *state,
                   const dg_tc16_ways *ways) {
  const char *x = a, *y = b;
  int fast_steps = 0; /* that the state allows before it must be looked at again */
  for (int64_t k0 = 0; k0 < k; k0 += 16) {
    const int marks = ((const dg_tc16_head *)(const void *)x)->marks +
                      ((const dg_tc16_head *)(const void *)y)->marks;
    if (marks < DG_TC16_WIDE && fast_steps == 0 && ways->calm(state, ways->rows * ways->nr))
      fast_steps = DG_TC16_FAST_STEPS;
    if (marks < DG_TC16_WIDE && fast_steps > 0) {
      ways->fast(x, y, state);
      fast_steps--;
    } else {
      if (marks < DG_TC16_SPECIAL) ways->wide(x, y, state, ways->rows, ways->nr);
      else dg_tc16_scalar(x, y, state, ways->rows, ways->nr);
      fast_steps = 0;
    }
    x += DG_TC16_A_BYTES(ways->rows);
    y += DG_TC16_B_BYTES(ways->nr);
  }
}
