/* The OpenCL back end: the portable fma kernels through any OpenCL 1.2 driver. The declarations are
 * ours; libOpenCL is opened at run time. */
#ifndef DETGEMM_OPENCL_H
#define DETGEMM_OPENCL_H

#include <pthread.h>

#include "../gpu/gpu.h"
#include "../internal.h"

/* Handles (cl_platform_id, cl_context, ...) are void *; numbers as in CL/cl.h. */
#define DG_OPENCL_FUNCTIONS(F)                                                                     \
  F(int, clGetPlatformIDs, (uint32_t, void **, uint32_t *))                                        \
  F(int, clGetDeviceIDs, (void *, uint64_t, uint32_t, void **, uint32_t *))                        \
  F(int, clGetDeviceInfo, (void *, uint32_t, size_t, void *, size_t *))                            \
  F(void *, clCreateContext,                                                                       \
    (const intptr_t *, uint32_t, void *const *,                                                    \
     void (*)(const char *, const void *, size_t, void *), void *, int *))                         \
  F(int, clRetainContext, (void *))                                                                \
  F(int, clReleaseContext, (void *))                                                               \
  F(void *, clCreateCommandQueue, (void *, void *, uint64_t, int *))                               \
  F(int, clReleaseCommandQueue, (void *))                                                          \
  F(int, clGetCommandQueueInfo, (void *, uint32_t, size_t, void *, size_t *))                      \
  F(void *, clCreateProgramWithSource, (void *, uint32_t, const char **, const size_t *, int *))   \
  F(int, clBuildProgram,                                                                           \
    (void *, uint32_t, void *const *, const char *, void (*)(void *, void *), void *))             \
  F(int, clGetProgramBuildInfo, (void *, void *, uint32_t, size_t, void *, size_t *))              \
  F(int, clReleaseProgram, (void *))                                                               \
  F(void *, clCreateKernel, (void *, const char *, int *))                                         \
  F(int, clReleaseKernel, (void *))                                                                \
  F(int, clSetKernelArg, (void *, uint32_t, size_t, const void *))                                 \
  F(void *, clCreateBuffer, (void *, uint64_t, size_t, void *, int *))                             \
  F(int, clRetainMemObject, (void *))                                                              \
  F(int, clReleaseMemObject, (void *))                                                             \
  F(int, clGetMemObjectInfo, (void *, uint32_t, size_t, void *, size_t *))                         \
  F(int, clEnqueueNDRangeKernel,                                                                   \
    (void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,           \
     void *const *, void **))                                                                      \
  F(void *, clEnqueueMapBuffer,                                                                    \
    (void *, void *, uint32_t, uint64_t, size_t, size_t, uint32_t, void *const *, void **, int *)) \
  F(int, clEnqueueUnmapMemObject, (void *, void *, void *, uint32_t, void *const *, void **))      \
  F(int, clFlush, (void *))                                                                        \
  F(int, clFinish, (void *))

typedef struct dg_opencl_api {
#define DG_OPENCL_FIELD(result, name, parameters) result(*name) parameters;
  DG_OPENCL_FUNCTIONS(DG_OPENCL_FIELD)
#undef DG_OPENCL_FIELD
} dg_opencl_api;

/* load.c: the functions, once dg_opencl_load() has been called. */
extern dg_opencl_api dg_cl;

/* load.c: loads the library and lists the devices of all platforms, once per process. Returns how
 * many; 0: *why says what is missing. */
enum { DG_OPENCL_MAX_DEVICES = 16 };
int dg_opencl_load(const char **why);
void *dg_opencl_device(int index);

/* load.c: a failed call as a status and a sentence. */
dg_status dg_opencl_fail(int error, const char *call);

/* load.c: the same for a launch; DG_ERROR_UNSUPPORTED where the device cannot run this row. */
dg_status dg_opencl_fail_launch(int error, const char *row);

/* table.c. A row's arch_min: the kind of device it needs. */
enum { DG_OPENCL_GPU = 0, DG_OPENCL_CPU = 1 };
const dg_gpu_kernel *dg_opencl_row(int index); /* NULL past the end */
enum { DG_OPENCL_MAX_ROWS = 16 };

/* program.c: the kernels in one context: our own, or that of a caller's queue. */
typedef struct dg_opencl_program {
  struct dg_opencl_program *next;
  void *context, *queue, *program, *kernels[DG_OPENCL_MAX_ROWS];
} dg_opencl_program;
bool dg_opencl_has_kernels(void); /* whether this build has them */
/* arch: DG_OPENCL_CPU or DG_OPENCL_GPU; context: NULL for one of our own. */
dg_status dg_opencl_build(void *device, int arch, void *context, dg_opencl_program **program);
void dg_opencl_program_free(dg_opencl_program *x);

/* memory.c: the operands of a product, and a grouped product's offsets, as buffers and offsets. */
enum { DG_OPENCL_OPERANDS = 5, DG_OPENCL_OFFSETS = DG_OPENCL_OPERANDS, DG_OPENCL_BUFFERS };
typedef struct dg_opencl_memory {
  int count; /* of the stretches of plain memory that the operands lie in */
  struct dg_opencl_stretch {
    uintptr_t low, high;
    void *buffer;
    bool written, svm;
  } stretches[DG_OPENCL_BUFFERS];
  void *buffers[DG_OPENCL_BUFFERS]; /* a, b, out, start, bias, offsets; NULL: absent */
} dg_opencl_memory;
/* Makes the buffers, and changes the data pointers of g and its product to offsets in them. */
dg_status dg_opencl_bind(void *context, dg_grouped *g, dg_opencl_memory *memory);
/* Whether a grouped product's offsets are in plain memory, where the host can check them. */
bool dg_opencl_reads_offsets(const dg_opencl_memory *memory);
/* Brings results back to plain memory, if there is any: the product is finished then. */
dg_status dg_opencl_finish(void *queue, const dg_opencl_memory *memory);
void dg_opencl_unbind(dg_opencl_memory *memory);

/* run.c: a device of the process, shared by its handles. */
typedef struct dg_opencl_state {
  void *device;
  int handles;
  dg_gpu_facts facts; /* arch: DG_OPENCL_CPU or DG_OPENCL_GPU */
  char description[160];
  dg_opencl_program *programs; /* the first is our own context's */
  pthread_mutex_t lock;        /* of programs and of every kernel's arguments */
  dg_verdict verdicts[DG_OPENCL_MAX_ROWS];
} dg_opencl_state;
extern const dg_backend dg_opencl_backend;

#endif
