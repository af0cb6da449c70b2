/* Input classes. */
#include "inputs.h"

#include "support.h"

const char *const input_names[INPUTS] = {"plain",    "wide",    "tiny",  "subnormal", "cancel",
                                         "overflow", "special", "zeros", "runs",      "raw"};

/* Where a type keeps its fields. */
typedef struct layout {
  int mantissa, exponent; /* bits */
} layout;

static layout layout_of(dg_dtype dtype) {
  static const layout all[] = {{7, 8}, {10, 5}, {23, 8}};
  return all[dtype - DG_BF16];
}

static int bias_of(layout f) { return (1 << (f.exponent - 1)) - 1; }

static uint32_t pack(layout f, uint32_t sign, int64_t field, uint64_t mantissa) {
  const int64_t top = (1 << f.exponent) - 1;
  if (field < 0) field = 0;
  if (field >= top) field = top - 1; /* finite */
  return (sign & 1u) << (f.mantissa + f.exponent) | (uint32_t)field << f.mantissa |
         ((uint32_t)mantissa & ((1u << f.mantissa) - 1u));
}

static uint32_t special(layout f, uint64_t r) {
  const uint32_t infinity = ((1u << f.exponent) - 1u) << f.mantissa;
  const uint32_t payload = (uint32_t)(r >> 20) & ((1u << f.mantissa) - 1u);
  return (uint32_t)(r & 1) << (f.mantissa + f.exponent) | infinity | (r & 2 ? payload : 0);
}

/* Least subnormal product: of binary32 for BF16 and F32 inputs; F16 products cannot get there, so
 * these are F16's own least numbers. */
static uint32_t tiny(layout f, uint64_t r) {
  const int64_t spread = (int64_t)(r >> 32 & 15);
  if (f.exponent == 5) return pack(f, (uint32_t)r, spread / 4, r >> 8);
  return pack(f, (uint32_t)r, bias_of(f) - 78 + spread, r & 0x70 ? r >> 8 : 0);
}

static uint32_t in_run(input_state *state, layout f, uint64_t r) {
  const uint32_t all = (2u << (f.mantissa + f.exponent)) - 1u;
  if (state->run_left-- <= 0) {
    state->run_left = (int)(r >> 56 & 31);
    state->run_mode = (int)(r >> 48 & 7);
  }
  const uint32_t low = (uint32_t)r & 3u;
  const uint32_t greatest = pack(f, 0, 1 << f.exponent, ~0u);
  switch (state->run_mode) {
    case 0: return 0;
    case 1: return greatest;
    case 2: return (uint32_t)(r >> 8) & all;
    case 3: return low;
    case 4: return greatest - low;
    case 5: return state->run_left & 1 ? low : greatest - low;
    case 6: return pack(f, (uint32_t)state->run_left, bias_of(f), ~0u);
    default: return pack(f, (uint32_t)r, (int64_t)(r >> 8), r & 2 ? 0 : ~0u);
  }
}

uint32_t input_next(input_state *state, input_class which, dg_dtype dtype) {
  const layout f = layout_of(dtype);
  const uint64_t r = random_next(&state->random);
  const uint32_t sign = (uint32_t)r;
  const int64_t spread = (int64_t)(r >> 32 & 0xffff), bias = bias_of(f);
  const int64_t half = bias / 2;
  switch (which) {
    case INPUT_WIDE: return pack(f, sign, spread % ((1 << f.exponent) - 1), r >> 8);
    case INPUT_TINY: return tiny(f, r);
    case INPUT_SUBNORMAL: return pack(f, sign, spread & 1 ? 0 : 2 * bias - spread / 2 % 40, r >> 8);
    case INPUT_CANCEL: return pack(f, sign, bias + spread % 2, spread & 4 ? 0 : ~0u);
    case INPUT_OVERFLOW: return pack(f, sign, bias + half - 2 + spread % 4, r >> 8);
    case INPUT_SPECIAL:
      if (spread % 97 == 0) return special(f, r);
      return pack(f, sign, bias - 8 + spread % 16, r >> 8);
    case INPUT_ZEROS: return spread % 5 ? pack(f, sign, 0, 0) : tiny(f, r);
    case INPUT_RUNS: return in_run(state, f, r);
    case INPUT_RAW: return (uint32_t)(r >> 8) & ((2u << (f.mantissa + f.exponent)) - 1u);
    default: return pack(f, sign, bias - 4 + spread % 8, r >> 8);
  }
}
