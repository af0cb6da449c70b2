/* Packs the panels of the NEON tc16 kernels. */
#include "../fetch.h"
#include "neon.h"

#if defined(__aarch64__)

#define INLINE static inline __attribute__((always_inline))

enum { NR = 16 };

/* FAST_MAX - e is 0 .. SPAN in the window of the fast way, and as an unsigned byte above it
 * outside. */
enum { TOP = 127 + DG_TC16_FAST_MAX, SPAN = DG_TC16_FAST_MAX - DG_TC16_FAST_MIN };

/* 16 words taken apart. */
typedef struct fields {
  uint8x16_t e;       /* exponent + 127, not below the type's least; 255: infinity or NaN */
  uint8x16_t zero;    /* all ones for a zero */
  uint8x16_t outside; /* not 0 outside the window */
  uint16x8_t fraction[2];
} fields;

INLINE uint8x8_t exponent(uint16x8_t x, bool half) {
  const uint16x8_t magnitude = vshlq_n_u16(x, 1);
  if (!half) return vshrn_n_u16(magnitude, 8);
  const uint8x8_t field = vmovn_u16(vshrq_n_u16(magnitude, 11));
  const uint8x8_t e = vadd_u8(vmax_u8(field, vdup_n_u8(1)), vdup_n_u8(127 - 15));
  return vorr_u8(e, vceq_u8(field, vdup_n_u8(31)));
}

INLINE uint8x8_t is_zero(uint16x8_t x) { return vmovn_u16(vceqzq_u16(vshlq_n_u16(x, 1))); }

INLINE fields take_apart(uint16x8_t x0, uint16x8_t x1, bool half) {
  const uint16x8_t mask = vdupq_n_u16(half ? 0x3ff : 0x7f);
  fields f = {.e = vcombine_u8(exponent(x0, half), exponent(x1, half)),
              .zero = vcombine_u8(is_zero(x0), is_zero(x1)),
              .fraction = {vandq_u16(x0, mask), vandq_u16(x1, mask)}};
  const uint8x16_t beyond = vqsubq_u8(vsubq_u8(vdupq_n_u8(TOP), f.e), vdupq_n_u8(SPAN));
  f.outside = vbicq_u8(beyond, f.zero);
  return f;
}

INLINE void store_values(uint16x8_t x0, uint16x8_t x1, bool half, float *value) {
  vst1q_f32(value, dg_widen_neon(vget_low_u16(x0), half));
  vst1q_f32(value + 4, dg_widen_neon(vget_high_u16(x0), half));
  vst1q_f32(value + 8, dg_widen_neon(vget_low_u16(x1), half));
  vst1q_f32(value + 12, dg_widen_neon(vget_high_u16(x1), half));
}

/* most: the largest sum of a line's 16 fractions. */
INLINE void head(void *panel, uint8x16_t outside, int most, bool half) {
  const int heavy = most > DG_TC16_LIGHT(half ? 10 : 7) ? DG_TC16_HEAVY : 0;
  *(dg_tc16_head *)panel = (dg_tc16_head){.marks = heavy | (vmaxvq_u8(outside) ? DG_TC16_WIDE : 0),
                                          .e_min = half ? -14 : -126};
}

INLINE void pack_b(const dg_strip *s, int64_t count, int64_t k, char *panel, bool half) {
  for (int64_t k0 = 0; k0 < k; k0 += 16, panel += DG_TC16_B_BYTES(NR)) {
    uint16_t buffer[DG_FETCH_BUFFER];
    const dg_lines from =
        dg_fetch(dg_words_by_k(s, count, k0, k), NR, 16, buffer, dg_transpose_16_neon);
    uint8_t *down = (uint8_t *)panel + sizeof(dg_tc16_head);
    float *value = (float *)(void *)(down + 16 * NR);
    uint8x16_t outside = vdupq_n_u8(0);
    uint16x8_t sum0 = vdupq_n_u16(0), sum1 = sum0;
    for (int kk = 0; kk < 16; kk++) {
      const uint16_t *line = from.data + kk * from.pitch;
      const uint16x8_t x0 = vld1q_u16(line), x1 = vld1q_u16(line + 8);
      const fields f = take_apart(x0, x1, half);
      const uint8x16_t d = vsubq_u8(vdupq_n_u8(DG_TC16_DOWN + 127), f.e);
      vst1q_u8(down + NR * kk, vorrq_u8(d, f.zero));
      store_values(x0, x1, half, value + NR * kk);
      outside = vorrq_u8(outside, f.outside);
      sum0 = vaddq_u16(sum0, f.fraction[0]);
      sum1 = vaddq_u16(sum1, f.fraction[1]);
    }
    head(panel, outside, vmaxvq_u16(vmaxq_u16(sum0, sum1)), half);
  }
}

/* Each byte four times. */
INLINE void store_ups(uint8x16_t up, uint32_t *to) {
  const uint8x16_t low = vzip1q_u8(up, up), high = vzip2q_u8(up, up);
  vst1q_u32(to, vreinterpretq_u32_u8(vzip1q_u8(low, low)));
  vst1q_u32(to + 4, vreinterpretq_u32_u8(vzip2q_u8(low, low)));
  vst1q_u32(to + 8, vreinterpretq_u32_u8(vzip1q_u8(high, high)));
  vst1q_u32(to + 12, vreinterpretq_u32_u8(vzip2q_u8(high, high)));
}

INLINE void pack_a(const dg_strip *s, int64_t count, int64_t k, char *panel, int rows, bool half) {
  for (int64_t k0 = 0; k0 < k; k0 += 16, panel += DG_TC16_A_BYTES(rows)) {
    uint16_t buffer[DG_FETCH_BUFFER];
    const dg_lines from =
        dg_fetch(dg_words_by_line(s, count, k0, k), 16, rows, buffer, dg_transpose_16_neon);
    dg_tc16_row *row = (dg_tc16_row *)(void *)(panel + sizeof(dg_tc16_head));
    uint8x16_t outside = vdupq_n_u8(0);
    int most = 0;
    for (int i = 0; i < rows; i++, row++) {
      const uint16_t *line = from.data + i * from.pitch;
      const uint16x8_t x0 = vld1q_u16(line), x1 = vld1q_u16(line + 8);
      const fields f = take_apart(x0, x1, half);
      const int sum = vaddvq_u16(vaddq_u16(f.fraction[0], f.fraction[1]));
      store_ups(vbicq_u8(vaddq_u8(f.e, vdupq_n_u8(DG_TC16_UP - 127)), f.zero), row->up);
      store_values(x0, x1, half, row->value);
      outside = vorrq_u8(outside, f.outside);
      if (sum > most) most = sum;
    }
    head(panel, outside, most, half);
  }
}

void dg_tc16_pack_a8_neon(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  if (s->dtype == DG_F16) pack_a(s, count, k, panel, 8, true);
  else pack_a(s, count, k, panel, 8, false);
}

void dg_tc16_pack_a1_neon(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  if (s->dtype == DG_F16) pack_a(s, count, k, panel, 1, true);
  else pack_a(s, count, k, panel, 1, false);
}

void dg_tc16_pack_b16_neon(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  if (s->dtype == DG_F16) pack_b(s, count, k, panel, true);
  else pack_b(s, count, k, panel, false);
}

#endif
