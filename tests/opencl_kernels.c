/* Runs every OpenCL kernel on small products and compares the bits with the scalar reference,
 * without the probe, which takes hours in a simulator. The first device's driver is to watch for
 * races and for accesses out of bounds: run it under oclgrind, as
 *
 *   OCL_ICD_VENDORS=FOLDER-WITH-AN-ICD-FILE OCLGRIND_DATA_RACES=1 opencl_kernels
 *
 * whose complaints on stderr count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/internal.h"
#include "../src/num.h"
#include "../src/opencl/opencl.h"
#include "../src/order.h"

/* Odd ones, whose elements are read one by one; aligned ones, of more panels than a kernel keeps;
 * sums of one step and of none. */
static const struct {
  int m, n, k;
  bool b_transposed;
  int in, out;
} shapes[] = {{9, 21, 37, false, DG_BF16, DG_F32},
              {3, 40, 160, true, DG_BF16, DG_BF16},
              {8, 40, 136, false, DG_F16, DG_F16},
              {17, 66, 1, true, DG_F32, DG_F32},
              {5, 33, 0, true, DG_BF16, DG_F32}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 64 << 10 };

static int failed, passed;
static char *a, *b, *out, *expected;
static float *start, *bias;

static void give_up(const char *why) {
  fprintf(stderr, "%s\n", why);
  exit(1);
}

/* Memory that ends where a product's operand does, so that the simulator sees every step beyond. */
static void *memory(size_t bytes) {
  unsigned char *data = malloc(bytes);
  static uint32_t x = 1;
  if (data == NULL) give_up("no memory");
  for (size_t i = 0; i < bytes; i++) {
    x = x * 1664525u + 1013904223u;
    data[i] = (unsigned char)(x >> 24);
  }
  return data;
}

/* Every bit pattern but those of NaN and infinity. */
static void *numbers(int count, int dtype) {
  const size_t size = (size_t)dg_dtype_bytes(dtype);
  unsigned char *data = memory((size_t)count * size + 1);
  for (int i = 0; i < count; i++) data[(size_t)i * size + size - 1] &= 0xbf;
  return data;
}

static dg_problem make(int which) {
  const int m = shapes[which].m, n = shapes[which].n, k = shapes[which].k, in = shapes[which].in;
  dg_problem p = {.m = m, .n = n, .k = k, .batch = 1, .order = DG_ORDER_FMA};
  a = numbers(m * k, in);
  b = numbers(k * n, in);
  start = numbers(m * n, DG_F32);
  bias = numbers(n, in);
  out = memory((size_t)(m * n) * 4);
  expected = memory((size_t)(m * n) * 4);
  p.a = (dg_operand){.data = a, .rs = k, .cs = 1, .dtype = in};
  p.b = shapes[which].b_transposed ? (dg_operand){.data = b, .rs = 1, .cs = k, .dtype = in}
                                   : (dg_operand){.data = b, .rs = n, .cs = 1, .dtype = in};
  p.start = (dg_operand){.data = start, .rs = n, .cs = 1, .dtype = DG_F32};
  p.bias = (dg_operand){.data = bias, .cs = 1, .dtype = in};
  p.out = (dg_operand){.data = expected, .rs = n, .cs = 1, .dtype = shapes[which].out};
  dg_reference_run(&p);
  p.out.data = out;
  return p;
}

static void drop(void) {
  void *all[] = {a, b, start, bias, out, expected};
  for (int i = 0; i < 6; i++) free(all[i]);
}

static void check(bool good, const char *row, int which) {
  printf("%s %s on %d x %d x %d\n", good ? "ok    " : "FAILED", row, shapes[which].m,
         shapes[which].n, shapes[which].k);
  passed += good;
  failed += !good;
}

/* A row on a product, one way round or the other. */
static void run(dg_device *device, int row, int which) {
  const dg_problem p = make(which);
  if (dg_opencl_backend.takes(device, &p, row) == false) {
    dg_problem turned = p;
    dg_problem_exchange(&turned);
    if (!dg_opencl_backend.takes(device, &turned, row)) {
      drop();
      return;
    }
  }
  const dg_status status = dg_opencl_backend.run(device, &p, row, NULL);
  if (status != DG_OK) fprintf(stderr, "%s\n", dg_last_error());
  check(status == DG_OK &&
            memcmp(out, expected, (size_t)(p.m * p.n * dg_dtype_bytes(p.out.dtype))) == 0,
        dg_opencl_row(row)->name, which);
  drop();
}

/* Groups of three rows, of none and of six. */
static void run_groups(dg_device *device, int split) {
  static const int32_t offsets[] = {0, 3, 3, 9};
  enum { GROUPS = 3, ROWS = 9, COLS = 21, SUMS = 19 };
  dg_grouped g = {.groups = GROUPS, .offsets = offsets, .offset_bytes = 4, .split = split};
  const bool by_rows = split == DG_SPLIT_M;
  const int m = by_rows ? ROWS : SUMS, k = by_rows ? SUMS : ROWS;
  const int outs = by_rows ? m * COLS : GROUPS * m * COLS;
  g.p = (dg_problem){.m = m, .n = COLS, .k = k, .batch = 1, .order = DG_ORDER_FMA};
  a = numbers(ROWS * SUMS, DG_BF16);
  b = numbers((by_rows ? GROUPS : 1) * k * COLS, DG_BF16);
  out = memory((size_t)outs * 4);
  expected = memory((size_t)outs * 4);
  g.p.a =
      (dg_operand){.data = a, .rs = by_rows ? SUMS : 1, .cs = by_rows ? 1 : SUMS, .dtype = DG_BF16};
  g.p.b =
      (dg_operand){.data = b, .rs = COLS, .cs = 1, .bs = by_rows ? k * COLS : 0, .dtype = DG_BF16};
  g.p.out = (dg_operand){
      .data = expected, .rs = COLS, .cs = 1, .bs = by_rows ? 0 : m * COLS, .dtype = DG_F32};
  for (int e = 0; e < GROUPS; e++) {
    const dg_problem part = dg_grouped_part(&g, e, offsets[e], offsets[e + 1]);
    dg_reference_run(&part);
  }
  g.p.out.data = out;
  const dg_status status = dg_opencl_backend.run_grouped(device, &g, NULL);
  if (status != DG_OK) fprintf(stderr, "%s\n", dg_last_error());
  const bool good = status == DG_OK && memcmp(out, expected, (size_t)outs * 4) == 0;
  printf("%s groups of %s\n", good ? "ok    " : "FAILED", by_rows ? "rows" : "sums");
  passed += good;
  failed += !good;
  start = bias = NULL;
  drop();
}

int main(int argc, char **argv) {
  static dg_opencl_state state = {.facts = {DG_OPENCL_GPU, 2, 48 << 10}};
  static dg_kernel_info infos[DG_OPENCL_MAX_ROWS];
  dg_device device = {.backend = &dg_opencl_backend, .name = "opencl:0", .state = &state};
  const char *why, *only = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (dg_opencl_load(&why) == 0) give_up(why);
  state.device = dg_opencl_device(0);
  pthread_mutex_init(&state.lock, NULL);
  if (dg_opencl_build(state.device, state.facts.arch, NULL, &state.programs) != DG_OK)
    give_up(dg_last_error());
  while (dg_opencl_row(device.kernel_count)) device.kernel_count++;
  device.kernels = infos;
  for (int row = 0; row < device.kernel_count; row++) {
    if (dg_opencl_row(row)->arch_min > state.facts.arch) continue;
    if (strstr(dg_opencl_row(row)->name, only) == NULL) continue;
    for (int i = 0; i < SHAPES; i++) run(&device, row, i);
  }
  if (strstr("grouped", only)) {
    run_groups(&device, DG_SPLIT_M);
    run_groups(&device, DG_SPLIT_K);
  }
  dg_opencl_program_free(state.programs);
  printf("%d passed, %d failed, 0 skipped\n", passed, failed);
  return failed != 0;
}
