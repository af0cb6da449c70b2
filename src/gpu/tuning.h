/* What a row's prepare() tells its kernel besides the problem. */
#ifndef DETGEMM_GPU_TUNING_H
#define DETGEMM_GPU_TUNING_H

#if !defined(__OPENCL_VERSION__)
#include <stdint.h>
#endif

typedef struct dg_gpu_tuning {
  int32_t v[8];
} dg_gpu_tuning;

/* The words of v in the fma kernels (fma_gemm.inc): how to read a and b, flags, and how many
 * blocks there are. */
enum { DG_FMA_READ_A, DG_FMA_READ_B, DG_FMA_FLAGS, DG_FMA_BLOCKS };
/* A read: four neighbours along the lines (m or n) and not along k; they are one aligned vector. */
enum { DG_FMA_ALONG_LINES = 1, DG_FMA_VECTOR = 2 };
/* Flags: there is a start, a bias; four columns of out are one aligned vector. */
enum { DG_FMA_HAS_START = 1, DG_FMA_HAS_BIAS = 2, DG_FMA_OUT_VECTOR = 4 };

#endif
