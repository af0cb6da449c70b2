/* The row of fma_naive.cu. It costs more than any other, so it runs only where DETGEMM_KERNEL asks
 * for it or nothing else fits. */
#include <math.h>

#include "cuda.h"

static bool fits(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return true;
}

static double microseconds(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return HUGE_VAL;
}

static void prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) {
  (void)facts;
  const double blocks = ceil((double)p->m * (double)p->n * (double)p->batch / 256);
  launch->grid[0] = blocks < 1 << 30 ? (uint32_t)blocks : 1u << 30;
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = 256;
}

const dg_gpu_kernel dg_cuda_fma_naive_rows[] = {
    {"fma_1x1_sm80", "dg_fma_naive", dg_cuda_fma_naive_image, DG_ORDER_FMA, 80, 999, fits,
     microseconds, prepare},
};
const int dg_cuda_fma_naive_count = 1;
