/* Turning 8 lines of 8 words, or 16 of 16, in registers. */
#ifndef DETGEMM_X86_TRANSPOSE_H
#define DETGEMM_X86_TRANSPOSE_H

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

__attribute__((target("avx2"), always_inline)) static inline __m256 dg_two_halves_avx2(
    const char *p, const char *q) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const void *)p)),
                              _mm_loadu_ps((const void *)q), 1);
}

/* x[w] gets word w of every line. */
__attribute__((target("avx2"), always_inline)) static inline void dg_transpose_avx2(
    const char *const line[8], __m256 x[8]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++) {
    __m256 y[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) y[i] = dg_two_halves_avx2(line[i] + 16 * h, line[i + 4] + 16 * h);
    const __m256 a = _mm256_unpacklo_ps(y[0], y[1]), b = _mm256_unpackhi_ps(y[0], y[1]);
    const __m256 c = _mm256_unpacklo_ps(y[2], y[3]), d = _mm256_unpackhi_ps(y[2], y[3]);
    x[4 * h] = _mm256_shuffle_ps(a, c, 0x44);
    x[4 * h + 1] = _mm256_shuffle_ps(a, c, 0xee);
    x[4 * h + 2] = _mm256_shuffle_ps(b, d, 0x44);
    x[4 * h + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
}

/* 8 pairs of neighbours: the first of each in y[0], the second in y[1], as binary32. */
__attribute__((target("avx2,f16c"), always_inline)) static inline void dg_split_avx2(
    __m256 x, __m256 y[2], const int half) {
  const __m256i pairs = _mm256_castps_si256(x), high = _mm256_set1_epi32((int)0xffff0000u);
  if (!half) {
    y[0] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    y[1] = _mm256_castsi256_ps(_mm256_and_si256(pairs, high));
    return;
  }
  const __m256i split =
      _mm256_packus_epi32(_mm256_andnot_si256(high, pairs), _mm256_srli_epi32(pairs, 16));
  const __m256i both = _mm256_permute4x64_epi64(split, 0xd8);
  y[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(both));
  y[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(both, 1));
}

#define DG_AVX512 __attribute__((target("avx512f"), always_inline)) static inline

/* Each quarter of x[4 q + r] becomes quarter q of x[4 i + r]; i counts the quarters. */
DG_AVX512 void dg_turn_quarters_avx512(__m512 *x0, __m512 *x1, __m512 *x2, __m512 *x3) {
  const __m512 a = _mm512_shuffle_f32x4(*x0, *x1, 0x44), b = _mm512_shuffle_f32x4(*x0, *x1, 0xee);
  const __m512 c = _mm512_shuffle_f32x4(*x2, *x3, 0x44), d = _mm512_shuffle_f32x4(*x2, *x3, 0xee);
  *x0 = _mm512_shuffle_f32x4(a, c, 0x88);
  *x1 = _mm512_shuffle_f32x4(a, c, 0xdd);
  *x2 = _mm512_shuffle_f32x4(b, d, 0x88);
  *x3 = _mm512_shuffle_f32x4(b, d, 0xdd);
}

/* 16 lines of 16 words: x[w] gets word w of every line. Every line is read once and whole: lines a
 * large power of two apart share a few places in the first cache. */
DG_AVX512 void dg_transpose_avx512(const char *p, int64_t pitch, __m512 x[16]) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; q++) { /* 4 x 4 words within each quarter of 4 lines */
    const char *from = p + 4 * q * pitch;
    const __m512 y0 = _mm512_loadu_ps((const void *)from),
                 y1 = _mm512_loadu_ps((const void *)(from + pitch));
    const __m512 y2 = _mm512_loadu_ps((const void *)(from + 2 * pitch)),
                 y3 = _mm512_loadu_ps((const void *)(from + 3 * pitch));
    const __m512 a = _mm512_unpacklo_ps(y0, y1), b = _mm512_unpackhi_ps(y0, y1);
    const __m512 d = _mm512_unpacklo_ps(y2, y3), e = _mm512_unpackhi_ps(y2, y3);
    x[4 * q] = _mm512_shuffle_ps(a, d, 0x44);
    x[4 * q + 1] = _mm512_shuffle_ps(a, d, 0xee);
    x[4 * q + 2] = _mm512_shuffle_ps(b, e, 0x44);
    x[4 * q + 3] = _mm512_shuffle_ps(b, e, 0xee);
  }
#pragma GCC unroll 4
  for (int r = 0; r < 4; r++) dg_turn_quarters_avx512(&x[r], &x[4 + r], &x[8 + r], &x[12 + r]);
}

#undef DG_AVX512

#endif
#endif
