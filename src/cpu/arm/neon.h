/* The AArch64 kernels and what they share. Lanes are counted as in little-endian memory. */
#ifndef DETGEMM_NEON_H
#define DETGEMM_NEON_H

#include "../tc16.h"

#if defined(__aarch64__)
#include <arm_neon.h>

dg_tile_fn dg_fma_6x16_neon, dg_tc16_8x16_neon, dg_tc16_1x16_neon;
dg_pack_fn dg_fma_pack_a6_neon, dg_fma_pack_b16_neon;
dg_pack_fn dg_tc16_pack_a8_neon, dg_tc16_pack_a1_neon, dg_tc16_pack_b16_neon;

dg_tc16_way dg_tc16_wide_neon;

/* Transposes 8 lines of 8 words. */
__attribute__((always_inline)) static inline void dg_transpose_8_neon(const uint16_t *from,
                                                                      int64_t from_pitch,
                                                                      uint16_t *to,
                                                                      int64_t to_pitch) {
  uint16x8_t x[8], y[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) x[i] = vld1q_u16(from + i * from_pitch);
#pragma GCC unroll 3
  for (int round = 0; round < 3; round++) { /* a perfect shuffle; three of them transpose */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      y[2 * i] = vzip1q_u16(x[i], x[i + 4]);
      y[2 * i + 1] = vzip2q_u16(x[i], x[i + 4]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = y[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) vst1q_u16(to + i * to_pitch, x[i]);
}

/* Transposes 16 lines of 16 words. */
static inline void dg_transpose_16_neon(const uint16_t *from, int64_t from_pitch, uint16_t *to,
                                        int64_t to_pitch) {
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 16; j += 8)
      dg_transpose_8_neon(from + i * from_pitch + j, from_pitch, to + j * to_pitch + i, to_pitch);
}

/* 4 words as binary32. */
static inline float32x4_t dg_widen_neon(uint16x4_t x, bool half) {
  return half ? vcvt_f32_f16(vreinterpret_f16_u16(x)) : vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}

#endif
#endif
