/* What the benchmarks of all devices share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

const char *bench_op_name(bench_op op) {
  static const char *const names[] = {"forward", "nt", "grad-a", "grad-b"};
  return names[op];
}

const char *bench_row_name(const bench_row *row, char text[32]) {
  snprintf(text, 32, "%s%s%s", bench_op_name(row->op), row->out == DG_F32 ? "+f32" : "",
           row->start ? "+start" : "");
  return text;
}

bench_product bench_product_of(const bench_row *r) {
  switch (r->op) {
    case BOP_NT: return (bench_product){r->m, r->n, r->k, false, true};
    case BOP_GRAD_A: return (bench_product){r->m, r->k, r->n, false, true};
    case BOP_GRAD_B: return (bench_product){r->k, r->n, r->m, true, false};
    default: return (bench_product){r->m, r->n, r->k, false, false};
  }
}

static dg_view side(const void *data, int64_t rows, int64_t cols, bool transposed) {
  return transposed ? dg_transposed(dg_row_major(data, DG_BF16, cols, rows))
                    : dg_row_major(data, DG_BF16, rows, cols);
}

dg_gemm_args bench_args(const bench_row *row, const void *a, const void *b, void *out) {
  const bench_product p = bench_product_of(row);
  dg_gemm_args g = dg_gemm_args_init();
  g.order = row->order;
  g.a = side(a, p.rows, p.sums, p.a_transposed);
  g.b = side(b, p.sums, p.cols, p.b_transposed);
  g.out = dg_row_major(out, row->out ? row->out : DG_BF16, p.rows, p.cols);
  return g;
}

int bench_rotation(const bench_row *row, int64_t bytes_in_all) {
  const bench_product p = bench_product_of(row);
  const int64_t bytes = p.cols * p.sums * 2;
  const int64_t count = bytes ? (bytes_in_all + bytes - 1) / bytes : 1;
  return (int)(count < 1 ? 1 : count > 1024 ? 1024 : count);
}

void bench_fill(uint16_t *data, int64_t count) {
  uint32_t state = 2026;
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    data[i] =
        (uint16_t)((state >> 31) << 15 | (121 + (state >> 28 & 7)) << 7 | (state >> 16 & 127));
  }
}

void bench_widen(float *to, const uint16_t *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = (uint32_t)from[i] << 16;
    memcpy(&to[i], &bits, sizeof bits);
  }
}

static int by_value(const void *x, const void *y) {
  const double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

double bench_median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
