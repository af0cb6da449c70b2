/* Grouped products on the CPU: every group is a product of its own. */
#include <inttypes.h>
#include <stdlib.h>

#include "cpu.h"

static dg_status run_parts(dg_device *device, const dg_grouped *g, const int64_t *first) {
  for (int64_t e = 0; e < g->groups; e++) {
    const dg_problem p = dg_grouped_part(g, e, first[e], first[e + 1]);
    int kernel;
    if (p.m == 0 || p.n == 0) continue;
    dg_status status = device->backend->choose(device, &p, &kernel);
    if (status == DG_OK) status = device->backend->run(device, &p, kernel, NULL);
    if (status != DG_OK) return status;
  }
  return DG_OK;
}

dg_status dg_cpu_run_grouped(dg_device *device, const dg_grouped *g, void *stream) {
  (void)stream;
  int64_t *first = malloc((size_t)(g->groups + 1) * sizeof *first);
  if (first == NULL)
    return dg_fail(DG_ERROR_MEMORY, "no memory for %" PRId64 " offsets", g->groups + 1);
  dg_status status = dg_grouped_offsets(g, first);
  if (status == DG_OK) status = run_parts(device, g, first);
  free(first);
  return status;
}
