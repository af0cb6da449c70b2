/* A test double of libamdhip64.so.6 that hands every call to an NVIDIA driver. Attribute numbers
 * are AMD's; the device calls itself gfx90. Build it as a shared library named libamdhip64.so.6. */
#include "forward.h"

FORWARD(hipInit, "cuInit")
FORWARD(hipDrvGetErrorName, "cuGetErrorName")
FORWARD(hipDriverGetVersion, "cuDriverGetVersion")
FORWARD(hipGetDeviceCount, "cuDeviceGetCount")
FORWARD(hipDeviceGet, "cuDeviceGet")
FORWARD(hipDeviceGetName, "cuDeviceGetName")
FORWARD(hipDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")
FORWARD(hipDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")
FORWARD(hipCtxGetCurrent, "cuCtxGetCurrent")
FORWARD(hipCtxSetCurrent, "cuCtxSetCurrent")
FORWARD(hipCtxSynchronize, "cuCtxSynchronize")
FORWARD(hipCtxPushCurrent, "cuCtxPushCurrent_v2")
FORWARD(hipCtxPopCurrent, "cuCtxPopCurrent_v2")
FORWARD(hipModuleLoadData, "cuModuleLoadData")
FORWARD(hipModuleUnload, "cuModuleUnload")
FORWARD(hipModuleGetFunction, "cuModuleGetFunction")
FORWARD(hipPointerGetAttribute, "cuPointerGetAttribute")
FORWARD(hipMalloc, "cuMemAlloc_v2")
FORWARD(hipFree, "cuMemFree_v2")
FORWARD(hipMemcpyHtoD, "cuMemcpyHtoD_v2")
FORWARD(hipMemcpyDtoH, "cuMemcpyDtoH_v2")
FORWARD(hipMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")
FORWARD(hipStreamCreateWithFlags, "cuStreamCreate")
FORWARD(hipStreamDestroy, "cuStreamDestroy_v2")
FORWARD(hipStreamSynchronize, "cuStreamSynchronize")
FORWARD(hipStreamBeginCapture, "cuStreamBeginCapture_v2")
FORWARD(hipStreamEndCapture, "cuStreamEndCapture")
FORWARD(hipGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")
FORWARD(hipGraphLaunch, "cuGraphLaunch")
FORWARD(hipGraphExecDestroy, "cuGraphExecDestroy")
FORWARD(hipGraphDestroy, "cuGraphDestroy")
FORWARD(hipEventCreateWithFlags, "cuEventCreate")
FORWARD(hipEventDestroy, "cuEventDestroy_v2")
FORWARD(hipEventRecord, "cuEventRecord")
FORWARD(hipEventSynchronize, "cuEventSynchronize")
FORWARD(hipEventElapsedTime, "cuEventElapsedTime")
FORWARD_LAUNCH(hipModuleLaunchKernel)

EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device);
int hipDeviceGetAttribute(int *value, int attribute, int device) {
  enum { INVALID_VALUE = 1, MAJOR = 23, MINOR = 61 };
  static const int numbers[][2] = {{MAJOR, 75}, {MINOR, 76}, {63, 16}, {74, 8}, {87, 10}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    if (numbers[i][0] != attribute) continue;
    const int error = cuda_attribute(value, numbers[i][1], device);
    if (error == 0 && attribute == MAJOR) *value = 9;
    if (error == 0 && attribute == MINOR) *value = 0;
    return error;
  }
  return INVALID_VALUE;
}
