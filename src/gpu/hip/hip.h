/* The HIP back end: AMD GPUs. */
#ifndef DETGEMM_HIP_H
#define DETGEMM_HIP_H

#include "../../internal.h"
#include "../gpu.h"

#ifdef DETGEMM_HIP_KERNELS /* defined by the build where it compiles them */
DG_GPU_IMAGE(dg_hip_fma_image);
#else
DG_GPU_NO_IMAGE(dg_hip_fma_image);
#endif

/* table.c: NULL past the end. */
const dg_gpu_kernel *dg_hip_row(int index);

extern const dg_backend dg_hip_backend;

#endif
