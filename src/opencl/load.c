/* Finds the OpenCL library, its functions and its devices. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../gpu/driver.h"
#include "opencl.h"

dg_opencl_api dg_cl;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* within dg_gpu_lock() or alone */
static bool tried;
static char problem[200] =
    "this build has no OpenCL kernels; configure it with -DDETGEMM_OPENCL=ON";
static void *devices[DG_OPENCL_MAX_DEVICES];
static int device_count;

static bool load_library(void) {
  static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so"};
  void *library = NULL, *symbol;
  for (int i = 0; library == NULL && i < 2; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(problem, sizeof problem,
             "libOpenCL.so.1 cannot be loaded; install ocl-icd-libopencl1 and a driver, such as "
             "pocl-opencl-icd");
    return false;
  }
#define LOAD(result, name, parameters)                                                          \
  symbol = dlsym(library, #name);                                                               \
  if (symbol == NULL) {                                                                         \
    snprintf(problem, sizeof problem, "libOpenCL.so.1 has no " #name "; OpenCL 1.2 is needed"); \
    return false;                                                                               \
  }                                                                                             \
  memcpy(&dg_cl.name, &symbol, sizeof symbol);
  DG_OPENCL_FUNCTIONS(LOAD)
#undef LOAD
  return true;
}

static void list_devices(void) {
  const uint64_t all = 0xffffffffu; /* CL_DEVICE_TYPE_ALL */
  void *platforms[DG_OPENCL_MAX_DEVICES];
  uint32_t platform_count = 0;
  if (dg_cl.clGetPlatformIDs(DG_OPENCL_MAX_DEVICES, platforms, &platform_count) != 0)
    platform_count = 0;
  for (uint32_t i = 0; i < platform_count && i < DG_OPENCL_MAX_DEVICES; i++) {
    uint32_t count = 0;
    const int room = DG_OPENCL_MAX_DEVICES - device_count;
    if (room > 0 && dg_cl.clGetDeviceIDs(platforms[i], all, (uint32_t)room, devices + device_count,
                                         &count) == 0)
      device_count += (int)count < room ? (int)count : room;
  }
  if (device_count == 0)
    snprintf(problem, sizeof problem,
             "no OpenCL driver offers a device; see `clinfo -l`, and install one, such as "
             "pocl-opencl-icd");
}

int dg_opencl_load(const char **why) {
  pthread_mutex_lock(&lock);
  if (!tried) {
    tried = true;
    dg_gpu_mark_used();
    if (dg_opencl_has_kernels() && load_library()) list_devices();
  }
  pthread_mutex_unlock(&lock);
  *why = problem;
  return device_count;
}

void *dg_opencl_device(int index) { return devices[index]; }

dg_status dg_opencl_fail(int error, const char *call) {
  enum { ALLOCATION = -4, RESOURCES = -5, HOST_MEMORY = -6, BUFFER_SIZE = -61 };
  enum { QUEUE = -36, MEM_OBJECT = -38 };
  switch (error) {
    case ALLOCATION:
    case HOST_MEMORY:
    case BUFFER_SIZE:
      return dg_fail(DG_ERROR_MEMORY, "%s failed for lack of memory (%d); free some", call, error);
    case RESOURCES:
      return dg_fail(DG_ERROR_DEVICE,
                     "%s failed for lack of resources (%d), or an earlier kernel in the queue has "
                     "failed",
                     call, error);
    case QUEUE:
      return dg_fail(DG_ERROR_ARGUMENT, "%s failed: stream is no live cl_command_queue (%d)", call,
                     error);
    case MEM_OBJECT:
      return dg_fail(DG_ERROR_ARGUMENT, "%s failed: it is no live cl_mem (%d)", call, error);
    case 0: return dg_fail(DG_ERROR_DEVICE, "%s gave nothing and no error", call);
    default: return dg_fail(DG_ERROR_DEVICE, "%s failed with OpenCL error %d", call, error);
  }
}

dg_status dg_opencl_fail_launch(int error, const char *row) {
  enum { RESOURCES = -5, WORK_GROUP = -54, WORK_ITEM = -55 };
  if (error != RESOURCES && error != WORK_GROUP && error != WORK_ITEM)
    return dg_opencl_fail(error, row);
  return dg_fail(DG_ERROR_UNSUPPORTED,
                 "%s failed: the device has not the registers, threads or memory (%d); try a "
                 "smaller tile with DETGEMM_KERNEL",
                 row, error);
}
