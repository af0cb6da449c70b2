/* The names of libcuda.so.1. */
#define FAKE_init cuInit
#define FAKE_error_name cuGetErrorName
#define FAKE_version cuDriverGetVersion
#define FAKE_device_count cuDeviceGetCount
#define FAKE_device_get cuDeviceGet
#define FAKE_device_name cuDeviceGetName
#define FAKE_device_attribute cuDeviceGetAttribute
#define FAKE_context_retain cuDevicePrimaryCtxRetain
#define FAKE_context_release cuDevicePrimaryCtxRelease_v2
#define FAKE_context_get cuCtxGetCurrent
#define FAKE_context_push cuCtxPushCurrent_v2
#define FAKE_context_pop cuCtxPopCurrent_v2
#define FAKE_module_load cuModuleLoadData
#define FAKE_module_unload cuModuleUnload
#define FAKE_module_function cuModuleGetFunction
#define FAKE_function_get cuFuncGetAttribute
#define FAKE_function_set cuFuncSetAttribute
#define FAKE_launch cuLaunchKernel
#define FAKE_launch_config cuLaunchKernelEx
#define FAKE_encode_map cuTensorMapEncodeTiled
#define FAKE_pointer_get cuPointerGetAttributes
#define FAKE_alloc cuMemAlloc_v2
#define FAKE_release cuMemFree_v2
#define FAKE_copy_in cuMemcpyHtoD_v2
#define FAKE_copy_out cuMemcpyDtoH_v2
#define FAKE_context_set cuCtxSetCurrent
#define FAKE_TOOL(name) cu##name /* what only the tool calls */
#define FAKE_EVENT_CREATE cuEventCreate
#define FAKE_stream_create cuStreamCreate
#define FAKE_stream_destroy cuStreamDestroy_v2

/* Attribute numbers. */
enum {
  FAKE_MAJOR = 75,
  FAKE_MINOR = 76,
  FAKE_MULTIPROCESSORS = 16,
  FAKE_SHARED_OPTIN = 97,
  FAKE_STATIC_SHARED = 1,
  FAKE_DYNAMIC_SHARED = 8,
  FAKE_PAGEABLE = 88,
  FAKE_WARP = 10,
  FAKE_POINTER_TYPE = 2,
  FAKE_POINTER_DEVICE = 9,
  FAKE_POINTER_ACCESS = 16,
  FAKE_POINTER_MANAGED = 8
};
#define FAKE_ERROR_PREFIX "CUDA_ERROR_"
/* An H200. */
#define FAKE_CAPABILITY 9, 0
#define FAKE_SHARED 232448
#define FAKE_WARP_SIZE 32
