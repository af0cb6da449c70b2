/* The fma order: one fused multiply-add in binary32 per k, k ascending. */
#include <math.h>

#include "order.h"

float dg_fma_step(float a, float b, float acc) { return fmaf(a, b, acc); }
