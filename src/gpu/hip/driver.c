/* The HIP back end: AMD's runtime under the common executor. Its attribute numbers are its own, and
 * no function has a second version. Never run on an AMD GPU. */
#include <dlfcn.h>
#include <string.h>

#include "../driver.h"
#include "hip.h"

#define FIELD(name) offsetof(dg_gpu_driver, name)

static const dg_gpu_symbol symbols[] = {
    {FIELD(init), {"hipInit"}, false},
    {FIELD(error_name), {"hipDrvGetErrorName"}, true}, /* from 6.0 on; see adapt() */
    {FIELD(version), {"hipDriverGetVersion"}, false},
    {FIELD(device_count), {"hipGetDeviceCount"}, false},
    {FIELD(device_get), {"hipDeviceGet"}, false},
    {FIELD(device_name), {"hipDeviceGetName"}, false},
    {FIELD(device_attribute), {"hipDeviceGetAttribute"}, false},
    {FIELD(context_retain), {"hipDevicePrimaryCtxRetain"}, false},
    {FIELD(context_release), {"hipDevicePrimaryCtxRelease"}, false},
    {FIELD(context_get), {"hipCtxGetCurrent"}, false},
    {FIELD(context_push), {"hipCtxPushCurrent"}, false},
    {FIELD(context_pop), {"hipCtxPopCurrent"}, false},
    {FIELD(module_load), {"hipModuleLoadData"}, false},
    {FIELD(module_unload), {"hipModuleUnload"}, false},
    {FIELD(module_function), {"hipModuleGetFunction"}, false},
    {FIELD(launch), {"hipModuleLaunchKernel"}, false},
    {FIELD(pointer_get_one), {"hipPointerGetAttribute"}, true},
    {FIELD(alloc), {"hipMalloc"}, false},
    {FIELD(release), {"hipFree"}, false},
    {FIELD(copy_in), {"hipMemcpyHtoD"}, false},
    {FIELD(copy_out), {"hipMemcpyDtoH"}, false},
};

/* hipDeviceAttribute_t. A block's memory is fixed: there is none to opt in to. */
enum { MAJOR = 23, MINOR = 61, MULTIPROCESSORS = 63, SHARED = 74, WARP = 87 };

static const char *(*get_error_name)(int error);

static int error_name(int error, const char **name) {
  *name = get_error_name ? get_error_name(error) : NULL;
  return 0;
}

static void adapt(dg_gpu_driver *driver, void *library) {
  void *address = dlsym(library, "hipGetErrorName");
  memcpy(&get_error_name, &address, sizeof address);
  if (driver->error_name == NULL) driver->error_name = error_name;
}

static const char *unmeasured(int order) {
  return order == DG_ORDER_TC16 ? ", whose matrix cores' order of summation was not measured" : "";
}

static int doubt(const dg_gpu_driver *driver, int device, dg_gpu_facts *facts, const char **why) {
  enum { LEAST_SHARED = 16 << 10, MOST_SHARED = 1 << 20 };
  int warp = 0;
  const int error = driver->device_attribute(&warp, WARP, device);
  if (facts->arch < 80 || facts->arch > 159) *why = "gives an architecture outside gfx8 to gfx15";
  else if (warp != 32 && warp != 64) *why = "gives a wavefront other than 32 and 64";
  else if (facts->multiprocessors < 1 || facts->multiprocessors > 1024)
    *why = "gives a number of compute units outside 1 to 1024";
  else if (facts->shared_bytes < LEAST_SHARED || facts->shared_bytes > MOST_SHARED)
    *why = "gives an impossible size of block memory";
  return error;
}

static dg_gpu_platform platform = {
    .name = "hip",
    .title = "HIP",
    .capability = "gfx",
    .no_library = "install ROCm's runtime, or use \"cpu\"",
    .no_device = "see what rocminfo says, and unset HIP_VISIBLE_DEVICES",
    .no_images =
        "build it where clang 14 or later with the AMDGPU target is, with -DDETGEMM_HIP=ON",
    .libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof symbols[0],
    .attributes = {.major = MAJOR,
                   .minor = MINOR,
                   .multiprocessors = MULTIPROCESSORS,
                   .shared_optin = SHARED,
                   .pointer_type = 2,
                   .pointer_device = 9,
                   .pointer_access = 16},
    .row = dg_hip_row,
    .unmeasured = unmeasured,
    .adapt = adapt,
    .doubt = doubt,
};

static int count(void) { return dg_gpu_count(&platform); }

static dg_status open_device(dg_device *device, int index) {
  return dg_gpu_open(&platform, device, index);
}

const dg_backend dg_hip_backend = {
    .name = "hip",
    .numbered = true,
    .count = count,
    .open = open_device,
    .close = dg_gpu_close,
    .choose = dg_gpu_recall,
    .takes = dg_gpu_takes,
    .run = dg_gpu_run,
    .run_grouped = dg_gpu_run_grouped,
};
