/* A test double of libmusa.so.1 that hands every call to an NVIDIA driver. The device calls itself
 * mp 3.1, or what the environment's FORWARD_MP says, such as 21. Build it as a shared library named
 * libmusa.so.1. */
#include "forward.h"

FORWARD(muInit, "cuInit")
FORWARD(muGetErrorName, "cuGetErrorName")
FORWARD(muDriverGetVersion, "cuDriverGetVersion")
FORWARD(muDeviceGetCount, "cuDeviceGetCount")
FORWARD(muDeviceGet, "cuDeviceGet")
FORWARD(muDeviceGetName, "cuDeviceGetName")
FORWARD(muDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")
FORWARD(muDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2")
FORWARD(muCtxGetCurrent, "cuCtxGetCurrent")
FORWARD(muCtxSetCurrent, "cuCtxSetCurrent")
FORWARD(muCtxSynchronize, "cuCtxSynchronize")
FORWARD(muCtxPushCurrent, "cuCtxPushCurrent_v2")
FORWARD(muCtxPopCurrent, "cuCtxPopCurrent_v2")
FORWARD(muModuleLoadData, "cuModuleLoadData")
FORWARD(muModuleUnload, "cuModuleUnload")
FORWARD(muModuleGetFunction, "cuModuleGetFunction")
FORWARD(muFuncGetAttribute, "cuFuncGetAttribute")
FORWARD(muFuncSetAttribute, "cuFuncSetAttribute")
FORWARD(muPointerGetAttribute, "cuPointerGetAttribute")
FORWARD(muMemAlloc_v2, "cuMemAlloc_v2")
FORWARD(muMemFree_v2, "cuMemFree_v2")
FORWARD(muMemcpyHtoD_v2, "cuMemcpyHtoD_v2")
FORWARD(muMemcpyDtoH_v2, "cuMemcpyDtoH_v2")
FORWARD(muMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync_v2")
FORWARD(muStreamCreate, "cuStreamCreate")
FORWARD(muStreamDestroy_v2, "cuStreamDestroy_v2")
FORWARD(muStreamSynchronize, "cuStreamSynchronize")
FORWARD(muStreamBeginCapture_v2, "cuStreamBeginCapture_v2")
FORWARD(muStreamEndCapture, "cuStreamEndCapture")
FORWARD(muGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")
FORWARD(muGraphLaunch, "cuGraphLaunch")
FORWARD(muGraphExecDestroy, "cuGraphExecDestroy")
FORWARD(muGraphDestroy, "cuGraphDestroy")
FORWARD(muEventCreate, "cuEventCreate")
FORWARD(muEventDestroy_v2, "cuEventDestroy_v2")
FORWARD(muEventRecord, "cuEventRecord")
FORWARD(muEventSynchronize, "cuEventSynchronize")
FORWARD(muEventElapsedTime, "cuEventElapsedTime")
FORWARD_LAUNCH(muLaunchKernel)

EXPORT int muDeviceGetAttribute(int *value, int attribute, int device);
int muDeviceGetAttribute(int *value, int attribute, int device) {
  enum { MAJOR = 75, MINOR = 76, WARP = 10, SHARED_OPTIN = 97, KIB = 1024 };
  const char *wanted = getenv("FORWARD_MP");
  const int mp = wanted ? atoi(wanted) : 31;
  const int error = cuda_attribute(value, attribute, device);
  if (error != 0) return error;
  if (attribute == MAJOR) *value = mp / 10;
  if (attribute == MINOR) *value = mp % 10;
  if (attribute == WARP) *value = mp >= 31 ? 32 : 128;
  if (attribute == SHARED_OPTIN) *value = (mp >= 31 ? 192 : mp >= 22 ? 72 : 28) * KIB;
  return 0;
}
