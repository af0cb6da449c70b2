/* Looks pointers up before a launch. One that the device cannot use would be a fault, after which
 * the process has lost the device. */
#include "driver.h"

/* A look-up costs 0.12 microseconds, so each thread remembers the pointers that were good. Memory
 * that was freed since then is the caller's mistake, here as in any launch. */
enum { PLACES = 64 };
static _Thread_local struct {
  const dg_gpu_state *state;
  const void *pointer;
} good[PLACES];

/* Memory of another device counts as usable where this device has been given access to it. */
static dg_status look_up(const dg_device *device, const void *pointer) {
  const dg_gpu_state *state = device->state;
  const dg_gpu_attributes *names = &state->platform->attributes;
  const int attributes[] = {names->pointer_type, names->pointer_device, names->pointer_access};
  int type = 0, owner = -1, access = 0;
  void *values[] = {&type, &owner, &access};
  const int error =
      state->platform->driver.pointer_get(3, attributes, values, (void *)(uintptr_t)pointer);
  if (error != 0) return dg_gpu_fail(state->platform, error, "asking about a pointer");
  if (type == 0)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%p is no memory that %s can use; pass device memory, or pinned or managed host "
                   "memory",
                   pointer, device->name);
  if (owner != state->device && access == 0)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%p is memory of device %d; use %s:%d, copy it, or let %s access it", pointer,
                   owner, state->platform->name, owner, device->name);
  return DG_OK;
}

static dg_status check(const dg_device *device, const void *pointer) {
  const int place = (int)(((uintptr_t)pointer >> 9 ^ (uintptr_t)pointer >> 15) % PLACES);
  if (good[place].pointer == pointer && good[place].state == device->state) return DG_OK;
  const dg_status status = look_up(device, pointer);
  if (status != DG_OK) return status;
  good[place].pointer = pointer;
  good[place].state = device->state;
  return DG_OK;
}

dg_status dg_gpu_check_pointers(const dg_device *device, const dg_problem *p, const void *offsets) {
  const void *all[] = {p->out.data, p->start.data, p->bias.data, offsets, p->a.data, p->b.data};
  dg_status status = DG_OK;
  for (int i = 0; status == DG_OK && i < (p->k ? 6 : 4); i++) /* no k: a and b are not read */
    if (all[i]) status = check(device, all[i]);
  return status;
}
