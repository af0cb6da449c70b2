/* Memory of an NVIDIA GPU, in the device's primary context, which the CUDA runtime uses too. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "tool.h"

cuda_driver *cuda_of(const device_memory *memory) {
  return memory->platform == &memory_cuda ? memory->state : NULL;
}

bool cuda_check(const cuda_driver *cuda, int result, const char *call) {
  const char *name = NULL;
  if (result == 0) return true;
  if (cuda->cuGetErrorName(result, &name) != 0 || name == NULL) name = "unknown error";
  complain("%s failed: %s (%d)", call, name, result);
  return false;
}

static bool load(cuda_driver *cuda) {
  cuda->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cuda->library == NULL) {
    complain("%s", dlerror());
    return false;
  }
  void *symbol;
#define CUDA_LOAD(name, parameters)                      \
  symbol = dlsym(cuda->library, #name);                  \
  if (symbol == NULL) {                                  \
    complain("libcuda.so.1 lacks " #name "; it is old"); \
    return false;                                        \
  }                                                      \
  memcpy(&cuda->name, &symbol, sizeof symbol);
  CUDA_FUNCTIONS(CUDA_LOAD)
#undef CUDA_LOAD
  return true;
}

static void cuda_close(device_memory *memory) {
  cuda_driver *cuda = memory->state;
  if (cuda->context) {
    cuda->cuCtxSetCurrent(NULL);
    cuda->cuDevicePrimaryCtxRelease_v2(cuda->device);
  }
  /* libcuda stays loaded: the library may hold it too, and it does not like to be unloaded. */
  free(cuda);
  memory->state = NULL;
}

static bool cuda_open(device_memory *memory, int index) {
  cuda_driver *cuda = calloc(1, sizeof *cuda);
  memory->state = cuda;
  if (cuda == NULL) {
    complain("no memory");
    return false;
  }
  if (load(cuda) && cuda_check(cuda, cuda->cuInit(0), "cuInit") &&
      cuda_check(cuda, cuda->cuDeviceGet(&cuda->device, index), "cuDeviceGet") &&
      cuda_check(cuda, cuda->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device),
                 "cuDevicePrimaryCtxRetain") &&
      cuda_check(cuda, cuda->cuCtxSetCurrent(cuda->context), "cuCtxSetCurrent"))
    return true;
  cuda_close(memory);
  return false;
}

static void *cuda_alloc(device_memory *memory, size_t bytes) {
  const cuda_driver *cuda = memory->state;
  cuda_pointer data = 0;
  if (!cuda_check(cuda, cuda->cuMemAlloc_v2(&data, bytes ? bytes : 1), "cuMemAlloc")) return NULL;
  return (void *)(uintptr_t)data;
}

static void cuda_release(device_memory *memory, void *data) {
  const cuda_driver *cuda = memory->state;
  if (data) cuda->cuMemFree_v2((cuda_pointer)(uintptr_t)data);
}

static bool cuda_to_device(device_memory *memory, void *device, const void *host, size_t bytes) {
  const cuda_driver *cuda = memory->state;
  return bytes == 0 ||
         cuda_check(cuda, cuda->cuMemcpyHtoD_v2((cuda_pointer)(uintptr_t)device, host, bytes),
                    "cuMemcpyHtoD");
}

static bool cuda_to_host(device_memory *memory, void *host, const void *device, size_t bytes) {
  const cuda_driver *cuda = memory->state;
  return bytes == 0 ||
         cuda_check(cuda, cuda->cuMemcpyDtoH_v2(host, (cuda_pointer)(uintptr_t)device, bytes),
                    "cuMemcpyDtoH");
}

static bool cuda_sync(device_memory *memory) {
  const cuda_driver *cuda = memory->state;
  return cuda_check(cuda, cuda->cuCtxSynchronize(), "the device's work");
}

const memory_platform memory_cuda = {"cuda",       cuda_open,      cuda_close,   cuda_alloc,
                                     cuda_release, cuda_to_device, cuda_to_host, cuda_sync};
