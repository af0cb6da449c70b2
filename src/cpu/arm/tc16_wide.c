/* The NEON tc16 kernels' way that is right for all inputs: vectors of binary64. Runs while the
 * rounding mode is toward zero. */
#include "neon.h"

#if defined(__aarch64__)

#define INLINE static inline __attribute__((always_inline))

/* NEVER is far below any exponent sum, so that zeros never count. */
enum { NEVER = -4096, LEAST_E = -133, MAX_ROWS = 8 };

/* The exponents of 4 finite values, not below e_min; NEVER for zeros. */
INLINE int32x4_t exponents(float32x4_t x, int e_min) {
  const uint32x4_t field = vshrq_n_u32(vshlq_n_u32(vreinterpretq_u32_f32(x), 1), 24);
  const int32x4_t e = vsubq_s32(vreinterpretq_s32_u32(field), vdupq_n_s32(127));
  return vbslq_s32(vceqzq_f32(x), vdupq_n_s32(NEVER), vmaxq_s32(e, vdupq_n_s32(e_min)));
}

/* 16 factors of 4 columns, and of a row. */
typedef struct columns {
  int32x4_t e[16];
  float64x2_t value[16][2];
} columns;
typedef struct factors {
  int32_t e[16];
  double value[16];
} factors;

INLINE void split_columns(const float *b, int nr, int e_min, columns *y) {
  for (int k = 0; k < 16; k++, b += nr) {
    const float32x4_t x = vld1q_f32(b);
    y->e[k] = exponents(x, e_min);
    y->value[k][0] = vcvt_f64_f32(vget_low_f32(x));
    y->value[k][1] = vcvt_high_f64_f32(x);
  }
}

INLINE void split_row(const float *a, int e_min, factors *x) {
  for (int k = 0; k < 16; k += 4) {
    const float32x4_t v = vld1q_f32(a + k);
    vst1q_s32(x->e + k, exponents(v, e_min));
    vst1q_f64(x->value + k, vcvt_f64_f32(vget_low_f32(v)));
    vst1q_f64(x->value + k + 2, vcvt_high_f64_f32(v));
  }
}

/* 2^x for x within binary64's normal exponents. */
INLINE float64x2_t power(int32x2_t x) {
  return vreinterpretq_f64_s64(vshlq_n_s64(vmovl_s32(vadd_s32(x, vdup_n_s32(1023))), 52));
}

/* The binary32 of sum * 2^(e-25). Converting under rounding toward zero cuts to 24 bits or a
 * multiple of 2^-149. */
INLINE float32x2_t round_2(float64x2_t sum, int32x2_t e) {
  const float64x2_t s = vmulq_f64(sum, power(vsub_s32(e, vdup_n_s32(25))));
  const uint32x2_t over = vmovn_u64(vcgeq_f64(vabsq_f64(s), vdupq_n_f64(0x1p128)));
  const uint32x2_t number = vmovn_u64(vceqq_f64(s, s));
  const uint32x2_t bits = vreinterpret_u32_f32(vcvt_f32_f64(s));
  /* -0 becomes +0, not by adding zero, which a compiler told not to care about signed zeros leaves
   * out */
  const uint32x2_t finite = vbic_u32(bits, vceqz_u32(vshl_n_u32(bits, 1)));
  const uint32x2_t infinite =
      vorr_u32(vand_u32(bits, vdup_n_u32(0x80000000)), vdup_n_u32(0x7f800000));
  const uint32x2_t usual = vbsl_u32(over, infinite, finite);
  return vreinterpret_f32_u32(vbsl_u32(number, usual, vdup_n_u32(0x7fc00000)));
}

/* The step for 2 columns, given E. With finite factors all products and their multiples by powers
 * of two are exact in binary64: at least 2^-266, scaled at least 2^-495. The cut terms are integers
 * of at most 27 bits, so their sum is exact too. With infinities or NaN the sum is the infinity or
 * the NaN of the step, and E means nothing. */
INLINE float32x2_t step_2(const factors *x, const columns *y, int half, float32x2_t acc,
                          int32x2_t e) {
  const float64x2_t scale = power(vsub_s32(vdup_n_s32(25), e));
  float64x2_t sum[2] = {vrndq_f64(vmulq_f64(vcvt_f64_f32(acc), scale)), vdupq_n_f64(0)};
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++) {
    const float64x2_t p = vmulq_n_f64(y->value[k][half], x->value[k]);
    sum[k % 2] = vaddq_f64(sum[k % 2], vrndq_f64(vmulq_f64(p, scale)));
  }
  return round_2(vaddq_f64(sum[0], sum[1]), e);
}

INLINE void step_4(const factors *x, const columns *y, float *state) {
  const float32x4_t acc = vld1q_f32(state);
  int32x4_t e = vmaxq_s32(exponents(acc, -126), vdupq_n_s32(LEAST_E));
  for (int k = 0; k < 16; k++) e = vmaxq_s32(e, vaddq_s32(vdupq_n_s32(x->e[k]), y->e[k]));
  const float32x2_t low = step_2(x, y, 0, vget_low_f32(acc), vget_low_s32(e));
  const float32x2_t high = step_2(x, y, 1, vget_high_f32(acc), vget_high_s32(e));
  vst1q_f32(state, vcombine_f32(low, high));
}

void dg_tc16_wide_neon(const void *a, const void *b, float *state, int rows, int nr) {
  const int a_min = ((const dg_tc16_head *)a)->e_min, b_min = ((const dg_tc16_head *)b)->e_min;
  factors x[MAX_ROWS];
  columns y;
  for (int i = 0; i < rows; i++) split_row(dg_tc16_rows(a)[i].value, a_min, &x[i]);
  for (int j = 0; j < nr; j += 4) {
    split_columns(dg_tc16_values(b, nr) + j, nr, b_min, &y);
    for (int i = 0; i < rows; i++) step_4(&x[i], &y, state + i * nr + j);
  }
}

#endif
