/* The MUSA back end: Moore Threads GPUs. */
#ifndef DETGEMM_MUSA_H
#define DETGEMM_MUSA_H

#include "../../internal.h"
#include "../gpu.h"

#ifdef DETGEMM_MUSA_KERNELS /* defined by the build where it compiles them */
DG_GPU_IMAGE(dg_musa_fma_image);
#else
DG_GPU_NO_IMAGE(dg_musa_fma_image);
#endif

/* table.c: NULL past the end. */
const dg_gpu_kernel *dg_musa_row(int index);

extern const dg_backend dg_musa_backend;

#endif
