/* The CUDA back end: NVIDIA's driver under the common executor. */
#include "../driver.h"
#include "cuda.h"

#define FIELD(name) offsetof(dg_gpu_driver, name)

static const dg_gpu_symbol symbols[] = {
    {FIELD(init), {"cuInit"}, false},
    {FIELD(error_name), {"cuGetErrorName"}, false},
    {FIELD(version), {"cuDriverGetVersion"}, false},
    {FIELD(device_count), {"cuDeviceGetCount"}, false},
    {FIELD(device_get), {"cuDeviceGet"}, false},
    {FIELD(device_name), {"cuDeviceGetName"}, false},
    {FIELD(device_attribute), {"cuDeviceGetAttribute"}, false},
    {FIELD(context_retain), {"cuDevicePrimaryCtxRetain"}, false},
    {FIELD(context_release), {"cuDevicePrimaryCtxRelease_v2"}, false},
    {FIELD(context_get), {"cuCtxGetCurrent"}, false},
    {FIELD(context_push), {"cuCtxPushCurrent_v2"}, false},
    {FIELD(context_pop), {"cuCtxPopCurrent_v2"}, false},
    {FIELD(module_load), {"cuModuleLoadData"}, false},
    {FIELD(module_unload), {"cuModuleUnload"}, false},
    {FIELD(module_function), {"cuModuleGetFunction"}, false},
    {FIELD(function_get), {"cuFuncGetAttribute"}, false},
    {FIELD(function_set), {"cuFuncSetAttribute"}, false},
    {FIELD(launch), {"cuLaunchKernel"}, false},
    {FIELD(launch_config), {"cuLaunchKernelEx"}, false},
    {FIELD(encode_map), {"cuTensorMapEncodeTiled"}, false},
    {FIELD(pointer_get), {"cuPointerGetAttributes"}, false},
    {FIELD(alloc), {"cuMemAlloc_v2"}, false},
    {FIELD(release), {"cuMemFree_v2"}, false},
    {FIELD(copy_in), {"cuMemcpyHtoD_v2"}, false},
    {FIELD(copy_out), {"cuMemcpyDtoH_v2"}, false},
};

static const char *unmeasured(int order) {
  return order == DG_ORDER_TC16 ? ", whose tensor cores were not measured to sum in this order"
                                : "";
}

static dg_gpu_platform platform = {
    .name = "cuda",
    .title = "CUDA",
    .capability = "compute capability",
    .no_library = "install NVIDIA's driver, 525 or later, or use \"cpu\"",
    .no_device = "see what nvidia-smi says, and unset CUDA_VISIBLE_DEVICES",
    .no_images = "build it where nvcc 12 or later is, with -DDETGEMM_CUDA=ON",
    .libraries = {"libcuda.so.1", "libcuda.so"},
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof symbols[0],
    .attributes = {.major = 75,
                   .minor = 76,
                   .multiprocessors = 16,
                   .shared_optin = 97,
                   .function_static_shared = 1,
                   .function_dynamic_shared = 8,
                   .pageable = 88,
                   .pointer_type = 2,
                   .pointer_device = 9,
                   .pointer_access = 16,
                   .pointer_managed = 8},
    .row = dg_cuda_row,
    .unmeasured = unmeasured,
};

static int count(void) { return dg_gpu_count(&platform); }

static dg_status open_device(dg_device *device, int index) {
  return dg_gpu_open(&platform, device, index);
}

const dg_backend dg_cuda_backend = {
    .name = "cuda",
    .numbered = true,
    .count = count,
    .open = open_device,
    .close = dg_gpu_close,
    .choose = dg_gpu_recall,
    .takes = dg_gpu_takes,
    .run = dg_gpu_run,
    .run_grouped = dg_gpu_run_grouped,
};
