/* The fast way of the tc16 order with NEON, and the run over all steps: lanes over columns, 16 to a
 * tile, in their natural sequence; see ../tc16.h. */
#include "neon.h"

#if defined(__aarch64__)

#define INLINE static inline __attribute__((always_inline))

enum { MR = 8, NR = 16 };

static bool calm(const float *state, int count) {
  const uint32x4_t least = vdupq_n_u32(DG_TC16_STATE_LEAST);
  const uint32x4_t range = vdupq_n_u32(DG_TC16_STATE_MOST - DG_TC16_STATE_LEAST);
  uint32x4_t yes = vdupq_n_u32(~0u);
  for (int i = 0; i < count; i += 4) {
    const uint32x4_t u =
        vandq_u32(vreinterpretq_u32_f32(vld1q_f32(state + i)), vdupq_n_u32(0x7fffffff));
    yes = vandq_u32(yes, vorrq_u32(vceqzq_u32(u), vcleq_u32(vsubq_u32(u, least), range)));
  }
  return vminvq_u32(yes) != 0;
}

/* The maximum over k of the biased exponents of the products of one row and 16 columns. */
INLINE uint8x16_t top(const uint32_t *up, const uint8_t *down) {
  uint8x16_t x = vdupq_n_u8(DG_TC16_LEAST_X);
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++)
    x = vmaxq_u8(x, vqsubq_u8(vreinterpretq_u8_u32(vdupq_n_u32(up[k])), vld1q_u8(down + NR * k)));
  return x;
}

/* 2^(25-E) for columns 4v to 4v+3, from their bytes of top and the exponents of acc. Both times
 * 2^23. */
INLINE float32x4_t scale(uint8x16_t top, int v, float32x4_t acc) {
  const uint32x4_t first = {0x00ffffff, 0x01ffffff, 0x02ffffff, 0x03ffffff};
  const uint8x16_t pick = vreinterpretq_u8_u32(vaddq_u32(first, vdupq_n_u32((uint32_t)v << 26)));
  const uint32x4_t x = vshrq_n_u32(vreinterpretq_u32_u8(vqtbl1q_u8(top, pick)), 1);
  const uint32x4_t c = vandq_u32(vreinterpretq_u32_f32(acc), vdupq_n_u32(0x7f800000));
  return vreinterpretq_f32_u32(vsubq_u32(vdupq_n_u32(279u << 23), vmaxq_u32(x, c)));
}

/* A term cut toward zero to an integer multiple of the unit. */
INLINE int32x4_t cut(float32x4_t x, float32x4_t scaling) {
  return vcvtq_s32_f32(vmulq_f32(x, scaling));
}

/* sum * 2^(E-25), where scaling is 2^(25-E). */
INLINE float32x4_t finish(int32x4_t sum, float32x4_t scaling) {
  const uint32x4_t unit = vsubq_u32(vdupq_n_u32(254u << 23), vreinterpretq_u32_f32(scaling));
  return vmulq_f32(vcvtq_f32_s32(sum), vreinterpretq_f32_u32(unit));
}

INLINE void row(const float *a, const float *b, uint8x16_t tops, float *state) {
  float32x4_t s[4];
  int32x4_t x[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; v++) {
    const float32x4_t c = vld1q_f32(state + 4 * v);
    s[v] = scale(tops, v, c);
    x[v] = cut(c, s[v]);
  }
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++, b += NR)
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
      x[v] = vaddq_s32(x[v], cut(vmulq_n_f32(vld1q_f32(b + 4 * v), a[k]), s[v]));
#pragma GCC unroll 4
  for (int v = 0; v < 4; v++) vst1q_f32(state + 4 * v, finish(x[v], s[v]));
}

static void fast(const void *a, const void *b, float *state, int rows, int nr) {
  (void)nr;
  const dg_tc16_row *x = dg_tc16_rows(a);
  for (int i = 0; i < rows; i++)
    row(x[i].value, dg_tc16_values(b, NR), top(x[i].up, dg_tc16_down(b)), state + NR * i);
}

/* Rounding toward zero, subnormals kept. The steps are reached by pointers, so no arithmetic can
 * move across the change. */
static void run(int64_t k, const void *a, const void *b, float *tile, int rows,
                const dg_tc16_ways *ways) {
  const uint64_t toward_zero = 3u << 22;
  uint64_t saved;
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
  __asm__ volatile("msr fpcr, %0" : : "r"(toward_zero) : "memory");
  dg_tc16_steps(k, a, b, tile, rows, ways);
  __asm__ volatile("msr fpcr, %0" : : "r"(saved) : "memory");
}

void dg_tc16_8x16_neon(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static const dg_tc16_ways ways = {MR, NR, calm, fast, dg_tc16_wide_neon, NULL};
  (void)cols;
  run(k, a, b, tile, rows, &ways);
}

void dg_tc16_1x16_neon(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static const dg_tc16_ways ways = {1, NR, calm, fast, dg_tc16_wide_neon, NULL};
  (void)cols;
  run(k, a, b, tile, rows, &ways);
}

#endif
