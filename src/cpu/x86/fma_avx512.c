/* The fma order with AVX-512. 14 x 32: 28 accumulators keep two units of latency 4 busy and leave
 * registers for two vectors of B; A's values are broadcast from memory. For few rows 8 x 32 and
 * 1 x 64, which read B where it lies. */
#include <string.h>

#include "fma.h"
#include "transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx2,fma,f16c")))
#define vec __m512
#define load _mm512_loadu_ps
#define store _mm512_storeu_ps
#define fma _mm512_fmadd_ps
#define same _mm512_set1_ps
#define INLINE static inline __attribute__((always_inline)) TARGET
enum { LANES = 16 };

INLINE vec widen(const char *p, const int dtype) {
  if (dtype == DG_F32) return load((const void *)p);
  const __m256i x = _mm256_loadu_si256((const void *)p);
  if (dtype == DG_F16) return _mm512_cvtph_ps(x);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

INLINE void split(vec x, vec y[2], const int dtype) {
  const __m512i words = _mm512_castps_si512(x), high = _mm512_set1_epi32((int)0xffff0000u);
  if (dtype == DG_BF16) {
    y[0] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    y[1] = _mm512_castsi512_ps(_mm512_and_si512(words, high));
  } else if (dtype == DG_F16) {
    y[0] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
    y[1] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
  } else {
    y[0] = x;
  }
}

INLINE void transpose_words(const char *p, int64_t pitch, vec x[LANES]) {
  dg_transpose_avx512(p, pitch, x);
}

#include "fma_tile.h"

#define TALL(rows) TILE(tile_##rows##_1, 32, rows, 1, 16) TILE(tile_##rows##_2, 32, rows, 2, 16)
#define TALL_ENTRY(rows) {tile_##rows##_1, tile_##rows##_2},
#define SHORT(rows)                      \
  TILE(short_##rows##_1, 32, rows, 1, 8) \
  TILE(short_##rows##_2, 32, rows, 2, 8) DIRECT(direct_##rows, rows, 2, 8)
#define SHORT_ENTRY(rows) {short_##rows##_1, short_##rows##_2},
#define DIRECT_ENTRY(rows) direct_##rows,
#define TO_8(of) of(1) of(2) of(3) of(4) of(5) of(6) of(7) of(8)
#define TO_14(of) TO_8(of) of(9) of(10) of(11) of(12) of(13) of(14)
TO_14(TALL)
TO_8(SHORT)
TILE(flat, 64, 1, 4, 1)
DIRECT(direct_flat, 1, 4, 1)
ACROSS(dg_fma_across_avx512)

void dg_fma_14x32_avx512(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static tile_instance *const instances[14][2] = {TO_14(TALL_ENTRY)};
  instances[rows - 1][cols > LANES](k, a, b, tile);
}

void dg_fma_8x32_avx512(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static tile_instance *const instances[8][2] = {TO_8(SHORT_ENTRY)};
  instances[rows - 1][cols > LANES](k, a, b, tile);
}

void dg_fma_direct_8x32_avx512(int64_t k, const void *a, const dg_strip *b, float *tile, int rows) {
  static direct_instance *const instances[8] = {TO_8(DIRECT_ENTRY)};
  instances[rows - 1](k, a, b, tile);
}

void dg_fma_1x64_avx512(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  (void)rows, (void)cols;
  flat(k, a, b, tile);
}

void dg_fma_direct_1x64_avx512(int64_t k, const void *a, const dg_strip *b, float *tile, int rows) {
  (void)rows;
  direct_flat(k, a, b, tile);
}

#endif
