/* Compares tensors bit for bit. */
#ifndef DETGEMM_DIFFERENCE_H
#define DETGEMM_DIFFERENCE_H

#include <jansson.h>
#include <stdio.h>

#include "tensor.h"

enum { ULP_BUCKETS = 34 }; /* 0: signs of zero; i: 2^(i-1) ulps up to 2^i - 1; the last: NaN */

typedef struct difference {
  int64_t elements, count;
  int64_t first, worst; /* C-order indices; meaningless while count is 0 */
  uint32_t worst_ulps;  /* UINT32_MAX where one side only is NaN, or NaNs of other bits */
  int64_t histogram[ULP_BUCKETS];
} difference;

/* x and y have one dtype and shape. */
difference difference_find(const tensor *x, const tensor *y);

/* Complains and returns false where dtype or shape are not the same. */
bool difference_comparable(const tensor *x, const char *x_name, const tensor *y,
                           const char *y_name);

void difference_print(FILE *file, const difference *d, const tensor *x, const tensor *y);
json_t *difference_json(const difference *d, const tensor *x, const tensor *y);

#endif
