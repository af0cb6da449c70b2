/* The row of fma_grouped.cu. */
#include "../fma_rows.h"
#include "cuda.h"

const dg_gpu_kernel dg_cuda_fma_grouped_rows[] = {
    DG_FMA_GROUPED_ROW("sm80", dg_cuda_fma_grouped_image, 80),
};
const int dg_cuda_fma_grouped_count = 1;
