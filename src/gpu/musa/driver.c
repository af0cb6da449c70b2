/* The MUSA back end: Moore Threads' driver under the common executor. The names follow CUDA's;
 * where a function has a second version the library exports both, or only one of them. No public
 * copy of musa.h exists, so the attribute numbers are those of CUDA, as far as they are known to
 * agree, and what a device says is checked before it is believed. Never run on a Moore Threads GPU.
 */
#include "../driver.h"
#include "musa.h"

#define FIELD(name) offsetof(dg_gpu_driver, name)

static const dg_gpu_symbol symbols[] = {
    {FIELD(init), {"muInit"}, false},
    {FIELD(error_name), {"muGetErrorName"}, false},
    {FIELD(version), {"muDriverGetVersion"}, false},
    {FIELD(device_count), {"muDeviceGetCount"}, false},
    {FIELD(device_get), {"muDeviceGet"}, false},
    {FIELD(device_name), {"muDeviceGetName"}, false},
    {FIELD(device_attribute), {"muDeviceGetAttribute"}, false},
    {FIELD(context_retain), {"muDevicePrimaryCtxRetain"}, false},
    {FIELD(context_release), {"muDevicePrimaryCtxRelease_v2", "muDevicePrimaryCtxRelease"}, false},
    {FIELD(context_get), {"muCtxGetCurrent"}, false},
    {FIELD(context_push), {"muCtxPushCurrent_v2", "muCtxPushCurrent"}, false},
    {FIELD(context_pop), {"muCtxPopCurrent_v2", "muCtxPopCurrent"}, false},
    {FIELD(module_load), {"muModuleLoadData"}, false},
    {FIELD(module_unload), {"muModuleUnload"}, false},
    {FIELD(module_function), {"muModuleGetFunction"}, false},
    {FIELD(function_get), {"muFuncGetAttribute"}, true},
    {FIELD(function_set), {"muFuncSetAttribute"}, true},
    {FIELD(launch), {"muLaunchKernel"}, false},
    {FIELD(pointer_get_one), {"muPointerGetAttribute"}, true},
    {FIELD(alloc), {"muMemAlloc_v2", "muMemAlloc"}, false},
    {FIELD(release), {"muMemFree_v2", "muMemFree"}, false},
    {FIELD(copy_in), {"muMemcpyHtoD_v2", "muMemcpyHtoD"}, false},
    {FIELD(copy_out), {"muMemcpyDtoH_v2", "muMemcpyDtoH"}, false},
};

enum { MAJOR = 75, MINOR = 76, WARP = 10, MULTIPROCESSORS = 16, SHARED_OPTIN = 97 };

static const char *unmeasured(int order) {
  return order == DG_ORDER_TC16 ? ", whose tensor units' order of summation is not public" : "";
}

/* Block memory by architecture, for a driver whose attribute makes no sense. */
static int known_shared(int arch) {
  enum { KIB = 1024 };
  return arch >= 31 ? 192 * KIB : arch >= 22 ? 72 * KIB : 28 * KIB;
}

static int doubt(const dg_gpu_driver *driver, int device, dg_gpu_facts *facts, const char **why) {
  enum { LEAST_SHARED = 16 << 10, MOST_SHARED = 1 << 20 };
  int warp = 0;
  const int error = driver->device_attribute(&warp, WARP, device);
  if (facts->arch < 20 || facts->arch > 69) *why = "gives a capability outside mp 2.0 to 6.9";
  else if (warp != 32 && warp != 128) *why = "gives a warp size other than 32 and 128";
  else if (facts->multiprocessors < 1 || facts->multiprocessors > 512)
    *why = "gives a number of multiprocessors outside 1 to 512";
  if (facts->shared_bytes < LEAST_SHARED || facts->shared_bytes > MOST_SHARED)
    facts->shared_bytes = known_shared(facts->arch);
  return error;
}

static dg_gpu_platform platform = {
    .name = "musa",
    .title = "MUSA",
    .capability = "mp",
    .no_library = "install Moore Threads' driver, or use \"cpu\"",
    .no_device = "see what mthreads-gmi says, and unset MUSA_VISIBLE_DEVICES",
    .no_images = "build it where mcc is, with -DDETGEMM_MUSA=ON",
    .libraries = {"libmusa.so.1", "libmusa.so"},
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof symbols[0],
    .attributes = {.major = MAJOR,
                   .minor = MINOR,
                   .multiprocessors = MULTIPROCESSORS,
                   .shared_optin = SHARED_OPTIN,
                   .function_static_shared = 1,
                   .function_dynamic_shared = 8,
                   .pointer_type = 2,
                   .pointer_device = 9,
                   .pointer_access = 16},
    .row = dg_musa_row,
    .unmeasured = unmeasured,
    .doubt = doubt,
};

static int count(void) { return dg_gpu_count(&platform); }

static dg_status open_device(dg_device *device, int index) {
  return dg_gpu_open(&platform, device, index);
}

const dg_backend dg_musa_backend = {
    .name = "musa",
    .numbered = true,
    .count = count,
    .open = open_device,
    .close = dg_gpu_close,
    .choose = dg_gpu_recall,
    .takes = dg_gpu_takes,
    .run = dg_gpu_run,
    .run_grouped = dg_gpu_run_grouped,
};
