/* The tc16 order: the Hopper tensor core's step, laid out like docs/orders.md. Integers only. */
#include "num.h"
#include "order.h"

/* Terms are cut to multiples of 2^(E - GUARD); E is never below LEAST_E. */
enum { GUARD = 25, LEAST_E = -133 };

dg_tc16_factor dg_tc16_decode(uint16_t bits, int dtype) {
  const int fraction = dtype == DG_BF16 ? 7 : 10;
  const int bias = dtype == DG_BF16 ? 127 : 15;
  const int field = (bits & 0x7fff) >> fraction, top = 2 * bias + 1;
  const int mantissa = bits & ((1 << fraction) - 1);
  const int sign = bits & 0x8000 ? -1 : 1;
  dg_tc16_factor x = {0, 0, DG_FINITE};

  if (field == top) {
    x.s = sign;
    x.kind = mantissa ? DG_NAN : DG_INFINITE;
  } else {
    x.s = sign * ((field ? mantissa + (1 << fraction) : mantissa) * (1 << (10 - fraction)));
    x.e = (field ? field : 1) - bias;
  }
  return x;
}

/* A term s * 2^q in units of 2^unit, cut toward zero. q is at most 11 above unit. */
static int64_t cut(int64_t s, int q, int unit) {
  const int shift = q - unit;
  if (s == 0) return 0; /* a zero's exponent means nothing */
  if (shift >= 0) return s * ((int64_t)1 << shift);
  if (shift < -32) return 0;
  return s / ((int64_t)1 << -shift); /* C division cuts toward zero */
}

/* The binary32 of sum * 2^unit, cut toward zero to 24 significant bits. */
static uint32_t encode(int64_t sum, int unit) {
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  uint64_t s = (uint64_t)(sum < 0 ? -sum : sum);

  while (s >> 24) s >>= 1, unit++;
  while (unit < -149 && s) s >>= 1, unit++;
  if (s == 0) return 0; /* +0, whatever the sign was */
  while (!(s >> 23) && unit > -149) s <<= 1, unit--;
  if (unit + 23 > 127) return sign | 0x7f800000u;
  const uint32_t field = s >> 23 ? (uint32_t)(unit + 23 + 127) : 0;
  return sign | field << 23 | ((uint32_t)s & 0x7fffffu);
}

/* Step 1: the result if a NaN or an infinity takes part. Returns whether one does. */
static int special(const dg_tc16_factor a[16], const dg_tc16_factor b[16], uint32_t acc,
                   uint32_t *result) {
  const int acc_infinite = (acc & 0x7fffffffu) == 0x7f800000u;
  int nan = (acc & 0x7fffffffu) > 0x7f800000u;
  int plus = acc_infinite && !(acc >> 31), minus = acc_infinite && acc >> 31;

  for (int k = 0; k < 16; k++) {
    if (a[k].kind == DG_FINITE && b[k].kind == DG_FINITE) continue;
    /* a NaN, or infinity times zero (whose s is 0) */
    if (a[k].kind == DG_NAN || b[k].kind == DG_NAN || a[k].s == 0 || b[k].s == 0) nan = 1;
    else if ((a[k].s < 0) == (b[k].s < 0)) plus = 1;
    else minus = 1;
  }
  if (nan || (plus && minus)) *result = DG_NAN_F32;
  else *result = minus ? 0xff800000u : 0x7f800000u;
  return nan || plus || minus;
}

uint32_t dg_tc16_step(const dg_tc16_factor a[16], const dg_tc16_factor b[16], uint32_t acc) {
  uint32_t result;
  if (special(a, b, acc, &result)) return result;

  const int field = (int)(acc >> 23 & 0xff);
  const int acc_e = (field ? field : 1) - 127;
  int64_t acc_s = (int64_t)(acc & 0x7fffffu) | (field ? 0x800000 : 0);
  if (acc >> 31) acc_s = -acc_s;

  int e = LEAST_E;
  for (int k = 0; k < 16; k++)
    if (a[k].s && b[k].s && a[k].e + b[k].e > e) e = a[k].e + b[k].e;
  if (acc_s && acc_e > e) e = acc_e;

  int64_t sum = cut(acc_s, acc_e - 23, e - GUARD);
  for (int k = 0; k < 16; k++)
    sum += cut((int64_t)a[k].s * b[k].s, a[k].e + b[k].e - 20, e - GUARD);
  return encode(sum, e - GUARD);
}
