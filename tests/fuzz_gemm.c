/* A libFuzzer target: any bytes as the arguments of a product. What the library accepts must be
 * sound (checked here element by element), then all memory must end up as the reference leaves it;
 * what it refuses must leave everything as it was. */
#include <string.h>

#include "fuzz_arena.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

static bool inside(const dg_gemm_args *args) {
  const int64_t batch = args->batch;
  return arena_holds(&args->a, &args->b, &args->out, &args->start, &args->bias,
                     (operand_batches){batch, batch, batch, batch, batch});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static unsigned char expected[ARENA];
  static dg_device *cpu;
  bytes b = {data, size};
  dg_kernel_info info;
  if (cpu == NULL) demand(dg_device_open("cpu", &cpu) == DG_OK, dg_last_error());
  const dg_gemm_args args = take_args(&b);
  arena_reset();
  const dg_status status = dg_gemm_kernel(cpu, &args, &info);
  demand(arena_untouched(), "planning wrote to memory");
  if (status != DG_OK) {
    demand(status == DG_ERROR_ARGUMENT && dg_last_error()[0], "a refusal without a reason");
    demand(dg_gemm(cpu, &args) == status && dg_reference(&args) == status, "refused by one only");
    demand(arena_untouched(), "a refused product wrote to memory");
    return 0;
  }
  if (!inside(&args)) return 0;
  demand(dg_reference(&args) == DG_OK, dg_last_error());
  memcpy(expected, arena, ARENA);
  arena_reset();
  dg_device_set_threads(cpu, 1 + (int)(size % 2));
  demand(dg_gemm(cpu, &args) == DG_OK, dg_last_error());
  demand(memcmp(arena, expected, ARENA) == 0, "other bits than the reference");
  return 0;
}
