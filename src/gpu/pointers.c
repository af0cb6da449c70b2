/* Looks pointers up before a launch. One that the device cannot use would be a fault, after which
 * the process has lost the device. */
#include "driver.h"

/* A look-up costs 0.12 microseconds, so each thread remembers the pointers that were good. Memory
 * that was freed since then is the caller's mistake, here as in any launch. */
enum { PLACES = 256 }; /* as many as place_of() gives */
static _Thread_local struct {
  const dg_gpu_state *state;
  const void *pointer;
} good[PLACES];

/* Pinned and managed memory belong to all devices. Device memory of another one is usable where
 * this one has been given access to it. */
static dg_status look_up(const dg_device *device, const void *pointer) {
  const dg_gpu_state *state = device->state;
  const dg_gpu_attributes *names = &state->platform->attributes;
  enum { HOST = 1 }; /* CU_MEMORYTYPE_ */
  const int attributes[] = {names->pointer_type, names->pointer_device, names->pointer_access,
                            names->pointer_managed};
  int type = 0, owner = -1, access = 0, managed = 0;
  void *values[] = {&type, &owner, &access, &managed};
  const int error =
      state->platform->driver.pointer_get(4, attributes, values, (void *)(uintptr_t)pointer);
  if (error != 0) return dg_gpu_fail(state->platform, error, "asking about a pointer");
  if (type == 0)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%p is no memory that %s can use; pass device memory, or pinned or managed host "
                   "memory",
                   pointer, device->name);
  if (type != HOST && !managed && owner != state->device && access == 0)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%p is memory of device %d; use %s:%d, copy it, or let %s access it", pointer,
                   owner, state->platform->name, owner, device->name);
  return DG_OK;
}

/* Allocations begin at multiples of 2 MB often, so every bit must count. */
static int place_of(const void *pointer) {
  return (int)((uint64_t)(uintptr_t)pointer * 0x9e3779b97f4a7c15u >> 56);
}

static bool is_good(int place, const dg_device *device, const void *pointer) {
  return good[place].pointer == pointer && good[place].state == device->state;
}

/* Two places for a pointer, the second for the one that was in the first. */
static dg_status check(const dg_device *device, const void *pointer) {
  const int first = place_of(pointer), second = first ^ 1;
  if (is_good(first, device, pointer) || is_good(second, device, pointer)) return DG_OK;
  const dg_status status = look_up(device, pointer);
  if (status != DG_OK) return status;
  good[second] = good[first];
  good[first].pointer = pointer;
  good[first].state = device->state;
  return DG_OK;
}

dg_status dg_gpu_check_pointers(const dg_device *device, const dg_problem *p, const void *offsets) {
  const void *all[] = {p->out.data, p->start.data, p->bias.data, offsets, p->a.data, p->b.data};
  dg_status status = DG_OK;
  for (int i = 0; status == DG_OK && i < (p->k ? 6 : 4); i++) /* no k: a and b are not read */
    if (all[i]) status = check(device, all[i]);
  return status;
}
