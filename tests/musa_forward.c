/* A test double of libmusa.so.1 that hands every call to an NVIDIA driver: with NVIDIA images in
 * place of MUSA ones, the MUSA back end's host path runs on an NVIDIA GPU. The device calls itself
 * mp 3.1. Build it as a shared library named libmusa.so.1. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *find(const char *name) {
  static void *library;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
  void *address = library ? dlsym(library, name) : NULL;
  if (address == NULL) {
    fprintf(stderr, "the MUSA double finds no %s in libcuda.so.1\n", name);
    abort();
  }
  return address;
}

typedef unsigned long long word;
typedef int call(word, word, word, word, word, word);

/* All arguments are integers and pointers, which travel alike. */
#define FORWARD(musa, cuda)                                                            \
  __attribute__((visibility("default"))) int musa(word, word, word, word, word, word); \
  int musa(word a, word b, word c, word d, word e, word f) {                           \
    static call *to;                                                                   \
    if (to == NULL) *(void **)&to = find(cuda);                                        \
    return to(a, b, c, d, e, f);                                                       \
  }
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

__attribute__((visibility("default"))) int muDeviceGetAttribute(int *value, int attribute,
                                                                int device);
int muDeviceGetAttribute(int *value, int attribute, int device) {
  enum { MAJOR = 75, MINOR = 76 };
  int (*to)(int *, int, int);
  *(void **)&to = find("cuDeviceGetAttribute");
  const int error = to(value, attribute, device);
  if (error == 0 && attribute == MAJOR) *value = 3;
  if (error == 0 && attribute == MINOR) *value = 1;
  return error;
}

__attribute__((visibility("default"))) int muLaunchKernel(void *, unsigned, unsigned, unsigned,
                                                          unsigned, unsigned, unsigned, unsigned,
                                                          void *, void **, void **);
int muLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
  static int (*to)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void *, void **, void **);
  if (to == NULL) *(void **)&to = find("cuLaunchKernel");
  return to(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
