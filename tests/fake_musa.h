/* The names of libmusa.so.1. The driver exports some functions with _v2 and some without; this
 * double has one of each kind, so that both are looked for. */
#define FAKE_init muInit
#define FAKE_error_name muGetErrorName
#define FAKE_version muDriverGetVersion
#define FAKE_device_count muDeviceGetCount
#define FAKE_device_get muDeviceGet
#define FAKE_device_name muDeviceGetName
#define FAKE_device_attribute muDeviceGetAttribute
#define FAKE_context_retain muDevicePrimaryCtxRetain
#define FAKE_context_release muDevicePrimaryCtxRelease_v2
#define FAKE_context_get muCtxGetCurrent
#define FAKE_context_push muCtxPushCurrent_v2
#define FAKE_context_pop muCtxPopCurrent
#define FAKE_module_load muModuleLoadData
#define FAKE_module_unload muModuleUnload
#define FAKE_module_function muModuleGetFunction
#define FAKE_function_get muFuncGetAttribute
#define FAKE_function_set muFuncSetAttribute
#define FAKE_launch muLaunchKernel
#define FAKE_launch_config muLaunchKernelEx
#define FAKE_encode_map muTensorMapEncodeTiled
#define FAKE_pointer_get_one muPointerGetAttribute
#define FAKE_alloc muMemAlloc_v2
#define FAKE_release muMemFree
#define FAKE_copy_in muMemcpyHtoD_v2
#define FAKE_copy_out muMemcpyDtoH_v2
#define FAKE_context_set muCtxSetCurrent
#define FAKE_TOOL(name) mu##name /* what only the tool calls */
#define FAKE_EVENT_CREATE muEventCreate
#define FAKE_stream_create muStreamCreate
#define FAKE_stream_destroy muStreamDestroy_v2

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
  FAKE_POINTER_ACCESS = 16
};
#define FAKE_ERROR_PREFIX "MUSA_ERROR_"
/* An MTT S5000. */
#define FAKE_ONLY_FMA
#define FAKE_CAPABILITY 3, 1
#define FAKE_SHARED 196608
#define FAKE_WARP_SIZE 32
