/* Grouped products: the offsets stay on the device, so that nothing waits for them. */
#include <math.h>

#include "driver.h"
#include "plan.h"

bool dg_gpu_fits_grouped(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)facts;
  return p->batch == 1;
}

double dg_gpu_only_forced(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return HUGE_VAL;
}

dg_status dg_gpu_run_grouped(dg_device *device, const dg_grouped *g, void *stream) {
  int kernel = 0;
  dg_grouped copy = *g;
  dg_gpu_plan plan;
  const dg_gpu_state *state = device->state;
  const dg_status status = dg_gpu_pick_grouped(device, state->platform->row, g, &kernel);
  if (status != DG_OK || g->groups == 0) return status;
  if (!dg_gpu_make_plan(device, &copy.p, kernel, &plan) || plan.exchanged)
    return dg_fail(DG_ERROR_UNSUPPORTED, "%s does not take this product",
                   device->kernels[kernel].name);
  return dg_gpu_execute(device, &plan, &copy.p, &copy, g->offsets, stream);
}
