/* Stand-ins for the device images in builds without the device's compiler, so that the test double
 * has something to load. */
#include "../src/gpu/cuda/cuda.h"
#include "../src/gpu/hip/hip.h"
#include "../src/gpu/musa/musa.h"

#define IMAGE(name) _Alignas(16) const unsigned char name[] = "fake image " #name;
#ifndef DETGEMM_CUDA_KERNELS
#define CUDA_IMAGE(file) IMAGE(dg_cuda_##file##_image)
DG_CUDA_FILES(CUDA_IMAGE)
#endif
#ifndef DETGEMM_MUSA_KERNELS
IMAGE(dg_musa_fma_image)
#endif
#ifndef DETGEMM_HIP_KERNELS
IMAGE(dg_hip_fma_image)
#endif
