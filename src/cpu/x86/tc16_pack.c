/* Packs the panels of the x86 tc16 kernels. */
#include "../fetch.h"
#include "tc16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) AVX2

enum { GROUP = DG_FETCH_WIDTH };

INLINE __m256i load(const uint16_t *p) { return _mm256_loadu_si256((const void *)p); }

/* 8 lines of 16 words: x[k % 8] gets lines 0-7 of k and, in its upper half, of k + 8. */
INLINE void transpose_8(const uint16_t *from, int64_t pitch, __m256i x[8]) {
  __m256i y[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) x[i] = load(from + pitch * i);
#pragma GCC unroll 3
  for (int round = 0; round < 3; round++) { /* a perfect shuffle; three of them transpose */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      y[2 * i] = _mm256_unpacklo_epi16(x[i], x[i + 4]);
      y[2 * i + 1] = _mm256_unpackhi_epi16(x[i], x[i + 4]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = y[i];
  }
}

AVX2 static void transpose_16(const uint16_t *from, int64_t from_pitch, uint16_t *to,
                              int64_t to_pitch) {
  __m256i x[8], y[8];
  transpose_8(from, from_pitch, x);
  transpose_8(from + 8 * from_pitch, from_pitch, y);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    _mm256_storeu_si256((void *)(to + to_pitch * i), _mm256_permute2x128_si256(x[i], y[i], 0x20));
    _mm256_storeu_si256((void *)(to + to_pitch * (i + 8)),
                        _mm256_permute2x128_si256(x[i], y[i], 0x31));
  }
}

typedef struct fields {
  __m256i e;    /* exponent + 127, not below the type's least; 255: infinity or NaN */
  __m256i zero; /* all ones for a zero */
} fields;

INLINE fields fields_of(__m256i x, bool half) {
  const __m256i magnitude = _mm256_slli_epi16(x, 1);
  const __m256i zero = _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256());
  if (!half) return (fields){_mm256_srli_epi16(magnitude, 8), zero};
  const __m256i field = _mm256_srli_epi16(magnitude, 11);
  const __m256i special = _mm256_cmpeq_epi16(field, _mm256_set1_epi16(31));
  const __m256i e =
      _mm256_add_epi16(_mm256_max_epi16(field, _mm256_set1_epi16(1)), _mm256_set1_epi16(127 - 15));
  return (fields){_mm256_or_si256(e, _mm256_srli_epi16(special, 8)), zero};
}

INLINE __m256i fraction(__m256i x, bool half) {
  return _mm256_and_si256(x, _mm256_set1_epi16(half ? 0x3ff : 0x7f));
}

/* FAST_MAX - e is 0 .. SPAN in the window of the fast way, and as an unsigned byte above it
 * outside. */
enum { TOP = 127 + DG_TC16_FAST_MAX, SPAN = DG_TC16_FAST_MAX - DG_TC16_FAST_MIN };

typedef struct seen {
  __m256i outside, mantissa[2]; /* bytes outside the window; mantissa sums */
} seen;

INLINE void head(dg_tc16_head *h, __m256i outside, __m256i heavy, bool half) {
  int marks = _mm256_testz_si256(heavy, heavy) ? 0 : DG_TC16_HEAVY;
  if (!_mm256_testz_si256(outside, outside)) marks |= DG_TC16_WIDE;
  *h = (dg_tc16_head){.marks = h->marks | marks, .e_min = half ? -14 : -126};
}

/* 32 columns of one k. */
INLINE void expand_columns(const uint16_t *from, bool half, uint8_t *down, float *value,
                           int64_t pitch, seen *s) {
  const __m256i x0 = load(from), x1 = load(from + 16);
  const fields f0 = fields_of(x0, half), f1 = fields_of(x1, half);
  const __m256i e = _mm256_packus_epi16(f0.e, f1.e);
  const __m256i zero = _mm256_packs_epi16(f0.zero, f1.zero);
  const __m256i below = _mm256_sub_epi8(_mm256_set1_epi8((char)TOP), e);
  const __m256i outside = _mm256_subs_epu8(below, _mm256_set1_epi8(SPAN));
  const __m256i d = _mm256_add_epi8(below, _mm256_set1_epi8(DG_TC16_DOWN - DG_TC16_FAST_MAX));
  _mm256_storeu_si256((void *)down, _mm256_or_si256(d, zero));

  __m256 v[4];
  if (half) {
    const __m256i y0 = _mm256_permute4x64_epi64(x0, 0xd8), y1 = _mm256_permute4x64_epi64(x1, 0xd8);
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(y0));
    v[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(y0, 1));
    v[2] = _mm256_cvtph_ps(_mm256_castsi256_si128(y1));
    v[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(y1, 1));
  } else {
    const __m256i none = _mm256_setzero_si256();
    v[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, x0));
    v[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, x0));
    v[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, x1));
    v[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, x1));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) _mm256_storeu_ps(value + i * pitch, v[i]);

  s->outside = _mm256_or_si256(s->outside, _mm256_andnot_si256(zero, outside));
  s->mantissa[0] = _mm256_add_epi16(s->mantissa[0], fraction(x0, half));
  s->mantissa[1] = _mm256_add_epi16(s->mantissa[1], fraction(x1, half));
}

INLINE void pack_b(const dg_strip *strip, int64_t count, int64_t k, char *panel, int groups,
                   bool half) {
  const int nr = GROUP * groups;
  const __m256i none = _mm256_setzero_si256();
  const __m256i light = _mm256_set1_epi16((short)DG_TC16_LIGHT(half ? 10 : 7));
  for (int64_t k0 = 0; k0 < k; k0 += 16, panel += DG_TC16_B_BYTES(nr)) {
    dg_tc16_head *h = (dg_tc16_head *)(void *)panel;
    h->marks = 0;
    for (int g = 0; g < groups; g++) {
      uint16_t buffer[DG_FETCH_BUFFER];
      int64_t columns = count - GROUP * g;
      columns = columns > GROUP ? GROUP : columns < 0 ? 0 : columns;
      dg_strip s = *strip;
      if (columns) s.data += 2 * GROUP * g * s.is;
      const dg_lines from =
          dg_fetch(dg_words_by_k(&s, columns, k0, k), GROUP, 16, buffer, transpose_16);
      uint8_t *down = (uint8_t *)(h + 1) + GROUP * g;
      float *value = (float *)(void *)((char *)(h + 1) + 16 * nr) + 8 * g;
      seen x = {none, {none, none}};
      for (int kk = 0; kk < 16; kk++)
        expand_columns(from.data + kk * from.pitch, half, down + kk * nr, value + kk * nr,
                       8 * groups, &x);
      head(h, x.outside,
           _mm256_or_si256(_mm256_cmpgt_epi16(x.mantissa[0], light),
                           _mm256_cmpgt_epi16(x.mantissa[1], light)),
           half);
    }
  }
}

AVX2 static void pack_b_bf16(const dg_strip *s, int64_t count, int64_t k, void *panel, int groups) {
  pack_b(s, count, k, panel, groups, false);
}
AVX2 static void pack_b_f16(const dg_strip *s, int64_t count, int64_t k, void *panel, int groups) {
  pack_b(s, count, k, panel, groups, true);
}
void dg_tc16_pack_b_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel, int groups) {
  (s->dtype == DG_F16 ? pack_b_f16 : pack_b_bf16)(s, count, k, panel, groups);
}

/* 16 k of one row. */
INLINE void expand_row(const uint16_t *from, bool half, dg_tc16_row *row, seen *s) {
  const __m256i natural = load(from);
  const __m256i x = _mm256_permute4x64_epi64(natural, 0xd8); /* k 0-3, 8-11; 4-7, 12-15 */
  const fields f = fields_of(x, half);
  const __m256i below = _mm256_sub_epi16(_mm256_set1_epi16(TOP), f.e);
  const __m256i outside = _mm256_subs_epu16(below, _mm256_set1_epi16(SPAN));
  const __m256i up =
      _mm256_andnot_si256(f.zero, _mm256_add_epi16(f.e, _mm256_set1_epi16(DG_TC16_UP - 127)));
  const __m256i twice = _mm256_or_si256(up, _mm256_slli_epi16(up, 8));
  _mm256_storeu_si256((void *)row->up, _mm256_unpacklo_epi16(twice, twice));
  _mm256_storeu_si256((void *)(row->up + 8), _mm256_unpackhi_epi16(twice, twice));
  if (half) {
    _mm256_storeu_ps(row->value, _mm256_cvtph_ps(_mm256_castsi256_si128(natural)));
    _mm256_storeu_ps(row->value + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(natural, 1)));
  } else {
    const __m256i none = _mm256_setzero_si256();
    _mm256_storeu_si256((void *)row->value, _mm256_unpacklo_epi16(none, x));
    _mm256_storeu_si256((void *)(row->value + 8), _mm256_unpackhi_epi16(none, x));
  }
  s->outside = _mm256_or_si256(s->outside, _mm256_andnot_si256(f.zero, outside));
  /* the sum of the 16 fractions: in every 32-bit lane half of it, then all */
  __m256i sum = _mm256_madd_epi16(fraction(x, half), _mm256_set1_epi16(1));
  sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
  sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
  sum = _mm256_add_epi32(sum, _mm256_permute4x64_epi64(sum, 0x4e));
  s->mantissa[0] = _mm256_max_epi32(s->mantissa[0], sum);
}

INLINE void pack_a(const dg_strip *strip, int64_t count, int64_t k, char *panel, int rows,
                   bool half) {
  const __m256i none = _mm256_setzero_si256();
  for (int64_t k0 = 0; k0 < k; k0 += 16, panel += DG_TC16_A_BYTES(rows)) {
    dg_tc16_head *h = (dg_tc16_head *)(void *)panel;
    uint16_t buffer[DG_FETCH_BUFFER];
    const dg_lines from =
        dg_fetch(dg_words_by_line(strip, count, k0, k), 16, rows, buffer, transpose_16);
    seen x = {none, {none, none}};
    for (int i = 0; i < rows; i++)
      expand_row(from.data + i * from.pitch, half, (dg_tc16_row *)(h + 1) + i, &x);
    h->marks = 0;
    head(h, x.outside,
         _mm256_cmpgt_epi32(x.mantissa[0], _mm256_set1_epi32(DG_TC16_LIGHT(half ? 10 : 7))), half);
  }
}

AVX2 static void pack_a_bf16(const dg_strip *s, int64_t count, int64_t k, void *panel, int rows) {
  pack_a(s, count, k, panel, rows, false);
}
AVX2 static void pack_a_f16(const dg_strip *s, int64_t count, int64_t k, void *panel, int rows) {
  pack_a(s, count, k, panel, rows, true);
}
void dg_tc16_pack_a_avx2(const dg_strip *s, int64_t count, int64_t k, void *panel, int rows) {
  (s->dtype == DG_F16 ? pack_a_f16 : pack_a_bf16)(s, count, k, panel, rows);
}

#endif
