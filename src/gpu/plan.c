/* Chooses a row, for the executor of the GPU drivers and for OpenCL. */
#include "plan.h"

#include <math.h>

#include "../num.h"
#include "driver.h"

double dg_gpu_cost(const dg_gpu_kernel *row, const dg_gpu_facts *facts, const dg_problem ways[2],
                   bool *fits, bool *exchanged) {
  const bool fit[2] = {row->fits(&ways[0], facts), row->fits(&ways[1], facts)};
  const double straight = fit[0] ? row->microseconds(&ways[0], facts) : HUGE_VAL;
  const double turned = fit[1] ? row->microseconds(&ways[1], facts) : HUGE_VAL;
  *fits = fit[0] || fit[1];
  *exchanged = !fit[0] || turned < straight;
  return *exchanged ? turned : straight;
}

void dg_gpu_both_ways(const dg_problem *p, dg_problem ways[2]) {
  ways[0] = ways[1] = *p;
  dg_problem_exchange(&ways[1]);
}

/* A GPU faults where a CPU would not: element alignment is checked, once per call. */
dg_status dg_gpu_check_alignment(const dg_problem *p) {
  static const char *const names[] = {"a", "b", "out", "start", "bias"};
  const dg_operand *all[] = {&p->a, &p->b, &p->out, &p->start, &p->bias};
  for (int i = 0; i < 5; i++) {
    if (all[i]->data == NULL) continue;
    const uintptr_t bytes = (uintptr_t)dg_dtype_bytes(all[i]->dtype);
    if ((uintptr_t)all[i]->data % bytes != 0)
      return dg_fail(DG_ERROR_ARGUMENT,
                     "%s.data is %p; on a GPU it must be a multiple of its element's %d bytes",
                     names[i], all[i]->data, (int)bytes);
  }
  return DG_OK;
}

static dg_status nothing_fits(const dg_device *device, const dg_problem *p) {
  const char *order = p->order == DG_ORDER_FMA ? "fma" : "tc16", *why = NULL;
  bool usable = false;
  for (int i = 0; i < device->kernel_count; i++) {
    if ((int)device->kernels[i].order != p->order) continue;
    if (device->kernels[i].withheld == NULL) usable = true;
    else if (why == NULL) why = device->kernels[i].withheld;
  }
  if (usable)
    return dg_fail(DG_ERROR_UNSUPPORTED,
                   "no %s kernel that %s may use takes these shapes and strides; see `detgemm "
                   "info`, and unset DETGEMM_KERNEL",
                   order, device->name);
  return dg_fail(DG_ERROR_UNSUPPORTED,
                 "%s computes nothing in the %s order: %s; use another device", device->name, order,
                 why ? why : "it has no such kernel");
}

dg_status dg_gpu_pick(const dg_device *device, const dg_gpu_kernel *(*row)(int index),
                      const dg_gpu_facts *facts, const dg_problem *p, int *kernel) {
  const bool empty = p->m == 0 || p->n == 0 || p->batch == 0;
  dg_problem ways[2];
  double best = HUGE_VAL;
  int found = -1;
  dg_status status = dg_gpu_check_alignment(p);
  if (status != DG_OK) return status;
  dg_gpu_both_ways(p, ways);
  for (int i = 0; i < device->kernel_count; i++) {
    bool fits = empty, exchanged;
    if (device->kernels[i].withheld || (int)device->kernels[i].order != p->order) continue;
    const double time = empty ? 0 : dg_gpu_cost(row(i), facts, ways, &fits, &exchanged);
    if (!fits || (found >= 0 && !(time < best))) continue;
    best = time;
    found = i;
  }
  *kernel = found;
  return found >= 0 ? DG_OK : nothing_fits(device, p);
}

static dg_status find_grouped(const dg_device *device, const dg_gpu_kernel *(*row)(int index),
                              int order, int *kernel) {
  const char *why = "it has no such kernel";
  for (int i = 0; i < device->kernel_count; i++) {
    if (row(i)->fits != dg_gpu_fits_grouped || row(i)->order != order) continue;
    *kernel = i;
    why = device->kernels[i].withheld;
    if (why == NULL) return DG_OK;
  }
  return dg_fail(DG_ERROR_UNSUPPORTED,
                 "%s computes no grouped products in the %s order: %s; call dg_gemm for each "
                 "group's rows, which gives the same bits",
                 device->name, order == DG_ORDER_FMA ? "fma" : "tc16", why);
}

dg_status dg_gpu_pick_grouped(const dg_device *device, const dg_gpu_kernel *(*row)(int index),
                              const dg_grouped *g, int *kernel) {
  dg_status status = dg_gpu_check_alignment(&g->p);
  if (status == DG_OK) status = find_grouped(device, row, g->p.order, kernel);
  if (status != DG_OK || g->groups == 0) return status;
  if ((uintptr_t)g->offsets % (uintptr_t)g->offset_bytes == 0) return DG_OK;
  return dg_fail(DG_ERROR_ARGUMENT,
                 "groups.offsets is %p; on a GPU it must be a multiple of its element's %d bytes",
                 g->offsets, (int)g->offset_bytes);
}
