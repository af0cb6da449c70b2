/* Grouped products: the exported functions, and how one is cut into its groups. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "num.h"
#include "order.h"

static int64_t offset(const dg_grouped *g, int64_t i) {
  const char *at = (const char *)g->offsets + i * g->offset_bytes;
  int64_t wide;
  int32_t narrow;
  if (g->offset_bytes == 8) {
    memcpy(&wide, at, sizeof wide);
    return wide;
  }
  memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

dg_status dg_grouped_offsets(const dg_grouped *g, int64_t *first) {
  const int64_t rows = g->split == DG_SPLIT_M ? g->p.m : g->p.k;
  int64_t least = 0;
  for (int64_t i = 0; i <= g->groups; i++) {
    first[i] = offset(g, i);
    if (first[i] < least || first[i] > rows)
      return dg_fail(DG_ERROR_ARGUMENT,
                     "groups.offsets[%" PRId64 "] is %" PRId64 "; it must be %" PRId64
                     " to %" PRId64 ": offsets ascend from 0 to the number of rows",
                     i, first[i], least, rows);
    least = first[i];
  }
  return DG_OK;
}

/* The operand moved on by a number of elements. */
static void move(dg_operand *x, int64_t elements) {
  if (x->data) x->data = (char *)x->data + dg_dtype_bytes(x->dtype) * elements;
}

dg_problem dg_grouped_part(const dg_grouped *g, int64_t group, int64_t first, int64_t last) {
  dg_problem p = g->p;
  move(&p.bias, group * p.bias.bs);
  if (g->split == DG_SPLIT_M) {
    p.m = last - first;
    if (p.m == 0) return p; /* past the last row there is no address */
    move(&p.a, first * p.a.rs);
    move(&p.b, group * p.b.bs);
    move(&p.out, first * p.out.rs);
    move(&p.start, first * p.start.rs);
    if (p.m == 1) p.a.rs = p.out.rs = p.start.rs = 0;
  } else {
    p.k = last - first;
    if (p.k > 0) {
      move(&p.a, first * p.a.cs);
      move(&p.b, first * p.b.rs);
    }
    move(&p.out, group * p.out.bs);
    move(&p.start, group * p.start.bs);
    if (p.k == 1) p.a.cs = p.b.rs = 0;
  }
  p.a.bs = p.b.bs = p.out.bs = p.start.bs = p.bias.bs = 0;
  return p;
}

dg_status dg_gemm_grouped(dg_device *device, const dg_grouped_args *args) {
  dg_grouped g;
  if (device == NULL) return dg_fail(DG_ERROR_ARGUMENT, "device is NULL; open one first");
  dg_status status = dg_grouped_make(args, &g);
  if (status != DG_OK) return status;
  if (device->backend->run_grouped == NULL)
    return dg_fail(
        DG_ERROR_UNSUPPORTED,
        "%s has no grouped products; call dg_gemm for each group's rows, which gives the "
        "same bits",
        device->name);
  return device->backend->run_grouped(device, &g, args->stream);
}

dg_status dg_reference_grouped(const dg_grouped_args *args) {
  dg_grouped g;
  dg_status status = dg_grouped_make(args, &g);
  if (status != DG_OK) return status;
  int64_t *first = malloc((size_t)(g.groups + 1) * sizeof *first);
  if (first == NULL)
    return dg_fail(DG_ERROR_MEMORY, "no memory for %" PRId64 " offsets", g.groups + 1);
  status = dg_grouped_offsets(&g, first);
  for (int64_t e = 0; status == DG_OK && e < g.groups; e++) {
    const dg_problem p = dg_grouped_part(&g, e, first[e], first[e + 1]);
    dg_reference_run(&p);
  }
  free(first);
  return status;
}

static dg_status grouped(dg_device *device, void *stream, dg_order order, dg_split split,
                         dg_groups groups, dg_view a, dg_view b, dg_view out) {
  dg_grouped_args args = dg_grouped_args_init();
  args.order = order;
  args.split = split;
  args.groups = groups;
  args.a = a;
  args.b = b;
  args.out = out;
  args.stream = stream;
  return dg_gemm_grouped(device, &args);
}

dg_status dg_grouped_forward(dg_device *device, void *stream, dg_order order, dg_groups groups,
                             dg_view a, dg_view w, dg_view out) {
  return grouped(device, stream, order, DG_SPLIT_M, groups, a, dg_transposed(w), out);
}

dg_status dg_grouped_grad_a(dg_device *device, void *stream, dg_order order, dg_groups groups,
                            dg_view dc, dg_view w, dg_view da) {
  return grouped(device, stream, order, DG_SPLIT_M, groups, dc, w, da);
}

dg_status dg_grouped_grad_b(dg_device *device, void *stream, dg_order order, dg_groups groups,
                            dg_view a, dg_view dc, dg_view dw) {
  return grouped(device, stream, order, DG_SPLIT_K, groups, dg_transposed(dc), a, dw);
}
