/* Turning 8 lines of 8 words in registers. */
#ifndef DETGEMM_X86_TRANSPOSE_H
#define DETGEMM_X86_TRANSPOSE_H

#if defined(__x86_64__)
#include <immintrin.h>

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

#endif
#endif
