/* A libFuzzer target: any bytes as the arguments of a product. What the library accepts must be
 * sound (checked here element by element), then all memory must end up as the reference leaves it;
 * what it refuses must leave everything as it was. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detgemm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA = 4096 };
static unsigned char arena[ARENA], before[ARENA], expected[ARENA];

typedef struct bytes {
  const uint8_t *data;
  size_t size;
} bytes;

static uint8_t take(bytes *b) {
  if (b->size == 0) return 0;
  b->size--;
  return *b->data++;
}

/* Mostly small numbers; sometimes any. */
static int64_t take_number(bytes *b, int64_t least, int64_t most) {
  const uint8_t way = take(b);
  uint64_t any = 0;
  if (way < 240) return least + way % (most - least + 1);
  for (int i = 0; i < 8; i++) any = any << 8 | take(b);
  if (way < 244) return (int64_t)((UINT64_C(1) << (any & 63)) - (any >> 8 & 3));
  return (int64_t)any;
}

static dg_view take_view(bytes *b, int64_t rows, int64_t cols, dg_dtype dtype) {
  dg_view v = dg_row_major(arena + (take(b) << 8 | take(b)) % ARENA, dtype, rows, cols);
  const uint8_t way = take(b);
  if (way & 1) v = (dg_view){v.data, rows, cols, 1, rows, rows * cols, dtype};
  if (way & 2) v.row_stride = take_number(b, -20, 40);
  if (way & 4) v.col_stride = take_number(b, -20, 40);
  if (way & 8) v.batch_stride = take_number(b, -100, 200);
  if (way & 16) v.rows = take_number(b, -1, 12);
  if (way & 32) v.cols = take_number(b, -1, 12);
  if (way & 64) v.dtype = (dg_dtype)take_number(b, 0, 4);
  if (way & 128) v.data = take(b) & 1 ? NULL : (void *)(uintptr_t)take_number(b, 0, 100);
  return v;
}

static dg_gemm_args take_args(bytes *b) {
  dg_gemm_args args = dg_gemm_args_init();
  const int64_t m = take(b) % 13, n = take(b) % 13, k = take(b) % 40;
  const uint8_t types = take(b), way = take(b);
  const dg_dtype in = (dg_dtype)(DG_BF16 + types % 3);
  args.order = (dg_order)(1 + (types >> 2) % 2);
  if (way & 1) args.batch = take_number(b, 0, 3);
  if ((way & 0xfe) == 0xfe) args.order = (dg_order)take_number(b, -1, 4);
  if ((way & 0xfe) == 0xfc) args.size = (size_t)take_number(b, 0, 400);
  args.a = take_view(b, m, k, in);
  args.b = take_view(b, k, n, in);
  args.out = take_view(b, m, n, (dg_dtype)(DG_BF16 + (types >> 3) % 3));
  if (way & 2) args.start = take_view(b, m, n, DG_F32);
  if (way & 4) args.start = args.out;
  if (way & 8) args.bias = take_view(b, 1, n, (dg_dtype)(DG_BF16 + (types >> 5) % 3));
  return args;
}

static int64_t width(dg_dtype dtype) { return dtype == DG_F32 ? 4 : 2; }

/* Counts into marks how often each byte of the arena belongs to the view. False: reaches outside.
 */
static bool mark(const dg_view *v, int64_t batch, unsigned char marks[ARENA]) {
  const int64_t base = (int64_t)((uintptr_t)v->data - (uintptr_t)arena), size = width(v->dtype);
  if (v->rows == 0 || v->cols == 0 || batch == 0) return true;
  if (v->rows > 64 || v->cols > 64 || batch > 64) return false;
  for (int64_t z = 0; z < batch; z++)
    for (int64_t i = 0; i < v->rows; i++)
      for (int64_t j = 0; j < v->cols; j++) {
        /* the library has accepted the view, so this cannot overflow */
        const int64_t at = base + size * ((batch > 1 ? z * v->batch_stride : 0) +
                                          (v->rows > 1 ? i * v->row_stride : 0) +
                                          (v->cols > 1 ? j * v->col_stride : 0));
        if (at < 0 || at + size > ARENA) return false;
        for (int64_t byte = at; byte < at + size; byte++)
          if (marks[byte] < 255) marks[byte]++;
      }
  return true;
}

static void demand(bool right, const char *what) {
  if (right) return;
  fprintf(stderr, "%s\n", what);
  abort();
}

static bool same_place(const dg_view *x, const dg_view *y) {
  return memcmp(&x->data, &y->data, sizeof x->data) == 0 && x->dtype == y->dtype;
}

/* Whether all of an accepted product lies in the arena; its views are checked then. */
static bool inside(const dg_gemm_args *args) {
  static unsigned char out[ARENA], in[ARENA];
  memset(out, 0, sizeof out);
  if (!mark(&args->out, args->batch, out)) return false;
  for (int i = 0; i < ARENA; i++) demand(out[i] <= 1, "elements of an accepted output coincide");
  const dg_view *inputs[] = {&args->a, &args->b, &args->start, &args->bias};
  for (int i = 0; i < 4; i++) {
    if (i > 1 && inputs[i]->data == NULL) continue;
    memset(in, 0, sizeof in);
    if (!mark(inputs[i], args->batch, in)) return false;
    if (i == 2 && same_place(inputs[i], &args->out)) continue;
    for (int byte = 0; byte < ARENA; byte++)
      demand(!(in[byte] && out[byte]), "an accepted output overlaps an input");
  }
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static dg_device *cpu;
  bytes b = {data, size};
  dg_kernel_info info;
  if (cpu == NULL) demand(dg_device_open("cpu", &cpu) == DG_OK, dg_last_error());
  const dg_gemm_args args = take_args(&b);
  for (int i = 0; i < ARENA; i++) before[i] = (unsigned char)(i * 37 ^ i >> 3);
  memcpy(arena, before, ARENA);
  const dg_status status = dg_gemm_kernel(cpu, &args, &info);
  demand(memcmp(arena, before, ARENA) == 0, "planning wrote to memory");
  if (status != DG_OK) {
    demand(status == DG_ERROR_ARGUMENT && dg_last_error()[0], "a refusal without a reason");
    demand(dg_gemm(cpu, &args) == status && dg_reference(&args) == status, "refused by one only");
    demand(memcmp(arena, before, ARENA) == 0, "a refused product wrote to memory");
    return 0;
  }
  if (!inside(&args)) return 0;
  demand(dg_reference(&args) == DG_OK, dg_last_error());
  memcpy(expected, arena, ARENA);
  memcpy(arena, before, ARENA);
  dg_device_set_threads(cpu, 1 + (int)(size % 2));
  demand(dg_gemm(cpu, &args) == DG_OK, dg_last_error());
  demand(memcmp(arena, expected, ARENA) == 0, "other bits than the reference");
  return 0;
}
