/* The names of libamdhip64.so.6. Functions that AMD's runtime has not, or has in another shape,
 * have names that nobody looks for. */
#define FAKE_init hipInit
#define FAKE_error_name hipDrvGetErrorName
#define FAKE_version hipDriverGetVersion
#define FAKE_device_count hipGetDeviceCount
#define FAKE_device_get hipDeviceGet
#define FAKE_device_name hipDeviceGetName
#define FAKE_device_attribute hipDeviceGetAttribute
#define FAKE_context_retain hipDevicePrimaryCtxRetain
#define FAKE_context_release hipDevicePrimaryCtxRelease
#define FAKE_context_get hipCtxGetCurrent
#define FAKE_context_push hipCtxPushCurrent
#define FAKE_context_pop hipCtxPopCurrent
#define FAKE_module_load hipModuleLoadData
#define FAKE_module_unload hipModuleUnload
#define FAKE_module_function hipModuleGetFunction
#define FAKE_function_get fakeFunctionGet
#define FAKE_function_set fakeFunctionSet
#define FAKE_launch hipModuleLaunchKernel
#define FAKE_launch_config fakeLaunchConfig
#define FAKE_encode_map fakeEncodeMap
#define FAKE_pointer_get_one hipPointerGetAttribute
#define FAKE_alloc hipMalloc
#define FAKE_release hipFree
#define FAKE_copy_in hipMemcpyHtoD
#define FAKE_copy_out hipMemcpyDtoH
#define FAKE_context_set hipCtxSetCurrent
#define FAKE_TOOL(name) hip##name /* what only the tool calls */
#define FAKE_EVENT_CREATE hipEventCreateWithFlags
#define FAKE_stream_create hipStreamCreateWithFlags
#define FAKE_stream_destroy hipStreamDestroy

/* Attribute numbers. */
enum {
  FAKE_MAJOR = 23,
  FAKE_MINOR = 61,
  FAKE_MULTIPROCESSORS = 63,
  FAKE_SHARED_OPTIN = 74,
  FAKE_STATIC_SHARED = -1,
  FAKE_DYNAMIC_SHARED = -2,
  FAKE_PAGEABLE = -3,
  FAKE_WARP = 87,
  FAKE_POINTER_TYPE = 2,
  FAKE_POINTER_DEVICE = 9,
  FAKE_POINTER_ACCESS = 16
};
#define FAKE_ERROR_PREFIX "hipError"
/* An MI250X. */
#define FAKE_ONLY_FMA
#define FAKE_CAPABILITY 9, 0
#define FAKE_SHARED 65536
#define FAKE_WARP_SIZE 64
