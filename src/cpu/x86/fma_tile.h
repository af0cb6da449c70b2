/* The fma micro-kernel for any vector length: MR x (NV vectors), lanes over columns. The file that
 * includes this defines TARGET, vec, LANES, MR, A_LINES (lines of a panel of A), load, store, fma
 * and same (one value in all lanes).
 *
 * Every size of the corner that counts has its own instance, so edges cost what they hold. */
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { NV = 2, NR = NV * LANES };

/* Continues rows x nv vectors. All of it lies in registers while k runs. */
INLINE void tile(int64_t k, const float *a, const float *b, float *state, const int rows,
                 const int nv) {
  vec acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) acc[i][v] = load(state + NR * i + LANES * v);
  for (; k > 0; k--, a += A_LINES, b += NR) {
    vec y[NV];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) y[v] = load(b + LANES * v);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      const vec x = same(a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) acc[i][v] = fma(x, y[v], acc[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) store(state + NR * i + LANES * v, acc[i][v]);
}

typedef void tile_instance(int64_t k, const float *a, const float *b, float *state);

#define INSTANCE(rows)                                                                          \
  TARGET static void tile_##rows##_1(int64_t k, const float *a, const float *b, float *state) { \
    tile(k, a, b, state, rows, 1);                                                              \
  }                                                                                             \
  TARGET static void tile_##rows##_2(int64_t k, const float *a, const float *b, float *state) { \
    tile(k, a, b, state, rows, 2);                                                              \
  }
#define ENTRY(rows) {tile_##rows##_1, tile_##rows##_2},
