/* Builds the kernels in a context. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl.h"

#ifdef DETGEMM_OPENCL_KERNELS /* defined by the build where it embeds the texts */
DG_GPU_IMAGE(dg_opencl_gpu_text);
DG_GPU_IMAGE(dg_opencl_processor_text);
#else
DG_GPU_NO_IMAGE(dg_opencl_gpu_text);
DG_GPU_NO_IMAGE(dg_opencl_processor_text);
#endif

bool dg_opencl_has_kernels(void) {
  const unsigned char *text = dg_opencl_gpu_text; /* an array that is not there is NULL */
  return text != NULL;
}

/* The compiler's refusal: the first line of its log that speaks of an error. */
static dg_status refused(void *device, const dg_opencl_program *x) {
  enum { BUILD_LOG = 0x1183 };
  size_t size = 0;
  if (dg_cl.clGetProgramBuildInfo(x->program, device, BUILD_LOG, 0, NULL, &size) != 0) size = 0;
  char *log = calloc(size + 1, 1);
  if (log && size > 0) dg_cl.clGetProgramBuildInfo(x->program, device, BUILD_LOG, size, log, NULL);
  char *line = log ? strstr(log, "error") : NULL;
  while (line && line > log && line[-1] != '\n') line--;
  if (line == NULL) line = log;
  if (line) line[strcspn(line, "\r\n")] = '\0';
  const dg_status status =
      dg_fail(DG_ERROR_DEVICE, "the OpenCL compiler refused the kernels: %.200s", line ? line : "");
  free(log);
  return status;
}

static dg_status compile(void *device, int arch, dg_opencl_program *x) {
  enum { BUILD_FAILURE = -11 };
  const char *text =
      (const char *)(arch == DG_OPENCL_CPU ? dg_opencl_processor_text : dg_opencl_gpu_text);
  int error = 0;
  x->program = dg_cl.clCreateProgramWithSource(x->context, 1, &text, NULL, &error);
  if (error != 0 || x->program == NULL) return dg_opencl_fail(error, "clCreateProgramWithSource");
  error = dg_cl.clBuildProgram(x->program, 1, &device, "-cl-std=CL1.2 -w", NULL, NULL);
  if (error == 0) return DG_OK;
  if (error != BUILD_FAILURE) return dg_opencl_fail(error, "clBuildProgram");
  return refused(device, x);
}

static dg_status find_kernels(int arch, dg_opencl_program *x) {
  const dg_gpu_kernel *row;
  int error = 0;
  for (int i = 0; (row = dg_opencl_row(i)) != NULL; i++) {
    if (arch < row->arch_min) continue;
    x->kernels[i] = dg_cl.clCreateKernel(x->program, row->symbol, &error);
    if (error != 0 || x->kernels[i] == NULL) return dg_opencl_fail(error, row->symbol);
  }
  return DG_OK;
}

dg_status dg_opencl_build(void *device, int arch, void *context, dg_opencl_program **program) {
  int error = 0;
  *program = NULL;
  dg_opencl_program *x = calloc(1, sizeof *x);
  if (x == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory for OpenCL kernels");
  x->context = context ? context : dg_cl.clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  if (error == 0 && context) error = dg_cl.clRetainContext(context);
  if (error != 0) x->context = NULL;
  dg_status status = x->context ? DG_OK : dg_opencl_fail(error, "clCreateContext");
  if (status == DG_OK) {
    x->queue = dg_cl.clCreateCommandQueue(x->context, device, 0, &error);
    if (error != 0 || x->queue == NULL) status = dg_opencl_fail(error, "clCreateCommandQueue");
  }
  if (status == DG_OK) status = compile(device, arch, x);
  if (status == DG_OK) status = find_kernels(arch, x);
  if (status == DG_OK) *program = x;
  else dg_opencl_program_free(x);
  return status;
}

void dg_opencl_program_free(dg_opencl_program *x) {
  for (int i = 0; i < DG_OPENCL_MAX_ROWS; i++)
    if (x->kernels[i]) dg_cl.clReleaseKernel(x->kernels[i]);
  if (x->program) dg_cl.clReleaseProgram(x->program);
  if (x->queue) dg_cl.clReleaseCommandQueue(x->queue);
  if (x->context) dg_cl.clReleaseContext(x->context);
  free(x);
}
