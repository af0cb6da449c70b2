/* The fma micro-kernels for any vector length, lanes over columns. The file that includes this
 * defines TARGET, vec, LANES, load, store, fma, same (one value in all lanes), widen (LANES BF16),
 * even and odd (the BF16 at even and odd places), and transpose_pairs.
 *
 * rows, nv (vectors of columns) and lines (of a panel of A) are constants wherever these are
 * inlined. Every size of the corner that counts has its own instance, so edges cost what they hold.
 */
#include "../../num.h"

#define INLINE static inline __attribute__((always_inline)) TARGET

enum { MAX_ROWS = 14, MAX_NV = 4 };

INLINE void load_tile(vec acc[MAX_ROWS][MAX_NV], const float *state, int nr, const int rows,
                      const int nv) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) acc[i][v] = load(state + nr * i + LANES * v);
}

INLINE void store_tile(vec acc[MAX_ROWS][MAX_NV], float *state, int nr, const int rows,
                       const int nv) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) store(state + nr * i + LANES * v, acc[i][v]);
}

/* One k. */
INLINE void step(vec acc[MAX_ROWS][MAX_NV], const float *a, const vec *y, const int rows,
                 const int nv) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    const vec x = same(a[i]);
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) acc[i][v] = fma(x, y[v], acc[i][v]);
  }
}

/* Continues rows x nv vectors. All of it lies in registers while k runs. */
INLINE void tile(int64_t k, const float *a, const float *b, float *state, const int nr,
                 const int rows, const int nv, const int lines) {
  vec acc[MAX_ROWS][MAX_NV];
  load_tile(acc, state, nr, rows, nv);
  for (; k > 0; k--, a += lines, b += nr) {
    vec y[MAX_NV];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) y[v] = load(b + LANES * v);
    step(acc, a, y, rows, nv);
  }
  store_tile(acc, state, nr, rows, nv);
}

/* ---- BF16 columns read where they lie ---- */

/* Columns side by side. Their neighbours, which come next, are asked for. */
INLINE void direct_columns(int64_t k, const float *a, const dg_strip *s, float *state,
                           const int rows, const int nv, const int lines) {
  vec acc[MAX_ROWS][MAX_NV];
  const char *b = s->data;
  const int nr = nv * LANES;
  load_tile(acc, state, nr, rows, nv);
  for (; k > 0; k--, a += lines, b += 2 * s->ks) {
    vec y[MAX_NV];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) y[v] = widen(b + 2 * LANES * v);
    for (int byte = 0; byte < 2 * nr; byte += 64) _mm_prefetch(b + 2 * nr + byte, _MM_HINT_T0);
    step(acc, a, y, rows, nv);
  }
  store_tile(acc, state, nr, rows, nv);
}

/* LANES columns whose k lie side by side: turned in registers, two neighbours in k at a time. */
INLINE void direct_lines(int64_t k, const float *a, const char *b, int64_t pitch, float *state,
                         const int nr, const int rows, const int lines) {
  vec acc[MAX_ROWS][MAX_NV], x[LANES];
  load_tile(acc, state, nr, rows, 1);
  for (; k >= 2 * LANES; k -= 2 * LANES, b += 4 * LANES) {
    transpose_pairs(b, pitch, x);
#pragma GCC unroll 16
    for (int w = 0; w < LANES; w++, a += 2 * lines) {
      const vec y = even(x[w]), z = odd(x[w]);
      step(acc, a, &y, rows, 1);
      step(acc, a + lines, &z, rows, 1);
    }
  }
  if (k > 0) {
    char end[LANES][4 * LANES];
    for (int i = 0; i < LANES; i++) {
      memset(end[i], 0, sizeof end[i]);
      memcpy(end[i], b + pitch * i, (size_t)(2 * k));
    }
    transpose_pairs(end[0], 4 * LANES, x);
    for (int kk = 0; kk < (int)k; kk++, a += lines) {
      const vec y = kk % 2 ? odd(x[kk / 2]) : even(x[kk / 2]);
      step(acc, a, &y, rows, 1);
    }
  }
  store_tile(acc, state, nr, rows, 1);
}

INLINE void direct(int64_t k, const float *a, const dg_strip *s, float *state, const int rows,
                   const int nv, const int lines) {
  if (s->is == 1) {
    direct_columns(k, a, s, state, rows, nv, lines);
    return;
  }
  for (int v = 0; v < nv; v++)
    direct_lines(k, a, s->data + 2 * LANES * v * s->is, 2 * s->is, state + LANES * v, nv * LANES,
                 rows, lines);
}

typedef void tile_instance(int64_t k, const float *a, const float *b, float *state);
typedef void direct_instance(int64_t k, const float *a, const dg_strip *s, float *state);

#define TILE(name, nr, rows, nv, lines)                                              \
  TARGET static void name(int64_t k, const float *a, const float *b, float *state) { \
    tile(k, a, b, state, nr, rows, nv, lines);                                       \
  }
#define DIRECT(name, rows, nv, lines)                                                   \
  TARGET static void name(int64_t k, const float *a, const dg_strip *s, float *state) { \
    direct(k, a, s, state, rows, nv, lines);                                            \
  }
