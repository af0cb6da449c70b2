/* The fast way of the tc16 order with AVX-512: as tc16_avx2.c, 64 columns to a tile. */
#include <string.h>

#include "tc16.h"
#include "transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define INLINE static inline __attribute__((always_inline)) AVX512

enum { MR = 16, NR = 64 };

/* The maximum over k of the biased exponents of the products of one row and 64 columns. */
INLINE __m512i top(const uint32_t *up, const uint8_t *down) {
  __m512i x = _mm512_set1_epi8(DG_TC16_LEAST_X);
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++)
    x = _mm512_max_epu8(x, _mm512_subs_epu8(_mm512_set1_epi32((int)up[k]),
                                            _mm512_loadu_si512((const void *)(down + NR * k))));
  return x;
}

/* 2^(25-E) for 16 slots: the top bytes of vector v against the exponents of acc. Both times 2^23.
 */
INLINE __m512 scale(__m512i top, int v, __m512 acc) {
  const __m512i pick = _mm512_set4_epi32(0x03808080 + (v << 26), 0x02808080 + (v << 26),
                                         0x01808080 + (v << 26), 0x00808080 + (v << 26));
  const __m512i x = _mm512_srli_epi32(_mm512_shuffle_epi8(top, pick), 1);
  const __m512i c = _mm512_and_si512(_mm512_castps_si512(acc), _mm512_set1_epi32(0x7f800000));
  return _mm512_castsi512_ps(
      _mm512_sub_epi32(_mm512_set1_epi32((int)(279u << 23)), _mm512_max_epi32(x, c)));
}

/* A term cut toward zero to an integer multiple of the unit. */
INLINE __m512i cut(__m512 x, __m512 scaling) {
  return _mm512_cvttps_epi32(_mm512_mul_ps(x, scaling));
}

INLINE __m512i add(__m512i sum, __m512 a, const float *b, __m512 scaling) {
  return _mm512_add_epi32(sum, cut(_mm512_mul_ps(a, _mm512_loadu_ps(b)), scaling));
}

/* sum * 2^(E-25), where scaling is 2^(25-E). */
INLINE __m512 finish(__m512i sum, __m512 scaling) {
  const __m512i unit = _mm512_sub_epi32(_mm512_set1_epi32(254 << 23), _mm512_castps_si512(scaling));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_castsi512_ps(unit));
}

INLINE void row(const float *a, const float *b, __m512i tops, float *state) {
  const __m512 c0 = _mm512_load_ps(state), c1 = _mm512_load_ps(state + 16);
  const __m512 c2 = _mm512_load_ps(state + 32), c3 = _mm512_load_ps(state + 48);
  const __m512 s0 = scale(tops, 0, c0), s1 = scale(tops, 1, c1);
  const __m512 s2 = scale(tops, 2, c2), s3 = scale(tops, 3, c3);
  __m512i x0 = cut(c0, s0), x1 = cut(c1, s1), x2 = cut(c2, s2), x3 = cut(c3, s3);
#pragma GCC unroll 16
  for (int k = 0; k < 16; k++, b += NR) {
    const __m512 y = _mm512_set1_ps(a[k]);
    x0 = add(x0, y, b, s0);
    x1 = add(x1, y, b + 16, s1);
    x2 = add(x2, y, b + 32, s2);
    x3 = add(x3, y, b + 48, s3);
  }
  _mm512_store_ps(state, finish(x0, s0));
  _mm512_store_ps(state + 16, finish(x1, s1));
  _mm512_store_ps(state + 32, finish(x2, s2));
  _mm512_store_ps(state + 48, finish(x3, s3));
}

AVX512 static void fast(const void *a, const void *b, float *state, int rows, int nr) {
  (void)nr;
  const dg_tc16_row *x = dg_tc16_rows(a);
  __m512i tops[MR];
  for (int i = 0; i < rows; i++) tops[i] = top(x[i].up, dg_tc16_down(b));
  for (int i = 0; i < rows; i++) row(x[i].value, dg_tc16_values(b, NR), tops[i], state + NR * i);
}

/* ---- columns where they lie ---- */

#define TARGET AVX512
#define fvec __m512
#define ivec __m512i
#define OP(name) _mm512_##name
#define AND _mm512_and_si512
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define FLOATS _mm512_castsi512_ps
#define INTS _mm512_castps_si512
#define NONE(x) (_mm512_test_epi8_mask(x, x) == 0)
#define quarter _mm512_broadcast_i32x4
enum { LANES = 16, TURNED = 32 };

INLINE void transpose(const char *p, int64_t pitch, ivec x[LANES]) {
  fvec y[LANES];
  dg_transpose_avx512(p, pitch, y);
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) x[i] = INTS(y[i]);
}

INLINE void part(const float *tile, float *low, float *high) {
  const fvec x = _mm512_loadu_ps(tile), y = _mm512_loadu_ps(tile + LANES);
  _mm512_store_ps(low, _mm512_shuffle_f32x4(x, y, 0x88));
  _mm512_store_ps(high, _mm512_shuffle_f32x4(x, y, 0xdd));
}

INLINE void join(const float *low, const float *high, float *tile) {
  const fvec x = _mm512_load_ps(low), y = _mm512_load_ps(high);
  const fvec first = _mm512_shuffle_f32x4(x, y, 0x44), second = _mm512_shuffle_f32x4(x, y, 0xee);
  _mm512_storeu_ps(tile, _mm512_shuffle_f32x4(first, first, 0xd8));
  _mm512_storeu_ps(tile + LANES, _mm512_shuffle_f32x4(second, second, 0xd8));
}

#include "tc16_pairs.h"

KERNEL(8, 8x64_avx512)
KERNEL(1, 1x64_avx512)
KERNEL(16, 16x64_avx512)
DIRECT(1, 1x64_avx512)
DIRECT(16, 16x64_avx512)

void dg_tc16_pack_b64_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel) {
  dg_tc16_pack_b_avx2(s, count, k, panel, 2);
}

#endif
