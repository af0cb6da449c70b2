/* The one rounding, eight elements at a time; bit for bit that of num.h. */
#include "../../num.h"
#include "fma.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) AVX2

/* 8 BF16: nearest, ties to even, on the bits. */
INLINE __m128i bf16(__m256 x, __m256i nan) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(u, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
  const __m256i h =
      _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), _mm256_set1_epi32(DG_NAN_BF16), nan);
  const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, h), 0xd8);
  return _mm256_castsi256_si128(both);
}

INLINE __m128i f16(__m256 x, __m256i nan) {
  const __m256i both =
      _mm256_permute4x64_epi64(_mm256_packs_epi32(nan, nan), 0xd8); /* 16 bits for each lane */
  return _mm_blendv_epi8(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                         _mm_set1_epi16(DG_NAN_F16), _mm256_castsi256_si128(both));
}

AVX2 void dg_round_avx2(const float *x, const float *bias, int64_t count, int dtype, void *out) {
  const int64_t size = dg_dtype_bytes(dtype);
  char *to = out;
  int64_t j = 0;
  for (; j + 8 <= count; j += 8, to += 8 * size) {
    __m256 y = _mm256_loadu_ps(x + j);
    if (bias) y = _mm256_add_ps(y, _mm256_loadu_ps(bias + j));
    const __m256 unordered = _mm256_cmp_ps(y, y, _CMP_UNORD_Q);
    const __m256i nan = _mm256_castps_si256(unordered);
    if (dtype == DG_BF16) _mm_storeu_si128((void *)to, bf16(y, nan));
    else if (dtype == DG_F16) _mm_storeu_si128((void *)to, f16(y, nan));
    else
      _mm256_storeu_ps(
          (void *)to,
          _mm256_blendv_ps(y, _mm256_castsi256_ps(_mm256_set1_epi32(DG_NAN_F32)), unordered));
  }
  dg_round_generic(x + j, bias ? bias + j : NULL, count - j, dtype, to);
}

#endif
