/* The exported functions that compute. */
#include "internal.h"
#include "order.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *dg_version(void) {
  return TEXT(DG_VERSION_MAJOR) "." TEXT(DG_VERSION_MINOR) "." TEXT(DG_VERSION_PATCH);
}

int dg_abi(void) { return DG_ABI; }

static bool nothing_to_do(const dg_problem *p) { return p->m == 0 || p->n == 0 || p->batch == 0; }

/* Checks the call and chooses the row. */
static dg_status plan(const dg_device *device, const dg_gemm_args *args, dg_problem *p,
                      int *kernel) {
  if (device == NULL) return dg_fail(DG_ERROR_ARGUMENT, "device is NULL; open one first");
  dg_status status = dg_problem_make(args, p);
  if (status != DG_OK) return status;
  return device->backend->choose(device, p, kernel);
}

dg_status dg_gemm(dg_device *device, const dg_gemm_args *args) {
  dg_problem p;
  int kernel = 0;
  dg_status status = plan(device, args, &p, &kernel);
  if (status != DG_OK || nothing_to_do(&p)) return status;
  return device->backend->run(device, &p, kernel, args->stream);
}

dg_status dg_gemm_kernel(dg_device *device, const dg_gemm_args *args, dg_kernel_info *info) {
  dg_problem p;
  int kernel = 0;
  if (info == NULL) return dg_fail(DG_ERROR_ARGUMENT, "info is NULL; pass a dg_kernel_info");
  dg_status status = plan(device, args, &p, &kernel);
  if (status == DG_OK) *info = device->kernels[kernel];
  return status;
}

dg_status dg_reference(const dg_gemm_args *args) {
  dg_problem p;
  dg_status status = dg_problem_make(args, &p);
  if (status == DG_OK) status = dg_canary();
  if (status == DG_OK && !nothing_to_do(&p)) dg_reference_run(&p);
  return status;
}

/* out[M,N] = a b, without start, bias or batch. */
static dg_status product(dg_device *device, void *stream, dg_order order, dg_view a, dg_view b,
                         dg_view out) {
  dg_gemm_args args = dg_gemm_args_init();
  args.order = order;
  args.a = a;
  args.b = b;
  args.out = out;
  args.stream = stream;
  return dg_gemm(device, &args);
}

dg_status dg_forward(dg_device *device, void *stream, dg_order order, dg_view a, dg_view b,
                     dg_view out) {
  return product(device, stream, order, a, b, out);
}

dg_status dg_forward_nt(dg_device *device, void *stream, dg_order order, dg_view a, dg_view w,
                        dg_view out) {
  return product(device, stream, order, a, dg_transposed(w), out);
}

dg_status dg_grad_a(dg_device *device, void *stream, dg_order order, dg_view dc, dg_view b,
                    dg_view da) {
  return product(device, stream, order, dc, dg_transposed(b), da);
}

dg_status dg_grad_b(dg_device *device, void *stream, dg_order order, dg_view a, dg_view dc,
                    dg_view db) {
  return product(device, stream, order, dg_transposed(a), dc, db);
}

dg_status dg_grad_b_t(dg_device *device, void *stream, dg_order order, dg_view a, dg_view dc,
                      dg_view dw) {
  return product(device, stream, order, dg_transposed(a), dc, dg_transposed(dw));
}
