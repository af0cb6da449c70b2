/* The run over all steps, and the way for all finite factors: vectors of binary64. */
#include "tc16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) AVX2

enum {
  MAX_TILE = 8 * 64,
  /* Exceptions masked, rounding toward zero. The fast way flushes what is below 2^-126 (only terms
   * that are cut to 0 are): some processors take long over them. The wide way keeps it. */
  FAST_MODE = 0xff80,
  WIDE_MODE = 0x7f80
};

/* Between a row-major tile and the same values in slots. */
AVX2 static void to_slots(const float *tile, float *state, int rows, int groups) {
  for (int i = 0; i < rows; i++)
    for (int g = 0; g < groups; g++, tile += 32)
      for (int v = 0; v < 4; v += 2) {
        const __m256 x = _mm256_loadu_ps(tile + 8 * v), y = _mm256_loadu_ps(tile + 8 * v + 8);
        float *to = state + 8 * (groups * (4 * i + v) + g);
        _mm256_storeu_ps(to, _mm256_permute2f128_ps(x, y, 0x20));
        _mm256_storeu_ps(to + 8 * groups, _mm256_permute2f128_ps(x, y, 0x31));
      }
}

AVX2 static void from_slots(const float *state, float *tile, int rows, int groups) {
  for (int i = 0; i < rows; i++)
    for (int g = 0; g < groups; g++, tile += 32)
      for (int v = 0; v < 4; v += 2) {
        const float *from = state + 8 * (groups * (4 * i + v) + g);
        const __m256 x = _mm256_loadu_ps(from), y = _mm256_loadu_ps(from + 8 * groups);
        _mm256_storeu_ps(tile + 8 * v, _mm256_permute2f128_ps(x, y, 0x20));
        _mm256_storeu_ps(tile + 8 * v + 8, _mm256_permute2f128_ps(x, y, 0x31));
      }
}

AVX2 bool dg_tc16_calm_avx2(const float *state, int count) {
  const __m256i least = _mm256_set1_epi32(DG_TC16_STATE_LEAST);
  const __m256i range = _mm256_set1_epi32(DG_TC16_STATE_MOST - DG_TC16_STATE_LEAST);
  __m256i calm = _mm256_set1_epi32(-1);
  for (int i = 0; i < count; i += 8) {
    const __m256i u = _mm256_and_si256(_mm256_loadu_si256((const void *)(state + i)),
                                       _mm256_set1_epi32(0x7fffffff));
    const __m256i x = _mm256_sub_epi32(u, least);
    const __m256i zero = _mm256_cmpeq_epi32(u, _mm256_setzero_si256());
    const __m256i inside = _mm256_cmpeq_epi32(_mm256_min_epu32(x, range), x);
    calm = _mm256_and_si256(calm, _mm256_or_si256(zero, inside));
  }
  return _mm256_movemask_epi8(calm) == -1;
}

/* Far below any exponent sum, so that zeros never count. */
enum { NEVER = -4096, LEAST_E = -133 };

/* The exponents of 8 finite values, not below e_min; NEVER for zeros. */
INLINE __m256i exponents(__m256 x, int e_min) {
  const __m256i field = _mm256_srli_epi32(_mm256_slli_epi32(_mm256_castps_si256(x), 1), 24);
  const __m256i e =
      _mm256_max_epi32(_mm256_sub_epi32(field, _mm256_set1_epi32(127)), _mm256_set1_epi32(e_min));
  const __m256 zero = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ);
  return _mm256_blendv_epi8(e, _mm256_set1_epi32(NEVER), _mm256_castps_si256(zero));
}

/* 2^x for x within binary64's normal exponents. */
INLINE __m256d power(__m128i x) {
  return _mm256_castsi256_pd(
      _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(x, _mm_set1_epi32(1023))), 52));
}

/* The step for 4 slots, given E. All products and their multiples by powers of two are exact in
 * binary64: at least 2^-266, scaled at least 2^-495. The products' terms sum up in 32 bits (see
 * ../tc16.h); with the acc's, in binary64. Converting to binary32 under rounding toward zero cuts
 * once more, to 24 bits or a multiple of 2^-149, but gives the greatest finite number for infinity.
 */
INLINE __m128 step_4(const float *a, const float *b, int nr, __m128 acc, __m128i e) {
  const __m256d scale = power(_mm_sub_epi32(_mm_set1_epi32(25), e));
  __m128i sum = _mm_setzero_si128();
  for (int k = 0; k < 16; k++) {
    const __m256d y = _mm256_cvtps_pd(_mm_loadu_ps(b + k * nr));
    const __m256d p = _mm256_mul_pd(_mm256_set1_pd((double)a[k]), y);
    sum = _mm_add_epi32(sum, _mm256_cvttpd_epi32(_mm256_mul_pd(p, scale)));
  }
  const __m256d c =
      _mm256_cvtepi32_pd(_mm256_cvttpd_epi32(_mm256_mul_pd(_mm256_cvtps_pd(acc), scale)));
  const __m256d s = _mm256_mul_pd(_mm256_add_pd(_mm256_cvtepi32_pd(sum), c),
                                  power(_mm_sub_epi32(e, _mm_set1_epi32(25))));
  const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), s);
  const __m256i over =
      _mm256_castpd_si256(_mm256_cmp_pd(magnitude, _mm256_set1_pd(0x1p128), _CMP_GE_OQ));
  const __m128 over_4 = _mm256_castps256_ps128(_mm256_castsi256_ps(
      _mm256_permutevar8x32_epi32(over, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6))));
  const __m128 cut = _mm256_cvtpd_ps(s);
  /* the greatest finite number's bits plus one are infinity's */
  const __m128 r = _mm_castsi128_ps(_mm_sub_epi32(_mm_castps_si128(cut), _mm_castps_si128(over_4)));
  return _mm_add_ps(r, _mm_setzero_ps()); /* -0 becomes +0 */
}

INLINE __m256 step_8(const float *a, const int *a_e, const float *b, int nr, int b_min,
                     __m256 acc) {
  const __m256i magnitude =
      _mm256_and_si256(_mm256_castps_si256(acc), _mm256_set1_epi32(0x7fffffff));
  const __m256i infinity = _mm256_set1_epi32(0x7f800000);
  const __m256i finite = _mm256_cmpgt_epi32(infinity, magnitude);
  const __m256 c = _mm256_and_ps(acc, _mm256_castsi256_ps(finite));
  __m256i e = _mm256_max_epi32(exponents(c, -126), _mm256_set1_epi32(LEAST_E));
  for (int k = 0; k < 16; k++)
    e = _mm256_max_epi32(e, _mm256_add_epi32(_mm256_set1_epi32(a_e[k]),
                                             exponents(_mm256_loadu_ps(b + k * nr), b_min)));
  const __m128 low = step_4(a, b, nr, _mm256_castps256_ps128(c), _mm256_castsi256_si128(e));
  const __m128 high =
      step_4(a, b + 4, nr, _mm256_extractf128_ps(c, 1), _mm256_extracti128_si256(e, 1));
  /* an infinite acc stays, a NaN becomes the canonical one */
  const __m256 nan = _mm256_castsi256_ps(_mm256_cmpgt_epi32(magnitude, infinity));
  const __m256 special =
      _mm256_blendv_ps(acc, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), nan);
  return _mm256_blendv_ps(special, _mm256_set_m128(high, low), _mm256_castsi256_ps(finite));
}

/* Not inlined, so that no arithmetic can move across the change of the rounding mode. */
__attribute__((noinline)) AVX2 static void wide(const void *a, const void *b, float *state,
                                                int rows, int nr) {
  const int a_min = ((const dg_tc16_head *)a)->e_min, b_min = ((const dg_tc16_head *)b)->e_min;
  const dg_tc16_row *row = dg_tc16_rows(a);
  const float *values = dg_tc16_values(b, nr);
  for (int i = 0; i < rows; i++, row++) {
    int a_e[16];
    for (int k = 0; k < 16; k += 8)
      _mm256_storeu_si256((void *)(a_e + k), exponents(_mm256_loadu_ps(row->value + k), a_min));
    for (int j = 0; j < nr; j += 8, state += 8)
      _mm256_storeu_ps(state,
                       step_8(row->value, a_e, values + j, nr, b_min, _mm256_loadu_ps(state)));
  }
}

void dg_tc16_wide_avx2(const void *a, const void *b, float *state, int rows, int nr) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(WIDE_MODE);
  wide(a, b, state, rows, nr);
  _mm_setcsr(saved);
}

/* The steps are reached by pointers, so no arithmetic can move across the change of rounding. */
void dg_tc16_run_avx2(int64_t k, const void *a, const void *b, float *tile,
                      const dg_tc16_ways *ways) {
  _Alignas(64) float state[MAX_TILE];
  to_slots(tile, state, ways->rows, ways->nr / 32);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(FAST_MODE);
  dg_tc16_steps(k, a, b, state, ways);
  _mm_setcsr(saved);
  from_slots(state, tile, ways->rows, ways->nr / 32);
}

#endif
