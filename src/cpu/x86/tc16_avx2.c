/* The fast way of the tc16 order with AVX2: lanes over columns, 32 to a tile; see ../tc16.h. */
#include <string.h>

#include "tc16.h"
#include "transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) AVX2

enum { MR = 16, NR = 32 };

/* The maximum over k of the biased exponents of the products of one row and 32 columns. */
INLINE __m256i top(const uint32_t *up, const uint8_t *down) {
  __m256i x = _mm256_set1_epi8(DG_TC16_LEAST_X);
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++)
    x = _mm256_max_epu8(x, _mm256_subs_epu8(_mm256_set1_epi32((int)up[k]),
                                            _mm256_loadu_si256((const void *)(down + NR * k))));
  return x;
}

/* 2^(25-E) for 8 slots: the top bytes of vector v against the exponents of acc. Both times 2^23. */
INLINE __m256 scale(__m256i top, int v, __m256 acc) {
  const __m256i pick = _mm256_set1_epi32(v << 26 | 0x808080);
  const __m256i lane =
      _mm256_setr_epi32(0, 1 << 24, 2 << 24, 3 << 24, 0, 1 << 24, 2 << 24, 3 << 24);
  const __m256i x = _mm256_srli_epi32(_mm256_shuffle_epi8(top, _mm256_add_epi32(pick, lane)), 1);
  const __m256i c = _mm256_and_si256(_mm256_castps_si256(acc), _mm256_set1_epi32(0x7f800000));
  return _mm256_castsi256_ps(
      _mm256_sub_epi32(_mm256_set1_epi32((int)(279u << 23)), _mm256_max_epi32(x, c)));
}

/* A term cut toward zero to an integer multiple of the unit. */
INLINE __m256i cut(__m256 x, __m256 scaling) {
  return _mm256_cvttps_epi32(_mm256_mul_ps(x, scaling));
}

INLINE __m256i add(__m256i sum, __m256 a, const float *b, __m256 scaling) {
  return _mm256_add_epi32(sum, cut(_mm256_mul_ps(a, _mm256_loadu_ps(b)), scaling));
}

/* sum * 2^(E-25), where scaling is 2^(25-E). */
INLINE __m256 finish(__m256i sum, __m256 scaling) {
  const __m256i unit = _mm256_sub_epi32(_mm256_set1_epi32(254 << 23), _mm256_castps_si256(scaling));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_castsi256_ps(unit));
}

INLINE void row(const float *a, const float *b, __m256i tops, float *state) {
  const __m256 c0 = _mm256_load_ps(state), c1 = _mm256_load_ps(state + 8);
  const __m256 c2 = _mm256_load_ps(state + 16), c3 = _mm256_load_ps(state + 24);
  const __m256 s0 = scale(tops, 0, c0), s1 = scale(tops, 1, c1);
  const __m256 s2 = scale(tops, 2, c2), s3 = scale(tops, 3, c3);
  __m256i x0 = cut(c0, s0), x1 = cut(c1, s1), x2 = cut(c2, s2), x3 = cut(c3, s3);
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++, b += NR) {
    const __m256 y = _mm256_set1_ps(a[k]);
    x0 = add(x0, y, b, s0);
    x1 = add(x1, y, b + 8, s1);
    x2 = add(x2, y, b + 16, s2);
    x3 = add(x3, y, b + 24, s3);
  }
  _mm256_store_ps(state, finish(x0, s0));
  _mm256_store_ps(state + 8, finish(x1, s1));
  _mm256_store_ps(state + 16, finish(x2, s2));
  _mm256_store_ps(state + 24, finish(x3, s3));
}

AVX2 static void fast(const void *a, const void *b, float *state, int rows, int nr) {
  (void)nr;
  const dg_tc16_row *x = dg_tc16_rows(a);
  __m256i tops[MR];
  for (int i = 0; i < rows; i++) tops[i] = top(x[i].up, dg_tc16_down(b));
  for (int i = 0; i < rows; i++) row(x[i].value, dg_tc16_values(b, NR), tops[i], state + NR * i);
}

/* ---- columns where they lie ---- */

#define TARGET AVX2
#define fvec __m256
#define ivec __m256i
#define OP(name) _mm256_##name
#define AND _mm256_and_si256
#define LOAD(p) _mm256_loadu_si256((const void *)(p))
#define FLOATS _mm256_castsi256_ps
#define INTS _mm256_castps_si256
#define NONE(x) _mm256_testz_si256(x, x)
#define quarter _mm256_broadcastsi128_si256
enum { LANES = 8, TURNED = 16 };

INLINE void transpose(const char *p, int64_t pitch, ivec x[LANES]) {
  const char *line[LANES];
  fvec y[LANES];
#pragma GCC unroll 8
  for (int i = 0; i < LANES; i++) line[i] = p + pitch * i;
  dg_transpose_avx2(line, y);
#pragma GCC unroll 8
  for (int i = 0; i < LANES; i++) x[i] = INTS(y[i]);
}

INLINE void part(const float *tile, float *low, float *high) {
  const fvec x = _mm256_loadu_ps(tile), y = _mm256_loadu_ps(tile + LANES);
  _mm256_store_ps(low, _mm256_permute2f128_ps(x, y, 0x20));
  _mm256_store_ps(high, _mm256_permute2f128_ps(x, y, 0x31));
}

INLINE void join(const float *low, const float *high, float *tile) {
  const fvec x = _mm256_load_ps(low), y = _mm256_load_ps(high);
  _mm256_storeu_ps(tile, _mm256_permute2f128_ps(x, y, 0x20));
  _mm256_storeu_ps(tile + LANES, _mm256_permute2f128_ps(x, y, 0x31));
}

#include "tc16_pairs.h"

KERNEL(8, 8x32_avx2)
KERNEL(1, 1x32_avx2)
KERNEL(16, 16x32_avx2)
DIRECT(1, 1x32_avx2)
DIRECT(16, 16x32_avx2)

void dg_tc16_pack_a8_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  dg_tc16_pack_a_avx2(s, count, k, panel, 8);
}

void dg_tc16_pack_a16_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  dg_tc16_pack_a_avx2(s, count, k, panel, 16);
}

void dg_tc16_pack_a1_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  dg_tc16_pack_a_avx2(s, count, k, panel, 1);
}

void dg_tc16_pack_b32_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  dg_tc16_pack_b_avx2(s, count, k, panel, 1);
}

#endif
