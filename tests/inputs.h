/* Input classes: the numbers that have broken such libraries. */
#ifndef DETGEMM_TESTS_INPUTS_H
#define DETGEMM_TESTS_INPUTS_H

#include <stdint.h>

#include "detgemm.h"

typedef enum input_class {
  INPUT_PLAIN,     /* around one */
  INPUT_WIDE,      /* every exponent of a finite number */
  INPUT_TINY,      /* products around the least subnormal; an accumulator of -0 occurs */
  INPUT_SUBNORMAL, /* subnormal factors beside large ones */
  INPUT_CANCEL,    /* equal magnitudes of both signs, mantissas of all zeros and all ones */
  INPUT_OVERFLOW,  /* sums pass the greatest number and come back */
  INPUT_SPECIAL,   /* infinities and NaNs in some lines */
  INPUT_ZEROS,     /* mostly zeros of both signs */
  INPUT_RUNS,      /* runs of one pattern each: zeros, ones, random, low, high, alternating */
  INPUT_RAW,       /* every bit pattern */
  INPUTS
} input_class;

extern const char *const input_names[INPUTS];

typedef struct input_state {
  uint64_t random;
  int run_left, run_mode; /* of INPUT_RUNS */
} input_state;

/* The next element, as bits of dtype. */
uint32_t input_next(input_state *state, input_class which, dg_dtype dtype);

#endif
