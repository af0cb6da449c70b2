/* A libFuzzer target: any bytes as the arguments of a grouped product, its offsets included. The
 * demands are those of fuzz_gemm.c. */
#include <string.h>

#include "../src/internal.h"
#include "fuzz_arena.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_GROUPS = 6 };
static union {
  int32_t narrow[MOST_GROUPS + 1];
  int64_t wide[MOST_GROUPS + 1];
} offsets;

/* Mostly ascending offsets to at most `rows`. The library reads as many as there are groups, so no
 * more groups than there is room for. */
static dg_groups take_groups(bytes *b, int64_t rows) {
  const uint8_t way = take(b);
  dg_groups groups = {way % (MOST_GROUPS + 1), &offsets, way & 128 ? 8 : 4};
  int64_t at = 0;
  for (int i = 0; i <= MOST_GROUPS; i++) {
    const int64_t step = take_number(b, 0, 9);
    if (at >= 0 && at <= rows && step >= 0 && step <= rows - at) at += step;
    else if (way & 8) at = step;
    if (way & 128) offsets.wide[i] = at;
    else offsets.narrow[i] = (int32_t)at;
  }
  const uint8_t odd = take(b);
  if (odd == 1) groups.count = take_number(b, -3, -1) | INT64_MIN;
  if (odd == 2) groups.offset_bytes = (int)take_number(b, -1, 3);
  if (odd == 3) groups.offsets = NULL;
  return groups;
}

static dg_grouped_args take_args(bytes *b) {
  dg_grouped_args args = dg_grouped_args_init();
  const int64_t m = take(b) % 25, n = take(b) % 13, k = take(b) % 40;
  const uint8_t types = take(b), way = take(b);
  const dg_dtype in = (dg_dtype)(DG_BF16 + types % 3);
  args.order = (dg_order)(1 + (types >> 2) % 2);
  args.split = way & 1 ? DG_SPLIT_M : DG_SPLIT_K;
  if ((way & 0xfe) == 0xfe) args.order = (dg_order)take_number(b, -1, 4);
  if ((way & 0xfe) == 0xfc) args.size = (size_t)take_number(b, 0, 400);
  if ((way & 0xfe) == 0xfa) args.split = (dg_split)take_number(b, -1, 4);
  args.groups = take_groups(b, args.split == DG_SPLIT_M ? m : k);
  args.a = take_view(b, m, k, in);
  args.b = take_view(b, k, n, in);
  args.out = take_view(b, m, n, (dg_dtype)(DG_BF16 + (types >> 3) % 3));
  if (way & 2) args.start = take_view(b, m, n, DG_F32);
  if (way & 4) args.start = args.out;
  if (way & 8) args.bias = take_view(b, 1, n, (dg_dtype)(DG_BF16 + (types >> 5) % 3));
  return args;
}

static bool inside(const dg_grouped_args *args) {
  const int64_t groups = args->groups.count;
  const operand_batches batches = args->split == DG_SPLIT_M
                                      ? (operand_batches){1, groups, 1, 1, groups}
                                      : (operand_batches){1, 1, groups, groups, groups};
  return arena_holds(&args->a, &args->b, &args->out, &args->start, &args->bias, batches);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static unsigned char expected[ARENA];
  static dg_device *cpu;
  bytes b = {data, size};
  if (cpu == NULL) demand(dg_device_open("cpu", &cpu) == DG_OK, dg_last_error());
  const dg_grouped_args args = take_args(&b);
  dg_grouped product; /* checked, not computed: it may lie outside of the arena */
  if (dg_grouped_make(&args, &product) == DG_OK && !inside(&args)) return 0;
  arena_reset();
  const dg_status status = dg_reference_grouped(&args);
  if (status != DG_OK) {
    demand(status == DG_ERROR_ARGUMENT && dg_last_error()[0], "a refusal without a reason");
    demand(dg_gemm_grouped(cpu, &args) == status, "refused by one only");
    demand(arena_untouched(), "a refused product wrote to memory");
    return 0;
  }
  memcpy(expected, arena, ARENA);
  arena_reset();
  dg_device_set_threads(cpu, 1 + (int)(size % 2));
  demand(dg_gemm_grouped(cpu, &args) == DG_OK, dg_last_error());
  demand(memcmp(arena, expected, ARENA) == 0, "other bits than the reference");
  return 0;
}
