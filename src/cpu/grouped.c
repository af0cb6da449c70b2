/* Grouped products on the CPU: every group is a product of its own; all run in one region. */
#include <inttypes.h>
#include <stdlib.h>

#include "cpu.h"

/* The threads that a group's tasks should keep busy: its share, at least one. Twice as many tasks
 * as threads leave no thread waiting long at the end. */
static int share(uint64_t work, uint64_t all, int threads) {
  const uint64_t unit = all / (2 * (uint64_t)threads) + 1;
  const uint64_t parts = work / unit + 1;
  return parts > (uint64_t)threads ? threads : (int)parts;
}

/* The groups that have something to compute. */
static dg_status list_products(const dg_device *device, const dg_grouped *g, const int64_t *first,
                               dg_cpu_product *list, int64_t *count) {
  *count = 0;
  for (int64_t e = 0; e < g->groups; e++) {
    dg_cpu_product *x = &list[*count];
    int row;
    x->p = dg_grouped_part(g, e, first[e], first[e + 1]);
    if (x->p.m == 0 || x->p.n == 0) continue;
    const dg_status status = device->backend->choose(device, &x->p, &row);
    if (status != DG_OK) return status;
    x->kernel = dg_cpu_row(row);
    ++*count;
  }
  return DG_OK;
}

static dg_status run(const dg_device *device, dg_cpu_product *list, int64_t count) {
  uint64_t all = 0;
  for (int64_t i = 0; i < count; i++)
    if (__builtin_add_overflow(all, dg_cpu_work(&list[i].p), &all)) all = UINT64_MAX;
  const int threads = dg_cpu_threads(all, dg_cpu_allowed_threads(device));
  for (int64_t i = 0; i < count; i++)
    list[i].threads = share(dg_cpu_work(&list[i].p), all, threads);
  return dg_cpu_run_many(list, count, threads);
}

dg_status dg_cpu_run_grouped(dg_device *device, const dg_grouped *g, void *stream) {
  (void)stream;
  const size_t groups = (size_t)g->groups;
  int64_t *first = malloc((groups + 1) * sizeof *first);
  dg_cpu_product *list = malloc((groups + 1) * sizeof *list);
  int64_t count;
  dg_status status = DG_OK;
  if (first == NULL || list == NULL)
    status = dg_fail(DG_ERROR_MEMORY, "no memory for %" PRId64 " groups", g->groups);
  if (status == DG_OK) status = dg_grouped_offsets(g, first);
  if (status == DG_OK) status = list_products(device, g, first, list, &count);
  if (status == DG_OK) status = run(device, list, count);
  free(first);
  free(list);
  return status;
}
