/* The kernel rows of the CUDA back end: each .cu file has them in the .c file beside it, as
 * dg_cuda_<file>_rows and dg_cuda_<file>_count, and is embedded as dg_cuda_<file>_image. */
#ifndef DETGEMM_CUDA_H
#define DETGEMM_CUDA_H

#include "../../internal.h"
#include "../gpu.h"

/* One line per .cu file; CMakeLists.txt lists them too. */
#define DG_CUDA_FILES(F) F(fma) F(fma_grouped) F(tc16_any) F(tc16_copy) F(tc16_stream) F(tc16_wgmma)

#ifdef DETGEMM_CUDA_KERNELS /* defined by the build where it compiles them */
#define DG_CUDA_IMAGE DG_GPU_IMAGE
#else
#define DG_CUDA_IMAGE DG_GPU_NO_IMAGE
#endif

#define DG_CUDA_DECLARE(file)                         \
  extern const dg_gpu_kernel dg_cuda_##file##_rows[]; \
  extern const int dg_cuda_##file##_count;            \
  DG_CUDA_IMAGE(dg_cuda_##file##_image);
DG_CUDA_FILES(DG_CUDA_DECLARE)
#undef DG_CUDA_DECLARE

/* table.c: all rows in one sequence; NULL past the end. */
const dg_gpu_kernel *dg_cuda_row(int index);

extern const dg_backend dg_cuda_backend;

#endif
