/* The run over all steps, and the way that is right for all inputs: vectors of binary64. */
#include "tc16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) AVX2

enum {
  MAX_ROWS = 16,
  MAX_TILE = MAX_ROWS * 64,
  AT_ONCE = 32, /* k of columns that are packed only to be used at once */
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

/* 16 factors of 8 lines, and of each of up to 8 rows. */
typedef struct columns {
  __m256i e[16];
  __m256d value[16][2];
} columns;
typedef struct factors {
  int e[16];
  double value[16];
} factors;

INLINE void split_columns(const float *b, int nr, int e_min, columns *y) {
  for (int k = 0; k < 16; k++, b += nr) {
    const __m256 x = _mm256_loadu_ps(b);
    y->e[k] = exponents(x, e_min);
    y->value[k][0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    y->value[k][1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  }
}

INLINE void split_row(const float *a, int e_min, factors *x) {
  for (int k = 0; k < 16; k += 8)
    _mm256_storeu_si256((void *)(x->e + k), exponents(_mm256_loadu_ps(a + k), e_min));
  for (int k = 0; k < 16; k += 4)
    _mm256_storeu_pd(x->value + k, _mm256_cvtps_pd(_mm_loadu_ps(a + k)));
}

/* 2^x for x within binary64's normal exponents. */
INLINE __m256d power(__m128i x) {
  return _mm256_castsi256_pd(
      _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(x, _mm_set1_epi32(1023))), 52));
}

/* The low halves of 4 all-ones or all-zeros. */
INLINE __m128 narrow(__m256d mask) {
  return _mm256_castps256_ps128(
      _mm256_permutevar8x32_ps(_mm256_castpd_ps(mask), _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)));
}

/* A term cut toward zero to an integer multiple of the unit. */
INLINE __m256d cut(__m256d x, __m256d scale) {
  return _mm256_round_pd(_mm256_mul_pd(x, scale), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

/* The binary32 of sum * 2^(e-25). Converting under rounding toward zero cuts to 24 bits or a
 * multiple of 2^-149. */
INLINE __m128 round_4(__m256d sum, __m128i e) {
  const __m128i infinity = _mm_set1_epi32(0x7f800000), sign = _mm_set1_epi32(INT32_MIN);
  const __m256d s = _mm256_mul_pd(sum, power(_mm_sub_epi32(e, _mm_set1_epi32(25))));
  const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), s);
  const __m128 over = narrow(_mm256_cmp_pd(magnitude, _mm256_set1_pd(0x1p128), _CMP_GE_OQ));
  const __m128 nan = narrow(_mm256_cmp_pd(s, s, _CMP_UNORD_Q));
  const __m128i bits = _mm_castps_si128(_mm256_cvtpd_ps(s));
  /* -0 becomes +0, not by adding zero, which a compiler told not to care about signed zeros leaves
   * out */
  const __m128i zero = _mm_cmpeq_epi32(_mm_slli_epi32(bits, 1), _mm_setzero_si128());
  const __m128 finite = _mm_castsi128_ps(_mm_andnot_si128(zero, bits));
  const __m128 infinite = _mm_castsi128_ps(_mm_or_si128(_mm_and_si128(bits, sign), infinity));
  const __m128 canonical = _mm_castsi128_ps(_mm_set1_epi32(0x7fc00000));
  return _mm_blendv_ps(_mm_blendv_ps(finite, infinite, over), canonical, nan);
}

/* The step for 8 slots. With finite factors all products and their multiples by powers of two are
 * exact in binary64: at least 2^-266, scaled at least 2^-495. The cut terms are integers of at most
 * 27 bits, so their sum is exact too, in any sequence. With infinities or NaN the sum is the
 * infinity or the NaN of the step, and E means nothing. */
INLINE void step_8(const factors *x, const columns *y, float *state) {
  const __m256 acc = _mm256_loadu_ps(state);
  const __m128 acc_4[2] = {_mm256_castps256_ps128(acc), _mm256_extractf128_ps(acc, 1)};
  __m256i e = _mm256_max_epi32(exponents(acc, -126), _mm256_set1_epi32(LEAST_E));
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++)
    e = _mm256_max_epi32(e, _mm256_add_epi32(_mm256_set1_epi32(x->e[k]), y->e[k]));
  const __m128i e_4[2] = {_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1)};
  __m256d scale[2], sum[2][2];
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++) {
    scale[h] = power(_mm_sub_epi32(_mm_set1_epi32(25), e_4[h]));
    sum[h][0] = cut(_mm256_cvtps_pd(acc_4[h]), scale[h]);
    sum[h][1] = _mm256_setzero_pd();
  }
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++)
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      const __m256d p = _mm256_mul_pd(_mm256_set1_pd(x->value[k]), y->value[k][h]);
      sum[h][k % 2] = _mm256_add_pd(sum[h][k % 2], cut(p, scale[h]));
    }
  const __m128 low = round_4(_mm256_add_pd(sum[0][0], sum[0][1]), e_4[0]);
  const __m128 high = round_4(_mm256_add_pd(sum[1][0], sum[1][1]), e_4[1]);
  _mm256_storeu_ps(state, _mm256_set_m128(high, low));
}

/* Not inlined, so that no arithmetic can move across the change of the rounding mode. */
__attribute__((noinline)) AVX2 static void wide(const void *a, const void *b, float *state,
                                                int rows, int nr) {
  const int a_min = ((const dg_tc16_head *)a)->e_min, b_min = ((const dg_tc16_head *)b)->e_min;
  factors x[MAX_ROWS];
  columns y;
  for (int i = 0; i < rows; i++) split_row(dg_tc16_rows(a)[i].value, a_min, &x[i]);
  for (int j = 0; j < nr; j += 8) {
    split_columns(dg_tc16_values(b, nr) + j, nr, b_min, &y);
    for (int i = 0; i < rows; i++) step_8(&x[i], &y, state + i * nr + j);
  }
}

void dg_tc16_wide_avx2(const void *a, const void *b, float *state, int rows, int nr) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(WIDE_MODE);
  wide(a, b, state, rows, nr);
  _mm_setcsr(saved);
}

/* The steps are reached by pointers, so no arithmetic can move across the change of rounding. */
void dg_tc16_run_avx2(int64_t k, const void *a, const void *b, float *tile, int rows,
                      const dg_tc16_ways *ways) {
  _Alignas(64) float state[MAX_TILE];
  to_slots(tile, state, rows, ways->nr / 32);
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(FAST_MODE);
  dg_tc16_steps(k, a, b, state, rows, ways);
  _mm_setcsr(saved);
  from_slots(state, tile, rows, ways->nr / 32);
}

/* By way of a small panel in the first cache. */
AVX2 static void run_packed(int64_t k, const void *a, const dg_strip *b, float *tile, int rows,
                            const dg_tc16_ways *ways) {
  _Alignas(64) char panel[AT_ONCE / 16 * DG_TC16_B_BYTES(64)];
  const char *x = a;
  dg_strip y = *b;
  for (; k > 0; k -= AT_ONCE) {
    const int64_t now = k < AT_ONCE ? k : AT_ONCE;
    dg_tc16_pack_b_avx2(&y, ways->nr, now, panel, ways->nr / 32);
    dg_tc16_run_avx2(now, x, panel, tile, rows, ways);
    x += AT_ONCE / 16 * DG_TC16_A_BYTES(ways->mr);
    y.data += 2 * AT_ONCE * y.ks;
  }
}

void dg_tc16_direct_avx2(int64_t k, const void *a, const dg_strip *b, float *tile, int rows,
                         const dg_tc16_ways *ways) {
  if (b->dtype != DG_BF16) {
    run_packed(k, a, b, tile, rows, ways);
    return;
  }
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(FAST_MODE);
  ways->pairs(k, a, b, tile, rows, ways);
  _mm_setcsr(saved);
}

#endif
