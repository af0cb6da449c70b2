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

/* What the driver says of a pointer. */
typedef struct answer {
  int known, owner;
  bool shared; /* pinned and managed memory belong to all devices */
  int access;  /* whether this device may use another's memory */
} answer;

static int ask_at_once(const dg_gpu_state *state, void *pointer, answer *x) {
  const dg_gpu_attributes *names = &state->platform->attributes;
  enum { HOST = 1 }; /* CU_MEMORYTYPE_ */
  const int attributes[] = {names->pointer_type, names->pointer_device, names->pointer_access,
                            names->pointer_managed};
  int managed = 0;
  void *values[] = {&x->known, &x->owner, &x->access, &managed};
  const int error = state->platform->driver.pointer_get(4, attributes, values, pointer);
  x->shared = x->known == HOST || managed;
  return error;
}

/* Some drivers do not know the attribute of access; then there is none. The types of memory have
 * other numbers from version to version, so they are compared with that of the device's own. */
static int ask_one_by_one(const dg_gpu_state *state, void *pointer, answer *x) {
  const dg_gpu_attributes *names = &state->platform->attributes;
  const dg_gpu_driver *driver = &state->platform->driver;
  int type = state->memory_type;
  const int error = driver->pointer_get_one(&x->owner, names->pointer_device, pointer);
  x->known = error == 0;
  if (error == DG_GPU_INVALID_VALUE) return 0;
  if (error != 0 || x->owner == state->device) return error;
  x->shared = driver->pointer_get_one(&type, names->pointer_type, pointer) == 0 &&
              type != state->memory_type;
  if (driver->pointer_get_one(&x->access, names->pointer_access, pointer) != 0) x->access = 0;
  return 0;
}

static int ask(const dg_gpu_state *state, const void *pointer, answer *x) {
  void *address = (void *)(uintptr_t)pointer;
  *x = (answer){.owner = -1};
  return state->platform->driver.pointer_get ? ask_at_once(state, address, x)
                                             : ask_one_by_one(state, address, x);
}

int dg_gpu_try_pointers(dg_gpu_state *state) {
  static const char of_the_host[256] = "";
  const dg_gpu_driver *driver = &state->platform->driver;
  const int type = state->platform->attributes.pointer_type;
  void *ours = NULL;
  answer x, y;
  state->check_pointers = false;
  int error = driver->alloc(&ours, sizeof of_the_host);
  if (error != 0) return error;
  error = ask(state, ours, &x);
  if (error == 0) error = ask(state, of_the_host, &y);
  if (error == 0 && x.known && x.owner == state->device && !y.known) {
    error = driver->pointer_get_one(&state->memory_type, type, ours);
    state->check_pointers = error == 0;
    if (error == DG_GPU_INVALID_VALUE) error = 0;
  }
  driver->release(ours);
  return error;
}

static dg_status look_up(const dg_device *device, const void *pointer) {
  const dg_gpu_state *state = device->state;
  answer x;
  const int error = ask(state, pointer, &x);
  if (error != 0) return dg_gpu_fail(state->platform, error, "asking about a pointer");
  if (!x.known)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%p is no memory that %s can use; pass device memory, or pinned or managed host "
                   "memory",
                   pointer, device->name);
  if (!x.shared && x.owner != state->device && x.access == 0)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%p is memory of device %d; use %s:%d, copy it, or let %s access it", pointer,
                   x.owner, state->platform->name, x.owner, device->name);
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
