/* The row of the tc16 kernel for any layout. It fits everything. */
#include "tc16_any.h"

#include "cuda.h"

static bool fits(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return true;
}

static double tiles(const dg_problem *p) {
  const double rows = (double)((p->m + DG_ANY_BM - 1) / DG_ANY_BM);
  return rows * (double)((p->n + DG_ANY_BN - 1) / DG_ANY_BN) * (double)p->batch;
}

/* Measured on an H200: 140 us for 1 x 4096 x 4096, 447 us for 1024 x 4096 x 4096. */
static double microseconds(const dg_problem *p, const dg_gpu_facts *facts) {
  const double waves = tiles(p) / facts->multiprocessors;
  return 3 + (0.025 + 0.01 * waves) * (double)p->k;
}

static void prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) {
  const double most = 4.0 * facts->multiprocessors, count = tiles(p);
  launch->grid[0] = (uint32_t)(count < most ? count : most);
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = DG_ANY_THREADS;
  launch->overlap = true;
}

static void prepare_grouped(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) {
  (void)p; /* how many tiles there are is known on the device only */
  launch->grid[0] = 4 * (uint32_t)facts->multiprocessors;
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = DG_ANY_THREADS;
}

const dg_gpu_kernel dg_cuda_tc16_any_rows[] = {
    {"tc16_any_sm90a", "dg_tc16_any", dg_cuda_tc16_any_image, DG_ORDER_TC16, 90, 90, fits,
     microseconds, prepare},
    {"tc16_grouped_sm90a", "dg_tc16_grouped", dg_cuda_tc16_any_image, DG_ORDER_TC16, 90, 90,
     dg_gpu_fits_grouped, dg_gpu_only_forced, prepare_grouped},
};
const int dg_cuda_tc16_any_count = 2;
