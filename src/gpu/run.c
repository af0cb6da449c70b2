/* Launches a row. Nothing is allocated or synchronised here, and every driver call
 * is legal while the stream is being captured. */
#include <string.h>

#include "driver.h"
#include "plan.h"

static const dg_gpu_kernel *row_of(const dg_gpu_state *state, int index) {
  return state->platform->row(index);
}

dg_status dg_gpu_choose(const dg_device *device, const dg_problem *p, int *kernel) {
  const dg_gpu_state *state = device->state;
  return dg_gpu_pick(device, state->platform->row, &state->facts, p, kernel);
}

int dg_gpu_enter(const dg_gpu_state *state, bool *pushed) {
  const dg_gpu_driver *driver = &state->platform->driver;
  void *current = NULL;
  *pushed = false;
  int error = driver->context_get(&current);
  if (error != 0 || current == state->context) return error;
  error = driver->context_push(state->context);
  *pushed = error == 0;
  return error;
}

void dg_gpu_leave(const dg_gpu_state *state, bool pushed) {
  void *context;
  if (pushed) state->platform->driver.context_pop(&context);
}

static int log2_of(int x) {
  int log = 0;
  while (x > 1) x /= 2, log++;
  return log;
}

static int encode(const dg_gpu_driver *driver, const dg_gpu_map *m, const void *data,
                  dg_gpu_tensor_map *map) {
  enum { UINT16 = 1, UINT32 = 2 }; /* bits are moved, whatever they mean */
  static const uint32_t ones[3] = {1, 1, 1};
  void *base = (void *)(uintptr_t)data;
  const int swizzle = m->swizzle_bytes ? log2_of(m->swizzle_bytes / 16) : 0;
  const int promotion = m->promotion_bytes ? log2_of(m->promotion_bytes / 32) : 0;
  return driver->encode_map(map, m->element_bytes == 4 ? UINT32 : UINT16, (uint32_t)m->rank, base,
                            m->dims, m->strides, m->box, ones, 0, swizzle, promotion, 0);
}

static int launch(const dg_gpu_driver *driver, void *function, const dg_gpu_launch *l, void *stream,
                  void **parameters) {
  enum { CLUSTER = 4, OVERLAP = 6 }; /* CU_LAUNCH_ATTRIBUTE_... */
  dg_gpu_attribute attributes[2] = {{0}};
  dg_gpu_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                          .block = {l->block, 1, 1},
                          .shared_bytes = l->shared_bytes,
                          .stream = stream,
                          .attributes = attributes};
  if (l->cluster > 1) {
    dg_gpu_attribute *a = &attributes[config.attribute_count++];
    a->id = CLUSTER;
    a->value.cluster[0] = l->cluster;
    a->value.cluster[1] = a->value.cluster[2] = 1;
  }
  if (l->overlap) {
    dg_gpu_attribute *a = &attributes[config.attribute_count++];
    a->id = OVERLAP;
    a->value.overlap = 1;
  }
  if (config.attribute_count) return driver->launch_config(&config, function, parameters, NULL);
  return driver->launch(function, l->grid[0], l->grid[1], l->grid[2], l->block, 1, 1,
                        l->shared_bytes, stream, parameters, NULL);
}

static dg_status refused(const dg_gpu_state *state, int error, const char *row) {
  const dg_status status = dg_gpu_fail(state->platform, error, row);
  const bool of_the_row = error == DG_GPU_INVALID_VALUE || error == DG_GPU_OUT_OF_RESOURCES;
  return of_the_row ? DG_ERROR_UNSUPPORTED : status;
}

/* Encodes the tensor maps, unless they are of the same addresses as before, and launches, in the
 * device's context. */
static dg_status launch_row(const dg_gpu_state *state, dg_gpu_plan *plan, const dg_problem *p,
                            void *first, void *stream) {
  const dg_gpu_driver *driver = &state->platform->driver;
  const dg_gpu_launch *l = &plan->launch;
  const void *data[2] = {p->a.data, p->b.data};
  void *parameters[4] = {first};
  int count = 1;
  for (int i = 0; i < l->map_count; i++) {
    parameters[count++] = &plan->maps[i];
    if (plan->mapped[i] == data[i]) continue;
    plan->mapped[i] = NULL;
    const int error = encode(driver, &l->maps[i], data[i], &plan->maps[i]);
    if (error != 0) return refused(state, error, "encoding a tensor map");
    plan->mapped[i] = data[i];
  }
  parameters[count] = &plan->launch.tuning;
  const int error = launch(driver, state->functions[plan->kernel], l, stream, parameters);
  return error == 0 ? DG_OK : refused(state, error, row_of(state, plan->kernel)->name);
}

bool dg_gpu_takes(const dg_device *device, const dg_problem *p, int kernel) {
  const dg_gpu_state *state = device->state;
  bool fits, exchanged;
  dg_problem ways[2];
  dg_gpu_both_ways(p, ways);
  dg_gpu_cost(row_of(state, kernel), &state->facts, ways, &fits, &exchanged);
  return fits;
}

bool dg_gpu_make_plan(const dg_device *device, const dg_problem *p, int kernel, dg_gpu_plan *plan) {
  const dg_gpu_state *state = device->state;
  const dg_gpu_kernel *row = row_of(state, kernel);
  bool fits;
  dg_problem ways[2];
  memset(plan, 0, sizeof *plan);
  plan->kernel = kernel;
  dg_gpu_both_ways(p, ways);
  dg_gpu_cost(row, &state->facts, ways, &fits, &plan->exchanged);
  if (fits) row->prepare(&ways[plan->exchanged], &state->facts, &plan->launch);
  return fits;
}

dg_status dg_gpu_execute(dg_device *device, dg_gpu_plan *plan, const dg_problem *p, void *first,
                         const void *offsets, void *stream) {
  const dg_gpu_state *state = device->state;
  bool pushed;
  if (dg_gpu_forked())
    return dg_fail(DG_ERROR_DEVICE,
                   "%s was opened before this process was forked, and its driver does not work in "
                   "the child; start children with spawn or exec, and open the device there",
                   device->name);
  const int error = dg_gpu_enter(state, &pushed);
  if (error != 0) return dg_gpu_fail(state->platform, error, "entering the device's context");
  dg_status status = state->check_pointers ? dg_gpu_check_pointers(device, p, offsets) : DG_OK;
  if (status == DG_OK) status = launch_row(state, plan, p, first, stream);
  dg_gpu_leave(state, pushed);
  return status;
}

dg_status dg_gpu_run(dg_device *device, const dg_problem *p, int kernel, void *stream) {
  const dg_gpu_state *state = device->state;
  dg_gpu_plan fresh, *plan = dg_gpu_recall_plan(device, p, kernel);
  if (plan == NULL) {
    if (!dg_gpu_make_plan(device, p, kernel, &fresh))
      return dg_fail(DG_ERROR_UNSUPPORTED, "%s does not take this product",
                     device->kernels[kernel].name);
    plan = &fresh;
  }
  dg_grouped one = {.p = *p, .groups = 1, .split = DG_SPLIT_M};
  if (plan->exchanged) dg_problem_exchange(&one.p);
  const bool grouped = row_of(state, kernel)->fits == dg_gpu_fits_grouped;
  return dg_gpu_execute(device, plan, &one.p, grouped ? (void *)&one : (void *)&one.p, NULL,
                        stream);
}
