/* The fma order with AVX2 and FMA: 6 x 16. 12 accumulators keep two units of latency 4 or 5 busy
 * and leave registers for two vectors of B and a value of A. */
#include "fma.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
#define vec __m256
#define load _mm256_loadu_ps
#define store _mm256_storeu_ps
#define fma _mm256_fmadd_ps
#define same _mm256_set1_ps
enum { LANES = 8, MR = 6, A_LINES = 8 };
#include "fma_tile.h"

#define ALL(of) of(1) of(2) of(3) of(4) of(5) of(6)
ALL(INSTANCE)

void dg_fma_6x16_avx2(int64_t k, const void *a, const void *b, float *tile, int rows, int cols) {
  static tile_instance *const instances[MR][NV] = {ALL(ENTRY)};
  instances[rows - 1][cols > LANES](k, a, b, tile);
}

#endif
