/* The fma micro-kernels for any vector length, lanes over columns. The file that includes this
 * defines TARGET, INLINE, vec, LANES, load, store, fma, same (one value in all lanes), widen (LANES
 * elements of a type), split (words into their elements), and transpose_words (LANES words of LANES
 * lines).
 *
 * rows, nv (vectors of columns) and lines (of a panel of A) are constants wherever these are
 * inlined. Every size of the corner that counts has its own instance, so edges cost what they hold.
 */
#include "../../num.h"

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

/* ---- columns read where they lie ---- */

/* Columns side by side. Their neighbours, which come next, are asked for. */
INLINE void direct_columns(int64_t k, const float *a, const dg_strip *s, float *state,
                           const int rows, const int nv, const int lines, const int dtype) {
  vec acc[MAX_ROWS][MAX_NV];
  const char *b = s->data;
  const int64_t size = dg_dtype_bytes(dtype), pitch = size * s->ks;
  const int nr = nv * LANES;
  load_tile(acc, state, nr, rows, nv);
  for (; k > 0; k--, a += lines, b += pitch) {
    vec y[MAX_NV];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) y[v] = widen(b + size * LANES * v, dtype);
    for (int byte = 0; byte < size * nr; byte += 64)
      _mm_prefetch(b + size * nr + byte, _MM_HINT_T0);
    step(acc, a, y, rows, nv);
  }
  store_tile(acc, state, nr, rows, nv);
}

/* LANES columns whose k lie side by side: turned in registers, a word of every line at a time,
 * which is one F32 or two neighbours in k. */
INLINE void direct_lines(int64_t k, const float *a, const char *b, int64_t pitch, float *state,
                         const int nr, const int rows, const int lines, const int dtype) {
  const int each = dtype == DG_F32 ? 1 : 2, block = each * LANES;
  vec acc[MAX_ROWS][MAX_NV], x[LANES], y[2];
  load_tile(acc, state, nr, rows, 1);
  for (; k >= block; k -= block, b += 4 * LANES) {
    transpose_words(b, pitch, x);
#pragma GCC unroll 16
    for (int w = 0; w < LANES; w++) {
      split(x[w], y, dtype);
#pragma GCC unroll 2
      for (int h = 0; h < each; h++, a += lines) step(acc, a, &y[h], rows, 1);
    }
  }
  if (k > 0) {
    char end[LANES][4 * LANES];
    for (int i = 0; i < LANES; i++) {
      memset(end[i], 0, sizeof end[i]);
      memcpy(end[i], b + pitch * i, (size_t)(dg_dtype_bytes(dtype) * k));
    }
    transpose_words(end[0], 4 * LANES, x);
    for (int kk = 0; kk < (int)k; kk++, a += lines) {
      split(x[kk / each], y, dtype);
      step(acc, a, &y[kk % each], rows, 1);
    }
  }
  store_tile(acc, state, nr, rows, 1);
}

INLINE void direct(int64_t k, const float *a, const dg_strip *s, float *state, const int rows,
                   const int nv, const int lines, const int dtype) {
  if (s->is == 1) {
    direct_columns(k, a, s, state, rows, nv, lines, dtype);
    return;
  }
  const int64_t pitch = dg_dtype_bytes(dtype) * s->is;
  for (int v = 0; v < nv; v++)
    direct_lines(k, a, s->data + LANES * v * pitch, pitch, state + LANES * v, nv * LANES, rows,
                 lines, dtype);
}

/* ---- one row, columns side by side, any number of them ---- */

/* k at a time: that many lines of B are read as one stream each, from one end to the other. */
enum { STREAMS = 8 };

INLINE void across_streams(const float *a, const char *b, int64_t pitch, float *state, int64_t cols,
                           const int streams, const int dtype) {
  const int64_t size = dg_dtype_bytes(dtype);
  vec x[STREAMS];
  int64_t j = 0;
#pragma GCC unroll 8
  for (int i = 0; i < streams; i++) x[i] = same(a[i]);
  for (; j + LANES <= cols; j += LANES) {
    vec acc = load(state + j);
#pragma GCC unroll 8
    for (int i = 0; i < streams; i++) acc = fma(x[i], widen(b + pitch * i + size * j, dtype), acc);
    store(state + j, acc);
  }
  if (j == cols) return;
  vec acc = load(state + j);
  for (int i = 0; i < streams; i++) {
    char end[4 * LANES] = {0};
    memcpy(end, b + pitch * i + size * j, (size_t)(size * (cols - j)));
    acc = fma(x[i], widen(end, dtype), acc);
  }
  store(state + j, acc);
}

INLINE void across(int64_t k, const float *a, const dg_strip *s, float *state, int64_t cols,
                   const int dtype) {
  const int64_t pitch = dg_dtype_bytes(dtype) * s->ks;
  const char *b = s->data;
  for (; k >= STREAMS; k -= STREAMS, a += STREAMS, b += STREAMS * pitch)
    across_streams(a, b, pitch, state, cols, STREAMS, dtype);
  for (; k > 0; k--, a++, b += pitch) across_streams(a, b, pitch, state, cols, 1, dtype);
}

typedef void tile_instance(int64_t k, const float *a, const float *b, float *state);
typedef void direct_instance(int64_t k, const float *a, const dg_strip *s, float *state);

#define TILE(name, nr, rows, nv, lines)                                              \
  TARGET static void name(int64_t k, const float *a, const float *b, float *state) { \
    tile(k, a, b, state, nr, rows, nv, lines);                                       \
  }
#define DIRECT(name, rows, nv, lines)                                                   \
  TARGET static void name(int64_t k, const float *a, const dg_strip *s, float *state) { \
    switch (s->dtype) {                                                                 \
      case DG_BF16: direct(k, a, s, state, rows, nv, lines, DG_BF16); return;           \
      case DG_F16: direct(k, a, s, state, rows, nv, lines, DG_F16); return;             \
      default: direct(k, a, s, state, rows, nv, lines, DG_F32);                         \
    }                                                                                   \
  }
#define ACROSS(name)                                                                          \
  TARGET void name(int64_t k, const void *a, const dg_strip *s, float *state, int64_t cols) { \
    switch (s->dtype) {                                                                       \
      case DG_BF16: across(k, a, s, state, cols, DG_BF16); return;                            \
      case DG_F16: across(k, a, s, state, cols, DG_F16); return;                              \
      default: across(k, a, s, state, cols, DG_F32);                                          \
    }                                                                                         \
  }
