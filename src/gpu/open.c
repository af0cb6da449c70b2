/* Opens and closes devices. What the handles of one device share is made by the first and freed
 * with the last; the verdicts of the conformance probe stay for the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static dg_gpu_driver *driver_of(dg_gpu_state *state) { return &state->platform->driver; }

static int row_count(const dg_gpu_platform *platform) {
  int count = 0;
  while (platform->row(count)) count++;
  return count;
}

int dg_gpu_count(dg_gpu_platform *platform) {
  dg_gpu_lock();
  const int count = !dg_gpu_forked() && dg_gpu_load(platform) ? platform->count : 0;
  dg_gpu_unlock();
  return count < 16 ? count : 16;
}

static bool runs_here(const dg_gpu_state *state, const dg_gpu_kernel *row) {
  return row->image && state->facts.arch >= row->arch_min && state->facts.arch <= row->arch_max;
}

/* ---- facts ---- */

static int read_facts(dg_gpu_state *state) {
  const dg_gpu_attributes *names = &state->platform->attributes;
  int major = 0, minor = 0, pageable = 0;
  const struct {
    int *value, name;
  } all[] = {{&major, names->major},
             {&minor, names->minor},
             {&state->facts.multiprocessors, names->multiprocessors},
             {&state->facts.shared_bytes, names->shared_optin},
             {&pageable, names->pageable}};
  for (int i = 0; i < (driver_of(state)->pointer_get ? 5 : 4); i++) {
    const int error = driver_of(state)->device_attribute(all[i].value, all[i].name, state->device);
    if (error != 0) return error;
  }
  state->facts.arch = 10 * major + minor;
  state->check_pointers = driver_of(state)->pointer_get && !pageable;
  return 0;
}

static void describe(dg_gpu_state *state) {
  char name[96] = "unnamed";
  int version = 0;
  driver_of(state)->device_name(name, sizeof name, state->device);
  driver_of(state)->version(&version);
  snprintf(state->description, sizeof state->description,
           "%.95s, %s %d.%d, %d multiprocessors, driver %d.%d", name, state->platform->capability,
           state->facts.arch / 10, state->facts.arch % 10, state->facts.multiprocessors,
           version / 1000, version % 1000 / 10);
}

/* ---- kernels ---- */

static int find_module(dg_gpu_state *state, const void *image, void **module) {
  for (int i = 0; i < state->module_count; i++)
    if (state->images[i] == image) {
      *module = state->modules[i];
      return 0;
    }
  const int error = driver_of(state)->module_load(module, image);
  if (error != 0) return error;
  state->images[state->module_count] = (void *)(uintptr_t)image;
  state->modules[state->module_count++] = *module;
  return 0;
}

/* Lets a function use all the block memory that the device has. */
static int allow_shared(dg_gpu_state *state, void *function) {
  const dg_gpu_attributes *names = &state->platform->attributes;
  const dg_gpu_driver *driver = driver_of(state);
  int fixed = 0;
  if (driver->function_get == NULL || driver->function_set == NULL) return 0;
  const int error = driver->function_get(&fixed, names->function_static_shared, function);
  if (error != 0) return error;
  return driver->function_set(function, names->function_dynamic_shared,
                              state->facts.shared_bytes - fixed);
}

static dg_status load_kernels(dg_gpu_state *state) {
  const dg_gpu_kernel *row;
  for (int i = 0; (row = state->platform->row(i)) != NULL; i++) {
    void *module = NULL;
    if (!runs_here(state, row)) continue;
    int error = find_module(state, row->image, &module);
    if (error != 0) return dg_gpu_fail(state->platform, error, "loading the kernels");
    error = driver_of(state)->module_function(&state->functions[i], module, row->symbol);
    if (error == 0) error = allow_shared(state, state->functions[i]);
    if (error != 0) return dg_gpu_fail(state->platform, error, row->symbol);
  }
  return DG_OK;
}

static void unload(dg_gpu_state *state) {
  bool pushed;
  if (state->context == NULL || dg_gpu_forked()) return;
  if (dg_gpu_enter(state, &pushed) == 0) {
    for (int i = 0; i < state->module_count; i++)
      driver_of(state)->module_unload(state->modules[i]);
    dg_gpu_leave(state, pushed);
  }
  driver_of(state)->context_release(state->device);
  state->context = NULL;
  state->module_count = 0;
  memset(state->functions, 0, sizeof state->functions);
}

static dg_status start(dg_gpu_state *state, int index) {
  dg_gpu_driver *driver = driver_of(state);
  bool pushed = false;
  int error = driver->device_get(&state->device, index);
  if (error == 0) error = read_facts(state);
  if (error == 0) error = driver->context_retain(&state->context, state->device);
  if (error == 0) error = dg_gpu_enter(state, &pushed);
  if (error != 0) return dg_gpu_fail(state->platform, error, "opening the device");
  describe(state);
  const char *why = NULL;
  dg_status status = DG_OK;
  if (state->platform->doubt)
    error = state->platform->doubt(driver, state->device, &state->facts, &why);
  if (error == 0 && why == NULL && driver->pointer_get_one) error = dg_gpu_try_pointers(state);
  if (error != 0) status = dg_gpu_fail(state->platform, error, "opening the device");
  else if (why)
    status = dg_fail(DG_ERROR_DEVICE, "%s:%d is not used: its driver %s; update the driver",
                     state->platform->name, index, why);
  else status = load_kernels(state);
  dg_gpu_leave(state, pushed);
  return status;
}

/* ---- the conformance probe ---- */

static dg_status allocate(void *context, void **data, size_t bytes) {
  const dg_gpu_state *state = context;
  const int error = state->platform->driver.alloc(data, bytes);
  return error == 0 ? DG_OK : dg_gpu_fail(state->platform, error, "allocating for the probe");
}

static dg_status copy_in(void *context, void *to, const void *from, size_t bytes) {
  const dg_gpu_state *state = context;
  const int error = state->platform->driver.copy_in(to, from, bytes);
  return error == 0 ? DG_OK : dg_gpu_fail(state->platform, error, "copying to the device");
}

static dg_status copy_out(void *context, void *to, const void *from, size_t bytes) {
  const dg_gpu_state *state = context;
  const int error = state->platform->driver.copy_out(to, from, bytes);
  return error == 0 ? DG_OK : dg_gpu_fail(state->platform, error, "a kernel of the probe");
}

static void release(void *context, void *data) { driver_of(context)->release(data); }

/* What a row asks of a device: one architecture, some, or all from one on. */
static void say_needs(const dg_gpu_state *state, const dg_gpu_kernel *row, char *why) {
  char last[24] = "";
  if (row->arch_max >= 999) snprintf(last, sizeof last, " or later");
  else if (row->arch_max > row->arch_min)
    snprintf(last, sizeof last, " to %d.%d", row->arch_max / 10, row->arch_max % 10);
  snprintf(why, DG_PROBE_TEXT, "needs %s %d.%d%s, this device has %d.%d%s",
           state->platform->capability, row->arch_min / 10, row->arch_min % 10, last,
           state->facts.arch / 10, state->facts.arch % 10, state->platform->unmeasured(row->order));
}

/* Withholds the rows that were not made for this device, with the reason. */
static void withhold_others(dg_device *device) {
  dg_gpu_state *state = device->state;
  for (int i = 0; i < device->kernel_count; i++) {
    const dg_gpu_kernel *row = state->platform->row(i);
    char *why = state->verdicts[i].why;
    if (runs_here(state, row)) continue;
    if (row->image == NULL) snprintf(why, DG_PROBE_TEXT, "this build has no image of it");
    else say_needs(state, row, why);
    device->kernels[i].withheld = why;
  }
}

static dg_status probe(dg_device *device) {
  dg_gpu_state *state = device->state;
  const dg_probe_memory memory = {allocate, copy_in, copy_out, release, state, true};
  bool pushed;
  const int error = dg_gpu_enter(state, &pushed);
  if (error != 0) return dg_gpu_fail(state->platform, error, "entering the device's context");
  withhold_others(device);
  const dg_status status = dg_probe(device, &memory, state->verdicts);
  dg_gpu_leave(state, pushed);
  return status;
}

/* ---- handles ---- */

static void info_of(const dg_device *device, int index, dg_kernel_info *info) {
  const dg_gpu_state *state = device->state;
  const dg_gpu_kernel *row = state->platform->row(index);
  *info = (dg_kernel_info){.name = row->name, .order = (dg_order)row->order};
}

static dg_status join(dg_gpu_platform *platform, dg_device *device, int index) {
  dg_gpu_state **state = &platform->devices[index];
  if (*state == NULL) *state = calloc(1, sizeof **state);
  if (*state == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory for the state of a device");
  (*state)->platform = platform;
  if (row_count(platform) > DG_GPU_MAX_ROWS)
    return dg_fail(DG_ERROR_DEVICE, "%s has %d kernels, more than DG_GPU_MAX_ROWS, %d; raise it",
                   platform->title, row_count(platform), DG_GPU_MAX_ROWS);
  dg_status status = (*state)->handles ? DG_OK : start(*state, index);
  if (status != DG_OK) {
    unload(*state);
    return status;
  }
  (*state)->handles++;
  device->state = *state; /* from here on dg_gpu_close() undoes it */
  snprintf(device->description, sizeof device->description, "%s", (*state)->description);
  status = dg_device_list_kernels(device, row_count(platform), info_of);
  return status == DG_OK ? probe(device) : status;
}

dg_status dg_gpu_open(dg_gpu_platform *platform, dg_device *device, int index) {
  if (dg_gpu_forked())
    return dg_fail(DG_ERROR_DEVICE,
                   "%s: this process was forked after its parent had used a GPU driver, which does "
                   "not work in the child; start children with spawn or exec",
                   device->name);
  dg_gpu_lock();
  dg_status status;
  if (!dg_gpu_load(platform))
    status = dg_fail(DG_ERROR_DEVICE, "%s is not there: %s", device->name, platform->why);
  else if (index >= platform->count || index >= 16)
    status =
        dg_fail(DG_ERROR_DEVICE, "%s is not there: this process sees %d %s device%s", device->name,
                platform->count, platform->title, platform->count > 1 ? "s" : "");
  else status = join(platform, device, index);
  dg_gpu_unlock();
  return status;
}

void dg_gpu_close(dg_device *device) {
  dg_gpu_state *state = device->state;
  if (state == NULL) return; /* it was never opened */
  dg_gpu_lock();
  if (--state->handles == 0) unload(state);
  dg_gpu_unlock();
}
