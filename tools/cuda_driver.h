/* The few functions of the CUDA driver that the tool uses, from libcuda.so.1 at run time. */
#ifndef DETGEMM_CUDA_DRIVER_H
#define DETGEMM_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "device_memory.h"

typedef unsigned long long cuda_pointer; /* CUdeviceptr */

/* name, parameters: all return a CUresult. The names are the driver's exported symbols. */
#define CUDA_FUNCTIONS(F)                                               \
  F(cuInit, (unsigned))                                                 \
  F(cuGetErrorName, (int, const char **))                               \
  F(cuDeviceGet, (int *, int))                                          \
  F(cuDevicePrimaryCtxRetain, (void **, int))                           \
  F(cuDevicePrimaryCtxRelease_v2, (int))                                \
  F(cuCtxSetCurrent, (void *))                                          \
  F(cuCtxSynchronize, (void))                                           \
  F(cuMemAlloc_v2, (cuda_pointer *, size_t))                            \
  F(cuMemFree_v2, (cuda_pointer))                                       \
  F(cuMemcpyHtoD_v2, (cuda_pointer, const void *, size_t))              \
  F(cuMemcpyDtoH_v2, (void *, cuda_pointer, size_t))                    \
  F(cuMemcpyDtoDAsync_v2, (cuda_pointer, cuda_pointer, size_t, void *)) \
  F(cuStreamCreate, (void **, unsigned))                                \
  F(cuStreamDestroy_v2, (void *))                                       \
  F(cuStreamSynchronize, (void *))                                      \
  F(cuStreamBeginCapture_v2, (void *, int))                             \
  F(cuStreamEndCapture, (void *, void **))                              \
  F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) \
  F(cuGraphLaunch, (void *, void *))                                    \
  F(cuGraphExecDestroy, (void *))                                       \
  F(cuGraphDestroy, (void *))                                           \
  F(cuEventCreate, (void **, unsigned))                                 \
  F(cuEventDestroy_v2, (void *))                                        \
  F(cuEventRecord, (void *, void *))                                    \
  F(cuEventSynchronize, (void *))                                       \
  F(cuEventElapsedTime, (float *, void *, void *))

typedef struct cuda_driver {
  void *library, *context;
  int device;
#define CUDA_FIELD(name, parameters) int(*name) parameters;
  CUDA_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
} cuda_driver;

/* The driver behind the memory of a cuda device; NULL for another platform. */
cuda_driver *cuda_of(const device_memory *memory);

/* true for success (0); else complains with the call and the error's name. */
bool cuda_check(const cuda_driver *cuda, int result, const char *call);

#endif
