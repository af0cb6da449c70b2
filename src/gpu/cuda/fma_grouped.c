/* The row of fma_grouped.cu. */
#include "fma_grouped.h"

#include "cuda.h"

static void prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) {
  (void)p; /* how many tiles there are is known on the device only */
  launch->grid[0] = 4 * (uint32_t)facts->multiprocessors;
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = DG_FMA_GROUPED_THREADS;
}

const dg_gpu_kernel dg_cuda_fma_grouped_rows[] = {
    {"fma_grouped_sm80", "dg_fma_grouped", dg_cuda_fma_grouped_image, DG_ORDER_FMA, 80, 999,
     dg_gpu_fits_grouped, dg_gpu_only_forced, prepare},
};
const int dg_cuda_fma_grouped_count = 1;
