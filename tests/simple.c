/* One product of each order. */
#include "simple.h"

#include <stdio.h>
#include <string.h>

#include "inputs.h"

static dg_gemm_args args_of(const simple *s, dg_order order, void *out) {
  dg_gemm_args args = dg_gemm_args_init();
  args.order = order;
  args.a = dg_row_major(s->a, DG_BF16, SIMPLE_M, SIMPLE_K);
  args.b = dg_row_major(s->b, DG_BF16, SIMPLE_K, SIMPLE_N);
  args.out = dg_row_major(out, DG_F32, SIMPLE_M, SIMPLE_N);
  return args;
}

void simple_make(simple *s, uint64_t seed) {
  input_state state = {.random = seed};
  for (int i = 0; i < SIMPLE_M * SIMPLE_K; i++)
    s->a[i] = (uint16_t)input_next(&state, i / SIMPLE_K % 2 ? INPUT_TINY : INPUT_WIDE, DG_BF16);
  for (int i = 0; i < SIMPLE_K * SIMPLE_N; i++)
    s->b[i] = (uint16_t)input_next(&state, i % 3 ? INPUT_PLAIN : INPUT_TINY, DG_BF16);
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    const dg_gemm_args args = args_of(s, (dg_order)order, s->want[order - DG_ORDER_FMA]);
    if (dg_reference(&args) != DG_OK) memset(s->want, 0xff, sizeof s->want);
  }
}

dg_status simple_run(const simple *s, dg_device *device, dg_order order,
                     uint32_t out[SIMPLE_M * SIMPLE_N]) {
  const dg_gemm_args args = args_of(s, order, out);
  return dg_gemm(device, &args);
}

bool simple_right(const simple *s, dg_device *device) {
  uint32_t out[SIMPLE_M * SIMPLE_N];
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    memset(out, 0xa5, sizeof out);
    const dg_status status = simple_run(s, device, (dg_order)order, out);
    if (status == DG_OK && memcmp(out, s->want[order - DG_ORDER_FMA], sizeof out) == 0) continue;
    fprintf(stderr, "order %d: %s\n", order, status == DG_OK ? "other bits" : dg_last_error());
    return false;
  }
  return true;
}
