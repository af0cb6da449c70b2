/* The fma order with AVX-512: 14 x 32. 28 accumulators keep two units of latency 4 busy and leave
 * registers for two vectors of B; A's values are broadcast from memory. */
#include "fma.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f")))
#define vec __m512
#define load _mm512_loadu_ps
#define store _mm512_storeu_ps
#define fma _mm512_fmadd_ps
#define same _mm512_set1_ps
enum { LANES = 16, MR = 14, A_LINES = 16 };
#include "fma_tile.h"

#define ALL(of) \
  of(1) of(2) of(3) of(4) of(5) of(6) of(7) of(8) of(9) of(10) of(11) of(12) of(13) of(14)
ALL(INSTANCE)

void dg_fma_14x32_avx512(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static tile_instance *const instances[MR][NV] = {ALL(ENTRY)};
  instances[rows - 1][cols > LANES](k, a, b, tile);
}

#endif
