/* The choice of the way, step by step. */
#include "tc16.h"

void dg_tc16_steps(int64_t k, const void *a, const void *b, float *state, int rows,
                   const dg_tc16_ways *ways) {
  const char *x = a, *y = b;
  int fast_steps = 0; /* that the state allows before it must be looked at again */
  for (int64_t k0 = 0; k0 < k; k0 += 16) {
    const int marks = ((const dg_tc16_head *)(const void *)x)->marks +
                      ((const dg_tc16_head *)(const void *)y)->marks;
    if (marks < DG_TC16_WIDE && fast_steps == 0 && ways->calm(state, rows * ways->nr))
      fast_steps = DG_TC16_FAST_STEPS;
    if (marks < DG_TC16_WIDE && fast_steps > 0) {
      ways->fast(x, y, state, rows, ways->nr);
      fast_steps--;
    } else {
      ways->wide(x, y, state, rows, ways->nr);
      fast_steps = 0;
    }
    x += DG_TC16_A_BYTES(ways->mr);
    y += DG_TC16_B_BYTES(ways->nr);
  }
}
