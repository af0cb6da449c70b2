/* One product of each order with its bits by the reference, for tests of the library's conduct. It
 * is large enough that the planner gives it five threads where it may (src/cpu/plan.c). */
#ifndef DETGEMM_TESTS_SIMPLE_H
#define DETGEMM_TESTS_SIMPLE_H

#include <stdbool.h>

#include "detgemm.h"

enum { SIMPLE_M = 45, SIMPLE_N = 300, SIMPLE_K = 330 };

typedef struct simple {
  uint16_t a[SIMPLE_M * SIMPLE_K], b[SIMPLE_K * SIMPLE_N];
  uint32_t want[2][SIMPLE_M * SIMPLE_N];
} simple;

/* Inputs by seed, with subnormal sums among others, and what both orders make of them. */
void simple_make(simple *s, uint64_t seed);

/* Computes the product on the device; out has room for the result. */
dg_status simple_run(const simple *s, dg_device *device, dg_order order,
                     uint32_t out[SIMPLE_M * SIMPLE_N]);

/* Whether the device gives the right bits in both orders; complains where not. */
bool simple_right(const simple *s, dg_device *device);

#endif
