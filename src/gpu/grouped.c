/* Grouped products: the offsets stay on the device, so that nothing waits for them. */
#include <math.h>

#include "driver.h"

bool dg_gpu_fits_grouped(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)facts;
  return p->batch == 1;
}

double dg_gpu_only_forced(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return HUGE_VAL;
}

static dg_status find_row(const dg_device *device, int order, int *kernel) {
  const dg_gpu_state *state = device->state;
  const char *why = "it has no such kernel";
  for (int i = 0; i < device->kernel_count; i++) {
    const dg_gpu_kernel *row = state->platform->row(i);
    if (row->fits != dg_gpu_fits_grouped || row->order != order) continue;
    *kernel = i;
    why = device->kernels[i].withheld;
    if (why == NULL) return DG_OK;
  }
  return dg_fail(DG_ERROR_UNSUPPORTED,
                 "%s computes no grouped products in the %s order: %s; call dg_gemm for each "
                 "group's rows, which gives the same bits",
                 device->name, order == DG_ORDER_FMA ? "fma" : "tc16", why);
}

dg_status dg_gpu_run_grouped(dg_device *device, const dg_grouped *g, void *stream) {
  int kernel = 0;
  dg_grouped copy = *g;
  dg_gpu_plan plan;
  dg_status status = dg_gpu_check_alignment(&g->p);
  if (status == DG_OK) status = find_row(device, g->p.order, &kernel);
  if (status != DG_OK || g->groups == 0) return status;
  if ((uintptr_t)g->offsets % (uintptr_t)g->offset_bytes != 0)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "groups.offsets is %p; on a GPU it must be a multiple of its element's %d bytes",
                   g->offsets, (int)g->offset_bytes);
  if (!dg_gpu_make_plan(device, &copy.p, kernel, &plan) || plan.exchanged)
    return dg_fail(DG_ERROR_UNSUPPORTED, "%s does not take this product",
                   device->kernels[kernel].name);
  return dg_gpu_execute(device, &plan, &copy.p, &copy, g->offsets, stream);
}
