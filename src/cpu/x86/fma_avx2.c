/* The fma order with AVX2 and FMA. 6 x 16: 12 accumulators keep two units of latency 4 or 5 busy
 * and leave registers for two vectors of B and a value of A. For few rows 3 x 32 and 1 x 32, which
 * read B where it lies. */
#include <string.h>

#include "fma.h"
#include "transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define vec __m256
#define load _mm256_loadu_ps
#define store _mm256_storeu_ps
#define fma _mm256_fmadd_ps
#define same _mm256_set1_ps
#define INLINE static inline __attribute__((always_inline)) TARGET
enum { LANES = 8 };

INLINE vec widen(const char *p, const int dtype) {
  if (dtype == DG_F32) return load((const void *)p);
  const __m128i x = _mm_loadu_si128((const void *)p);
  if (dtype == DG_F16) return _mm256_cvtph_ps(x);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

INLINE void split(vec x, vec y[2], const int dtype) {
  if (dtype == DG_F32) y[0] = x;
  else dg_split_avx2(x, y, dtype == DG_F16);
}

INLINE void transpose_words(const char *p, int64_t pitch, vec x[LANES]) {
  const char *line[LANES];
#pragma GCC unroll 8
  for (int i = 0; i < LANES; i++) line[i] = p + pitch * i;
  dg_transpose_avx2(line, x);
}

#include "fma_tile.h"

#define TALL(rows) TILE(tile_##rows##_1, 16, rows, 1, 8) TILE(tile_##rows##_2, 16, rows, 2, 8)
#define TALL_ENTRY(rows) {tile_##rows##_1, tile_##rows##_2},
#define SHORT(rows) TILE(short_##rows, 32, rows, 4, 4) DIRECT(direct_##rows, rows, 4, 4)
#define SHORT_ENTRY(rows) short_##rows,
#define DIRECT_ENTRY(rows) direct_##rows,
#define TO_3(of) of(1) of(2) of(3)
#define TO_6(of) TO_3(of) of(4) of(5) of(6)
TO_6(TALL)
TO_3(SHORT)
TILE(flat, 32, 1, 4, 1)
DIRECT(direct_flat, 1, 4, 1)
ACROSS(dg_fma_across_avx2)

void dg_fma_6x16_avx2(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static tile_instance *const instances[6][2] = {TO_6(TALL_ENTRY)};
  instances[rows - 1][cols > LANES](k, a, b, tile);
}

void dg_fma_3x32_avx2(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static tile_instance *const instances[3] = {TO_3(SHORT_ENTRY)};
  (void)cols;
  instances[rows - 1](k, a, b, tile);
}

void dg_fma_direct_3x32_avx2(int64_t k, const void *a, const dg_strip *b, float *tile, int rows) {
  static direct_instance *const instances[3] = {TO_3(DIRECT_ENTRY)};
  instances[rows - 1](k, a, b, tile);
}

void dg_fma_1x32_avx2(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  (void)rows, (void)cols;
  flat(k, a, b, tile);
}

void dg_fma_direct_1x32_avx2(int64_t k, const void *a, const dg_strip *b, float *tile, int rows) {
  (void)rows;
  direct_flat(k, a, b, tile);
}

#endif
