/* The rows of tc16_copy.cu. They fit everything. */
#include "tc16_copy.h"

#include <math.h>

#include "cuda.h"

static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

static bool fits(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return true;
}

static double tiles(const dg_problem *p, int bm, int bn) {
  return (double)ceil_div(p->m, bm) * (double)ceil_div(p->n, bn) * (double)p->batch;
}

/* Whether lines run along m or n; the smaller tiles know no such lines and go along k. */
static bool mn_major_a(const dg_problem *p, int bm) {
  return bm >= 128 && p->a.rs == 1 && p->a.cs != 1;
}
static bool mn_major_b(const dg_problem *p, int bn) {
  return bn >= 64 && p->b.cs == 1 && p->b.rs != 1;
}

/* Elements that do not lie side by side come at an eighth (a guess). */
static double microseconds(const dg_problem *p, const dg_gpu_facts *facts, int bm, int bn,
                           double of_k) {
  const bool sparse_a = p->a.cs != 1 && !mn_major_a(p, bm) && p->k > 1;
  const bool sparse_b = p->b.rs != 1 && !mn_major_b(p, bn) && p->k > 1;
  const double rounds = ceil(tiles(p, bm, bn) / facts->multiprocessors);
  return 4 + rounds * (double)p->k * of_k * (sparse_a || sparse_b ? 8 : 1);
}

static void prepare(const dg_problem *p, const dg_gpu_facts *facts, int bm, int bn, int bytes,
                    int threads, dg_gpu_launch *launch) {
  const double count = tiles(p, bm, bn);

  launch->grid[0] =
      count < facts->multiprocessors ? (uint32_t)count : (uint32_t)facts->multiprocessors;
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = (uint32_t)threads;
  launch->shared_bytes = (uint32_t)bytes + 1024; /* the ring begins at a multiple of 1024 */
  launch->overlap = true;
  launch->tuning.v[DG_TC16_COPY_KIND] =
      (p->a.dtype == DG_F16) + 2 * mn_major_a(p, bm) + 4 * mn_major_b(p, bn);
}

#define FUNCTIONS(BM, BN, STAGES, SLICES, WARPS, BATCH, OF_K)                                     \
  static double microseconds_##BM##x##BN(const dg_problem *p, const dg_gpu_facts *facts) {        \
    return microseconds(p, facts, BM, BN, OF_K);                                                  \
  }                                                                                               \
  static void prepare_##BM##x##BN(const dg_problem *p, const dg_gpu_facts *facts,                 \
                                  dg_gpu_launch *launch) {                                        \
    prepare(p, facts, BM, BN, (BM + BN) * 128 * SLICES * STAGES, DG_TC16_COPY_THREADS(BM, WARPS), \
            launch);                                                                              \
  }
DG_TC16_COPY_TILES(FUNCTIONS)

#define ROW(BM, BN, STAGES, SLICES, WARPS, BATCH, OF_K) \
  {"tc16_copy" #BM "x" #BN "_sm90a",                    \
   "dg_tc16_copy_" #BM "x" #BN,                         \
   dg_cuda_tc16_copy_image,                             \
   DG_ORDER_TC16,                                       \
   90,                                                  \
   90,                                                  \
   fits,                                                \
   microseconds_##BM##x##BN,                            \
   prepare_##BM##x##BN},
const dg_gpu_kernel dg_cuda_tc16_copy_rows[] = {DG_TC16_COPY_TILES(ROW)};
const int dg_cuda_tc16_copy_count =
    sizeof dg_cuda_tc16_copy_rows / sizeof dg_cuda_tc16_copy_rows[0];
