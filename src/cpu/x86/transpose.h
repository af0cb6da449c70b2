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
