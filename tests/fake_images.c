/* Stand-ins for the device images in builds without the device's compiler, so that the test double
 * has something to load. */
#include "../src/gpu/cuda/cuda.h"

#ifndef DETGEMM_CUDA_KERNELS
#define IMAGE(file) \
  _Alignas(16) const unsigned char dg_cuda_##file##_image[] = "fake image of " #file;
DG_CUDA_FILES(IMAGE)
#endif
