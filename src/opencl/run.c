/* The OpenCL back end: opening a device and running a product. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpu/driver.h"
#include "../gpu/plan.h"
#include "opencl.h"

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static dg_opencl_state *states[DG_OPENCL_MAX_DEVICES]; /* kept for the process */

static dg_status forked_child(const dg_device *device) {
  return dg_fail(DG_ERROR_DEVICE,
                 "%s: this process was forked after its parent had used a GPU driver, which does "
                 "not work in the child; start children with spawn or exec",
                 device->name);
}

/* ---- running ---- */

/* Whether a caller's queue does what is asked of a stream; *context is where its buffers live. */
static dg_status check_queue(const dg_opencl_state *state, void *queue, void **context) {
  enum { CONTEXT = 0x1090, DEVICE = 0x1091, PROPERTIES = 0x1093, OUT_OF_ORDER = 1 };
  void *device = NULL;
  uint64_t properties = 0;
  int error = dg_cl.clGetCommandQueueInfo(queue, CONTEXT, sizeof *context, context, NULL);
  if (error == 0) error = dg_cl.clGetCommandQueueInfo(queue, DEVICE, sizeof device, &device, NULL);
  if (error == 0)
    error = dg_cl.clGetCommandQueueInfo(queue, PROPERTIES, sizeof properties, &properties, NULL);
  if (error != 0) return dg_opencl_fail(error, "asking about the stream");
  if (device != state->device)
    return dg_fail(DG_ERROR_ARGUMENT, "stream is a command queue of another device than %s",
                   state->description);
  if (properties & OUT_OF_ORDER)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "stream is an out-of-order command queue; pass one that runs in order");
  return DG_OK;
}

/* The kernels for the context of a caller's queue, built when it is first seen. */
static dg_status program_of(dg_opencl_state *state, void *queue, dg_opencl_program **program) {
  void *context = NULL;
  *program = state->programs;
  if (queue == NULL) return DG_OK;
  dg_status status = check_queue(state, queue, &context);
  if (status != DG_OK) return status;
  while (*program && (*program)->context != context) *program = (*program)->next;
  if (*program) return DG_OK;
  status = dg_opencl_build(state->device, state->facts.arch, context, program);
  if (status != DG_OK) return status;
  (*program)->next = state->programs->next;
  state->programs->next = *program;
  return DG_OK;
}

static bool is_grouped(int row) { return dg_opencl_row(row)->fits == dg_gpu_fits_grouped; }

/* Kernel arguments: the buffers, the product, the tuning. */
static int set_arguments(void *kernel, const dg_opencl_memory *memory, const dg_grouped *g,
                         bool grouped, const dg_gpu_tuning *tuning) {
  const uint32_t buffers = grouped ? DG_OPENCL_BUFFERS : DG_OPENCL_OPERANDS;
  int error = 0;
  for (uint32_t i = 0; i < buffers && error == 0; i++)
    error = dg_cl.clSetKernelArg(kernel, i, sizeof memory->buffers[i],
                                 memory->buffers[i] ? &memory->buffers[i] : NULL);
  if (error == 0)
    error = grouped ? dg_cl.clSetKernelArg(kernel, buffers, sizeof *g, g)
                    : dg_cl.clSetKernelArg(kernel, buffers, sizeof g->p, &g->p);
  if (error == 0) error = dg_cl.clSetKernelArg(kernel, buffers + 1, sizeof *tuning, tuning);
  return error;
}

/* Vectors must be aligned where the memory is used in place and where it was copied. */
static dg_problem as_aligned(const dg_problem *p, const dg_problem *offsets) {
  dg_problem q = *p;
  dg_operand *to[] = {&q.a, &q.b, &q.out, &q.start, &q.bias};
  const dg_operand *from[] = {&offsets->a, &offsets->b, &offsets->out, &offsets->start,
                              &offsets->bias};
  for (int i = 0; i < DG_OPENCL_OPERANDS; i++)
    to[i]->data = (void *)((uintptr_t)to[i]->data | (uintptr_t)from[i]->data);
  return q;
}

static dg_status check_offsets(const dg_grouped *g) {
  int64_t *first = malloc((size_t)(g->groups + 1) * sizeof *first);
  if (first == NULL)
    return dg_fail(DG_ERROR_MEMORY, "no memory for %" PRId64 " offsets", g->groups + 1);
  const dg_status status = dg_grouped_offsets(g, first);
  free(first);
  return status;
}

static dg_status enqueue(dg_opencl_state *state, const dg_opencl_program *program, int row,
                         const dg_grouped *g, void *queue, dg_opencl_memory *memory) {
  dg_grouped bound = *g;
  dg_gpu_launch launch = {0};
  dg_status status = dg_opencl_bind(program->context, &bound, memory);
  if (status == DG_OK && g->offsets && dg_opencl_reads_offsets(memory)) status = check_offsets(g);
  if (status != DG_OK) return status;
  const dg_problem aligned = as_aligned(&g->p, &bound.p);
  dg_opencl_row(row)->prepare(&aligned, &state->facts, &launch);
  const size_t local = launch.block, global = local * launch.grid[0];
  int error = set_arguments(program->kernels[row], memory, &bound, is_grouped(row), &launch.tuning);
  if (error == 0)
    error = dg_cl.clEnqueueNDRangeKernel(queue, program->kernels[row], 1, NULL, &global, &local, 0,
                                         NULL, NULL);
  return error == 0 ? DG_OK : dg_opencl_fail_launch(error, dg_opencl_row(row)->name);
}

static dg_status execute(dg_device *device, const dg_grouped *g, int row, void *stream) {
  dg_opencl_state *state = device->state;
  dg_opencl_program *program;
  dg_opencl_memory memory = {0};
  if (dg_gpu_forked()) return forked_child(device);
  pthread_mutex_lock(&state->lock);
  dg_status status = program_of(state, stream, &program);
  void *queue = stream ? stream : program ? program->queue : NULL;
  if (status == DG_OK) status = enqueue(state, program, row, g, queue, &memory);
  pthread_mutex_unlock(&state->lock);
  if (status == DG_OK) status = dg_opencl_finish(queue, &memory);
  dg_opencl_unbind(&memory);
  return status;
}

static dg_status run(dg_device *device, const dg_problem *p, int row, void *stream) {
  const dg_opencl_state *state = device->state;
  bool fits, exchanged;
  dg_problem ways[2];
  dg_gpu_both_ways(p, ways);
  dg_gpu_cost(dg_opencl_row(row), &state->facts, ways, &fits, &exchanged);
  const dg_grouped one = {.p = ways[exchanged], .groups = 1, .split = DG_SPLIT_M};
  return execute(device, &one, row, stream);
}

static dg_status run_grouped(dg_device *device, const dg_grouped *g, void *stream) {
  int row = 0;
  const bool empty = g->groups == 0 || g->p.m == 0 || g->p.n == 0;
  const dg_status status = dg_gpu_pick_grouped(device, dg_opencl_row, g, &row);
  return status == DG_OK && !empty ? execute(device, g, row, stream) : status;
}

static dg_status choose(const dg_device *device, const dg_problem *p, int *kernel) {
  const dg_opencl_state *state = device->state;
  return dg_gpu_pick(device, dg_opencl_row, &state->facts, p, kernel);
}

static bool takes(const dg_device *device, const dg_problem *p, int kernel) {
  const dg_opencl_state *state = device->state;
  return dg_opencl_row(kernel)->fits(p, &state->facts);
}

/* ---- opening ---- */

enum { DEVICE_TYPE = 0x1000, COMPUTE_UNITS = 0x1002, FP_CONFIG = 0x101b, LOCAL_BYTES = 0x1023 };
enum { LITTLE_ENDIAN_DEVICE = 0x1026, COMPILER = 0x1028, NAME = 0x102b, VERSION = 0x102f };

/* A text about a device, cut to size. */
static int text_of(void *id, uint32_t what, char *text, size_t size) {
  char whole[1024] = "";
  const int error = dg_cl.clGetDeviceInfo(id, what, sizeof whole - 1, whole, NULL);
  snprintf(text, size, "%s", whole);
  return error;
}

/* What the kernels need of a device's single precision. */
static dg_status check_arithmetic(const dg_device *device, void *id) {
  enum { DENORM = 1, TO_NEAREST = 4, FMA = 32 };
  uint64_t config = 0;
  uint32_t compiler = 0, little = 0;
  char version[64] = "";
  int error = dg_cl.clGetDeviceInfo(id, FP_CONFIG, sizeof config, &config, NULL);
  if (error == 0) error = dg_cl.clGetDeviceInfo(id, COMPILER, sizeof compiler, &compiler, NULL);
  if (error == 0)
    error = dg_cl.clGetDeviceInfo(id, LITTLE_ENDIAN_DEVICE, sizeof little, &little, NULL);
  if (error == 0) error = text_of(id, VERSION, version, sizeof version);
  if (error != 0) return dg_opencl_fail(error, "clGetDeviceInfo");
  int major = 0, minor = 0;
  if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || 10 * major + minor < 12)
    return dg_fail(DG_ERROR_DEVICE, "%s is of \"%s\"; 1.2 or later is needed", device->name,
                   version);
  const char *assumed = getenv("DETGEMM_OPENCL_ASSUME_FMA");
  if (assumed && strcmp(assumed, "1") == 0) config |= FMA;
  const char *lack = !compiler                ? "compiler"
                     : !little                ? "little-endian memory"
                     : !(config & DENORM)     ? "subnormal numbers (CL_FP_DENORM)"
                     : !(config & TO_NEAREST) ? "rounding to nearest (CL_FP_ROUND_TO_NEAREST)"
                     : !(config & FMA)        ? "fused multiply-add (CL_FP_FMA)"
                                              : NULL;
  if (lack == NULL) return DG_OK;
  return dg_fail(DG_ERROR_DEVICE, "%s has no %s, which the fma order needs; use another device",
                 device->name, lack);
}

static dg_status start(dg_opencl_state *state, int index) {
  enum { TYPE_CPU = 2 };
  char name[96] = "", version[40] = "";
  uint64_t type = 0, local = 0;
  uint32_t units = 0;
  void *id = state->device = dg_opencl_device(index);
  text_of(id, NAME, name, sizeof name);
  text_of(id, VERSION, version, sizeof version);
  int error = dg_cl.clGetDeviceInfo(id, DEVICE_TYPE, sizeof type, &type, NULL);
  if (error == 0) error = dg_cl.clGetDeviceInfo(id, LOCAL_BYTES, sizeof local, &local, NULL);
  if (error == 0) error = dg_cl.clGetDeviceInfo(id, COMPUTE_UNITS, sizeof units, &units, NULL);
  if (error != 0) return dg_opencl_fail(error, "clGetDeviceInfo");
  state->facts = (dg_gpu_facts){.arch = type & TYPE_CPU ? DG_OPENCL_CPU : DG_OPENCL_GPU,
                                .multiprocessors = units > 0 && units < 4096 ? (int)units : 1,
                                .shared_bytes = local < INT32_MAX ? (int)local : INT32_MAX};
  snprintf(state->description, sizeof state->description, "%.80s, %.36s, %d compute units", name,
           version, state->facts.multiprocessors);
  return dg_opencl_build(id, state->facts.arch, NULL, &state->programs);
}

static dg_status allocate(void *context, void **data, size_t bytes) {
  (void)context;
  *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
  return *data ? DG_OK : dg_fail(DG_ERROR_MEMORY, "no memory for the conformance probe");
}

static dg_status copy(void *context, void *to, const void *from, size_t bytes) {
  (void)context;
  memcpy(to, from, bytes);
  return DG_OK;
}

static void release(void *context, void *data) {
  (void)context;
  free(data);
}

static void info_of(const dg_device *device, int index, dg_kernel_info *info) {
  (void)device;
  *info = (dg_kernel_info){.name = dg_opencl_row(index)->name, .order = DG_ORDER_FMA};
}

/* Withholds the rows that this kind of device has no kernels of. */
static void withhold(dg_device *device, int arch) {
  for (int i = 0; i < device->kernel_count; i++)
    if (arch < dg_opencl_row(i)->arch_min && device->kernels[i].withheld == NULL)
      device->kernels[i].withheld = "is for processors";
}

static void stop(dg_opencl_state *state) {
  while (state->programs) {
    dg_opencl_program *next = state->programs->next;
    if (dg_gpu_forked()) free(state->programs); /* the driver's objects are its parent's */
    else dg_opencl_program_free(state->programs);
    state->programs = next;
  }
}

static dg_status join(dg_device *device, int index) {
  dg_opencl_state **state = &states[index];
  if (*state == NULL) {
    *state = calloc(1, sizeof **state);
    if (*state == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory for the state of a device");
    pthread_mutex_init(&(*state)->lock, NULL);
  }
  dg_status status = check_arithmetic(device, dg_opencl_device(index));
  if (status == DG_OK && (*state)->handles == 0) status = start(*state, index);
  if (status != DG_OK) return status;
  (*state)->handles++;
  device->state = *state;
  snprintf(device->description, sizeof device->description, "%s", (*state)->description);
  int rows = 0;
  while (dg_opencl_row(rows)) rows++;
  status = dg_device_list_kernels(device, rows, info_of);
  if (status != DG_OK) return status;
  withhold(device, (*state)->facts.arch);
  const dg_probe_memory memory = {
      .alloc = allocate, .copy_in = copy, .copy_out = copy, .release = release, .large = true};
  return dg_probe(device, &memory, (*state)->verdicts);
}

static dg_status open_device(dg_device *device, int index) {
  const char *why;
  if (dg_gpu_forked()) return forked_child(device);
  const int count = dg_opencl_load(&why);
  if (count == 0) return dg_fail(DG_ERROR_DEVICE, "%s is not there: %s", device->name, why);
  if (index >= count)
    return dg_fail(DG_ERROR_DEVICE, "%s is not there: this process sees %d OpenCL device%s",
                   device->name, count, count > 1 ? "s" : "");
  pthread_mutex_lock(&open_lock);
  const dg_status status = join(device, index);
  pthread_mutex_unlock(&open_lock);
  return status;
}

static void close_device(dg_device *device) {
  dg_opencl_state *state = device->state;
  if (state == NULL) return; /* it was never opened */
  pthread_mutex_lock(&open_lock);
  if (--state->handles == 0) stop(state);
  pthread_mutex_unlock(&open_lock);
}

static int count_devices(void) {
  const char *why;
  return dg_gpu_forked() ? 0 : dg_opencl_load(&why);
}

const dg_backend dg_opencl_backend = {
    .name = "opencl",
    .numbered = true,
    .count = count_devices,
    .open = open_device,
    .close = close_device,
    .choose = choose,
    .takes = takes,
    .run = run,
    .run_grouped = run_grouped,
};
