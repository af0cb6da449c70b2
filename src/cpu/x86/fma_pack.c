/* Packs the panels of the x86 fma kernels: any element type, widened exactly to binary32. */
#include <string.h>

#include "../../num.h"
#include "fma.h"
#include "transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) AVX2

enum { GROUP = 8, UNIT = 32 }; /* lines at a time, and bytes of each */

INLINE __m256 widen(__m128i x, const int dtype) {
  return dtype == DG_F16 ? _mm256_cvtph_ps(x)
                         : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* ---- lines that lie side by side ---- */

INLINE __m256 load_8(const char *p, const int dtype) {
  return dtype == DG_F32 ? _mm256_loadu_ps((const void *)p)
                         : widen(_mm_loadu_si128((const void *)p), dtype);
}

/* The first count < 8 elements, then zeros; nothing past them is read. */
INLINE __m256 load_part(const char *p, int count, const int dtype) {
  if (dtype == DG_F32) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps((const void *)p, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
  }
  uint64_t low = 0, rest = 0;
  uint32_t pair = 0;
  uint16_t one = 0;
  if (count & 4) memcpy(&low, p, 8);
  if (count & 2) memcpy(&pair, p + 2 * (count & 4), 4);
  if (count & 1) memcpy(&one, p + 2 * (count & 6), 2);
  rest = (uint64_t)one << (count & 2 ? 32 : 0) | pair;
  return widen(
      count & 4 ? _mm_set_epi64x((int64_t)rest, (int64_t)low) : _mm_set_epi64x(0, (int64_t)rest),
      dtype);
}

INLINE void pack_columns(const dg_strip *s, int64_t count, int64_t k, float *to, const int width,
                         const int dtype) {
  const int64_t size = dg_dtype_bytes(dtype), whole = count / GROUP;
  const char *from = s->data;
  for (; k > 0; k--, from += size * s->ks, to += width)
#pragma GCC unroll 8
    for (int64_t g = 0; g < width / GROUP; g++) {
      const char *p = from + size * GROUP * g;
      const __m256 x = g < whole ? load_8(p, dtype)
                       : g == whole && (int)count % GROUP != 0
                           ? load_part(p, (int)count % GROUP, dtype)
                           : _mm256_setzero_ps();
      _mm256_storeu_ps(to + GROUP * g, x);
    }
}

/* ---- lines whose k lie side by side ---- */

/* A unit of 8 lines, k by k. A word holds one F32, or two neighbours in k. */
INLINE void store_unit(const char *const line[GROUP], float *to, const int pitch, const int dtype) {
  __m256 x[8];
  dg_transpose_avx2(line, x);
#pragma GCC unroll 8
  for (int w = 0; w < 8; w++) {
    if (dtype == DG_F32) {
      _mm256_storeu_ps(to + pitch * w, x[w]);
      continue;
    }
    __m256 y[2];
    dg_split_avx2(x[w], y, dtype == DG_F16);
    _mm256_storeu_ps(to + pitch * 2 * w, y[0]);
    _mm256_storeu_ps(to + pitch * (2 * w + 1), y[1]);
  }
}

INLINE void pack_rows(const dg_strip *s, int64_t count, int64_t k, float *panel, const int width,
                      const int dtype) {
  static const char zeros[UNIT];
  const int64_t size = dg_dtype_bytes(dtype), step = UNIT / size, tail = k % step;
  for (int64_t g = 0; g < width; g += GROUP) {
    const char *line[GROUP];
    int64_t pace[GROUP]; /* lines past the edge stay at the zeros */
    float *to = panel + g;
    for (int64_t i = 0; i < GROUP; i++) {
      line[i] = g + i < count ? s->data + size * (g + i) * s->is : zeros;
      pace[i] = g + i < count ? UNIT : 0;
    }
    for (int64_t k0 = 0; k0 + step <= k; k0 += step, to += step * width) {
      store_unit(line, to, width, dtype);
      for (int i = 0; i < GROUP; i++) line[i] += pace[i];
    }
    if (tail == 0) continue;
    char end[GROUP][UNIT];
    float block[UNIT / 2 * GROUP];
    for (int i = 0; i < GROUP; i++) {
      memset(end[i], 0, UNIT);
      if (pace[i]) memcpy(end[i], line[i], (size_t)(tail * size));
      line[i] = end[i];
    }
    store_unit(line, block, GROUP, dtype);
    for (int64_t i = 0; i < tail; i++)
      memcpy(to + i * width, block + i * GROUP, GROUP * sizeof(float));
  }
}

/* ---- any strides ---- */

INLINE void pack_scattered(const dg_strip *s, int64_t count, int64_t k, float *to, const int width,
                           const int dtype) {
  const int64_t size = dg_dtype_bytes(dtype);
  for (int64_t i = 0; i < width; i++) {
    const char *line = s->data + (i < count ? size * i * s->is : 0);
    for (int64_t kk = 0; kk < k; kk++)
      to[kk * width + i] =
          i < count ? dg_f32_from_bits(dg_load(line + size * kk * s->ks, dtype)) : 0.0F;
  }
}

INLINE void pack_as(const dg_strip *s, int64_t count, int64_t k, void *panel, const int width,
                    const int dtype) {
  if (s->is == 1) pack_columns(s, count, k, panel, width, dtype);
  else if (s->ks == 1) pack_rows(s, count, k, panel, width, dtype);
  else pack_scattered(s, count, k, panel, width, dtype);
}

#define PACK(width, pack)                                                                          \
  AVX2 void dg_fma_pack_##width##_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel) { \
    switch (s->dtype) {                                                                            \
      case DG_BF16: pack(s, count, k, panel, width, DG_BF16); return;                              \
      case DG_F16: pack(s, count, k, panel, width, DG_F16); return;                                \
      default: pack(s, count, k, panel, width, DG_F32);                                            \
    }                                                                                              \
  }
PACK(1, pack_scattered)
PACK(4, pack_scattered)
PACK(8, pack_as)
PACK(16, pack_as)
PACK(32, pack_as)
PACK(64, pack_as)

#endif
