/* The scalar reference: every element by the definition of its order, one at a time. */
#include "fpenv.h"
#include "internal.h"
#include "num.h"
#include "order.h"

static const char *at(const dg_operand *x, int64_t z, int64_t i, int64_t j) {
  return (const char *)x->data + dg_dtype_bytes(x->dtype) * (z * x->bs + i * x->rs + j * x->cs);
}

static uint32_t sum_fma(const dg_problem *p, int64_t z, int64_t i, int64_t j, uint32_t acc) {
  float sum = dg_f32_from_bits(acc);
  for (int64_t k = 0; k < p->k; k++) {
    float a = dg_f32_from_bits(dg_load(at(&p->a, z, i, k), p->a.dtype));
    float b = dg_f32_from_bits(dg_load(at(&p->b, z, k, j), p->b.dtype));
    sum = dg_fma_step(a, b, sum);
  }
  return dg_f32_bits(sum);
}

static dg_tc16_factor factor(const char *p, int dtype) {
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
  return dg_tc16_decode(bits, dtype);
}

static uint32_t sum_tc16(const dg_problem *p, int64_t z, int64_t i, int64_t j, uint32_t acc) {
  for (int64_t k0 = 0; k0 < p->k; k0 += 16) {
    dg_tc16_factor a[16] = {0}, b[16] = {0}; /* the last step is filled up with zeros */
    for (int64_t k = k0; k < p->k && k < k0 + 16; k++) {
      a[k - k0] = factor(at(&p->a, z, i, k), p->a.dtype);
      b[k - k0] = factor(at(&p->b, z, k, j), p->b.dtype);
    }
    acc = dg_tc16_step(a, b, acc);
  }
  return acc;
}

static uint32_t element(const dg_problem *p, int64_t z, int64_t i, int64_t j) {
  uint32_t acc = p->start.data ? dg_load(at(&p->start, z, i, j), DG_F32) : 0;
  acc = p->order == DG_ORDER_FMA ? sum_fma(p, z, i, j, acc) : sum_tc16(p, z, i, j, acc);
  if (p->bias.data) {
    float bias = dg_f32_from_bits(dg_load(at(&p->bias, z, i, j), p->bias.dtype));
    acc = dg_f32_bits(dg_f32_from_bits(acc) + bias);
  }
  return acc;
}

void dg_reference_run(const dg_problem *p) {
  dg_fpenv saved = dg_fpenv_enter();
  for (int64_t z = 0; z < p->batch; z++)
    for (int64_t i = 0; i < p->m; i++)
      for (int64_t j = 0; j < p->n; j++)
        dg_store((void *)(uintptr_t)at(&p->out, z, i, j), p->out.dtype, element(p, z, i, j));
  dg_fpenv_leave(saved);
}
