/* Remembers choices and plans. Asking every row about a problem takes longer than a call may cost,
 * and programs ask for the same few products again and again. Each thread remembers its own, so
 * that nothing is shared and nothing is locked. */
#include <string.h>

#include "driver.h"

/* A choice and its plan depend on all of the problem but its addresses, of which only alignment and
 * absence count. */
typedef struct choice {
  dg_problem key;
  uint64_t device; /* the handle's serial number; 0: an empty place */
  dg_gpu_plan plan;
} choice;

enum { PLACES = 16 };
static _Thread_local choice choices[PLACES];

static void *blur(const void *data) {
  const uintptr_t address = (uintptr_t)data;
  return data ? (void *)(address % 256 + 256) : NULL;
}

static dg_problem key_of(const dg_problem *p) {
  dg_problem key = *p;
  key.a.data = blur(p->a.data);
  key.b.data = blur(p->b.data);
  key.out.data = blur(p->out.data);
  key.start.data = blur(p->start.data);
  key.bias.data = blur(p->bias.data);
  return key;
}

static choice *place_of(const dg_problem *key) {
  const uint64_t parts[] = {(uint64_t)key->m,    (uint64_t)key->n,    (uint64_t)key->k,
                            (uint64_t)key->a.rs, (uint64_t)key->b.rs, (uint64_t)key->order};
  uint64_t hash = 0;
  for (int i = 0; i < 6; i++) hash = (hash ^ parts[i]) * 0x9e3779b97f4a7c15u;
  return &choices[hash >> 60];
}

static bool is_of(const choice *place, const dg_device *device, const dg_problem *key) {
  return place->device == device->serial && memcmp(&place->key, key, sizeof *key) == 0;
}

dg_status dg_gpu_recall(const dg_device *device, const dg_problem *p, int *kernel) {
  const dg_problem key = key_of(p);
  choice *place = place_of(&key);
  if (is_of(place, device, &key)) {
    *kernel = place->plan.kernel;
    return DG_OK;
  }
  const dg_status status = dg_gpu_choose(device, p, kernel);
  if (status != DG_OK || p->m == 0 || p->n == 0 || p->batch == 0) return status;
  place->device = dg_gpu_make_plan(device, p, *kernel, &place->plan) ? device->serial : 0;
  place->key = key;
  return status;
}

dg_gpu_plan *dg_gpu_recall_plan(const dg_device *device, const dg_problem *p, int kernel) {
  const dg_problem key = key_of(p);
  choice *place = place_of(&key);
  return is_of(place, device, &key) && place->plan.kernel == kernel ? &place->plan : NULL;
}
