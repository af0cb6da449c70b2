/* The fma order with NEON: 6 rows x 16 columns, lanes over columns. */
#include "../../num.h"
#include "../fetch.h"
#include "neon.h"

#if defined(__aarch64__)

#define INLINE static inline __attribute__((always_inline))

enum { MR = 6, NR = 16 };

INLINE void tile_rows(int64_t k, const float *a, const float *b, float *tile, const int rows) {
  float32x4_t acc[MR][4];
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) acc[i][j] = vld1q_f32(tile + NR * i + 4 * j);
  for (int64_t kk = 0; kk < k; kk++, a += MR, b += NR) {
    float32x4_t y[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) y[j] = vld1q_f32(b + 4 * j);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) acc[i][j] = vfmaq_n_f32(acc[i][j], y[j], a[i]);
  }
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) vst1q_f32(tile + NR * i + 4 * j, acc[i][j]);
}

void dg_fma_6x16_neon(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  (void)cols;
  switch (rows) {
    case 1: tile_rows(k, a, b, tile, 1); break;
    case 2: tile_rows(k, a, b, tile, 2); break;
    case 3: tile_rows(k, a, b, tile, 3); break;
    case 4: tile_rows(k, a, b, tile, 4); break;
    default: tile_rows(k, a, b, tile, MR);
  }
}

/* ---- packing: k by k, `width` binary32 each ---- */

static void pack_f32(const dg_strip *s, int64_t count, int64_t k, float *panel, int width) {
  for (int64_t kk = 0; kk < k; kk++, panel += width) {
    const char *from = s->data + 4 * kk * s->ks;
    for (int64_t i = 0; i < width; i++)
      panel[i] = i < count ? dg_f32_from_bits(dg_load(from + 4 * i * s->is, DG_F32)) : 0.0F;
  }
}

INLINE void pack_words(const dg_strip *s, int64_t count, int64_t k, float *panel, int width,
                       bool half) {
  for (int64_t k0 = 0; k0 < k; k0 += 16) {
    uint16_t buffer[DG_FETCH_BUFFER];
    const dg_words words = dg_words_by_k(s, count, k0, k);
    const dg_lines from = dg_fetch(words, 16, 16, buffer, dg_transpose_16_neon);
    for (int64_t kk = 0; kk < words.count; kk++, panel += width) {
      const uint16_t *x = from.data + kk * from.pitch;
      int i = 0;
      for (; i + 4 <= width; i += 4) vst1q_f32(panel + i, dg_widen_neon(vld1_u16(x + i), half));
      if (i < width) vst1_f32(panel + i, vget_low_f32(dg_widen_neon(vld1_u16(x + i), half)));
    }
  }
}

INLINE void pack(const dg_strip *s, int64_t count, int64_t k, float *panel, int width) {
  if (s->dtype == DG_BF16) pack_words(s, count, k, panel, width, false);
  else if (s->dtype == DG_F16) pack_words(s, count, k, panel, width, true);
  else pack_f32(s, count, k, panel, width);
}

void dg_fma_pack_a6_neon(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  pack(s, count, k, panel, MR);
}
void dg_fma_pack_b16_neon(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  pack(s, count, k, panel, NR);
}

#endif
