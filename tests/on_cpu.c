#include "on_cpu.h"

#include <stdio.h>
#include <stdlib.h>

static dg_view view_of(const dg_operand *x, int64_t rows, int64_t cols) {
  return (dg_view){.data = x->data,
                   .rows = rows,
                   .cols = cols,
                   .row_stride = x->rs,
                   .col_stride = x->cs,
                   .batch_stride = x->bs,
                   .dtype = (dg_dtype)x->dtype};
}

void compute_on_cpu(dg_device *cpu, const dg_problem *p) {
  dg_gemm_args g = dg_gemm_args_init();
  g.order = (dg_order)p->order;
  g.batch = p->batch;
  g.a = view_of(&p->a, p->m, p->k);
  g.b = view_of(&p->b, p->k, p->n);
  g.out = view_of(&p->out, p->m, p->n);
  g.start = view_of(&p->start, p->m, p->n);
  g.bias = view_of(&p->bias, 1, p->n);
  if (p->bias.rs != 0) { /* the library exchanged the sides: one value per row */
    const dg_view a = g.a;
    g.a = dg_transposed(g.b);
    g.b = dg_transposed(a);
    g.out = dg_transposed(g.out);
    g.start = dg_transposed(g.start);
    g.bias = dg_transposed(view_of(&p->bias, p->m, 1));
  }
  if (dg_gemm(cpu, &g) == DG_OK) return;
  fprintf(stderr, "%s\n", dg_last_error());
  exit(1);
}
