/* Memory of an NVIDIA, Moore Threads or AMD GPU, in the device's primary context, which the
 * vendor's runtime uses too. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "tool.h"

/* Platforms whose drivers are one design under different names. */
typedef struct vendor {
  const memory_platform *platform;
  const char *prefix; /* in place of "cu" */
  const char *libraries[4];
} vendor;

static const vendor vendors[] = {
    {&memory_cuda, "cu", {"libcuda.so.1"}},
    {&memory_musa, "mu", {"libmusa.so.1", "libmusa.so"}},
    {&memory_hip, "hip", {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}},
};

static const vendor *vendor_of(const device_memory *memory) {
  for (size_t i = 0; i < sizeof vendors / sizeof vendors[0]; i++)
    if (vendors[i].platform == memory->platform) return &vendors[i];
  return NULL;
}

cuda_driver *cuda_of(const device_memory *memory) {
  return vendor_of(memory) ? memory->state : NULL;
}

bool cuda_check(const cuda_driver *cuda, int result, const char *call) {
  const char *name = NULL;
  if (result == 0) return true;
  if (cuda->cuGetErrorName == NULL || cuda->cuGetErrorName(result, &name) != 0 || name == NULL)
    name = "error";
  complain("%s failed: %s (%d)", call, name, result);
  return false;
}

/* The functions that AMD names in its own way. */
static const char *hip_name(const char *name) {
  static const char *const pairs[][2] = {{"cuMemAlloc_v2", "hipMalloc"},
                                         {"cuMemFree_v2", "hipFree"},
                                         {"cuGetErrorName", "hipDrvGetErrorName"},
                                         {"cuStreamCreate", "hipStreamCreateWithFlags"},
                                         {"cuEventCreate", "hipEventCreateWithFlags"}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
    if (strcmp(pairs[i][0], name) == 0) return pairs[i][1];
  return NULL;
}

/* A function by its CUDA name: under the vendor's prefix, with _v2 or without. */
static void *find(void *library, const char *prefix, const char *name) {
  char text[64];
  const char *own = strcmp(prefix, "hip") == 0 ? hip_name(name) : NULL;
  if (own) return dlsym(library, own);
  snprintf(text, sizeof text, "%s%s", prefix, name + 2);
  void *symbol = dlsym(library, text);
  char *version = strstr(text, "_v2");
  if (symbol || version == NULL) return symbol;
  *version = '\0';
  return dlsym(library, text);
}

static bool load(cuda_driver *cuda, const vendor *v) {
  for (int i = 0; cuda->library == NULL && v->libraries[i]; i++)
    cuda->library = dlopen(v->libraries[i], RTLD_NOW | RTLD_LOCAL);
  if (cuda->library == NULL) {
    complain("%s", dlerror());
    return false;
  }
  void *symbol;
#define CUDA_LOAD(name, parameters)                                                \
  symbol = find(cuda->library, v->prefix, #name);                                  \
  if (symbol == NULL && strcmp(#name, "cuGetErrorName") != 0) {                    \
    complain("%s lacks %s%s; it is old", v->libraries[0], v->prefix, &(#name)[2]); \
    return false;                                                                  \
  }                                                                                \
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
  if (load(cuda, vendor_of(memory)) && cuda_check(cuda, cuda->cuInit(0), "cuInit") &&
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

#define PLATFORM(name) \
  { name, cuda_open, cuda_close, cuda_alloc, cuda_release, cuda_to_device, cuda_to_host, cuda_sync }
const memory_platform memory_cuda = PLATFORM("cuda");
const memory_platform memory_musa = PLATFORM("musa");
const memory_platform memory_hip = PLATFORM("hip");
