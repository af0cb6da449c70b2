/* The rows of the built-in tables, and how results are printed. */
#include "bench_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "answer.h"

bool row_list_add(row_list *list, bench_row row) {
  if (list->count == list->capacity) {
    const int capacity = list->capacity ? 2 * list->capacity : 64;
    void *grown = realloc(list->rows, (size_t)capacity * sizeof *list->rows);
    if (grown == NULL) return complain("no memory for %d rows", capacity) == EXIT_GOOD;
    list->rows = grown;
    list->capacity = capacity;
  }
  list->rows[list->count++] = row;
  return true;
}

static bool add(row_list *list, const row_choice *choice, dg_order order, bench_op op, int64_t m,
                int64_t n, int64_t k) {
  if (!(choice->orders >> order & 1) || (choice->op >= 0 && choice->op != (int)op)) return true;
  return row_list_add(
      list,
      (bench_row){.order = order, .op = op, .m = m, .n = n, .k = k, .threads = choice->threads});
}

static const int64_t layers[][2] = {
    {4096, 4096}, {12288, 4096}, {4096, 12288}, {1024, 4096}, {151936, 4096}};

/* All M of a list times some of the layers (N, K), weights stored [N,K]. */
static bool add_layers(row_list *list, const row_choice *choice, dg_order order, const int64_t *ms,
                       int m_count, int layer_count) {
  for (int l = 0; l < layer_count; l++)
    for (int i = 0; i < m_count; i++)
      if (!add(list, choice, order, BOP_NT, ms[i], layers[l][0], layers[l][1])) return false;
  return true;
}

static bool add_squares(row_list *list, const row_choice *choice, dg_order order, bench_op op,
                        int64_t first, int64_t last) {
  for (int64_t n = first; n <= last; n *= 2)
    if (!add(list, choice, order, op, n, n, n)) return false;
  return true;
}

static bool quick_rows(row_list *list, const row_choice *c) {
  return add_squares(list, c, DG_ORDER_FMA, BOP_FORWARD, 512, 1024) &&
         add(list, c, DG_ORDER_FMA, BOP_NT, 1, 4096, 4096) &&
         add(list, c, DG_ORDER_FMA, BOP_NT, 16, 4096, 4096) &&
         add(list, c, DG_ORDER_FMA, BOP_GRAD_A, 1024, 1024, 1024) &&
         add(list, c, DG_ORDER_FMA, BOP_GRAD_B, 1024, 1024, 1024) &&
         add(list, c, DG_ORDER_TC16, BOP_FORWARD, 512, 512, 512) &&
         add(list, c, DG_ORDER_TC16, BOP_NT, 1, 4096, 4096);
}

static bool cpu_rows(row_list *list, const row_choice *c) {
  static const int64_t prefill[] = {256, 1024}, decode[] = {1, 2, 4, 8, 16}, some[] = {1, 16, 256};
  return add_squares(list, c, DG_ORDER_FMA, BOP_FORWARD, 512, 4096) &&
         add_layers(list, c, DG_ORDER_FMA, prefill, 2, 3) &&
         add_layers(list, c, DG_ORDER_FMA, decode, 5, 3) &&
         add_squares(list, c, DG_ORDER_FMA, BOP_GRAD_A, 1024, 2048) &&
         add_squares(list, c, DG_ORDER_FMA, BOP_GRAD_B, 1024, 2048) &&
         add_squares(list, c, DG_ORDER_TC16, BOP_FORWARD, 512, 2048) &&
         add_layers(list, c, DG_ORDER_TC16, some, 3, 1) &&
         add_squares(list, c, DG_ORDER_TC16, BOP_GRAD_A, 1024, 1024) &&
         add_squares(list, c, DG_ORDER_TC16, BOP_GRAD_B, 1024, 1024);
}

/* What an FP32 result or state costs. */
static bool add_wide(row_list *list, const row_choice *choice, int64_t m) {
  if (!(choice->orders >> DG_ORDER_TC16 & 1) || (choice->op >= 0 && choice->op != BOP_NT))
    return true;
  bench_row row = {.order = DG_ORDER_TC16, .op = BOP_NT, .m = m, .n = 4096, .k = 4096};
  row.out = DG_F32;
  if (!row_list_add(list, row)) return false;
  row.start = true;
  return row_list_add(list, row);
}

static bool gpu_rows(row_list *list, const row_choice *c) {
  static const int64_t ms[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096},
                       few[] = {1, 16, 64, 256};
  return add_squares(list, c, DG_ORDER_TC16, BOP_FORWARD, 1024, 8192) &&
         add_layers(list, c, DG_ORDER_TC16, ms, 10, 5) &&
         add(list, c, DG_ORDER_TC16, BOP_GRAD_A, 4096, 4096, 4096) &&
         add(list, c, DG_ORDER_TC16, BOP_GRAD_B, 4096, 4096, 4096) && add_wide(list, c, 64) &&
         add_wide(list, c, 4096) && add_squares(list, c, DG_ORDER_FMA, BOP_FORWARD, 1024, 8192) &&
         add_layers(list, c, DG_ORDER_FMA, few, 4, 3) &&
         add(list, c, DG_ORDER_FMA, BOP_GRAD_A, 4096, 4096, 4096) &&
         add(list, c, DG_ORDER_FMA, BOP_GRAD_B, 4096, 4096, 4096);
}

/* The same products on one thread, to show what the threads bring. */
static bool scaling_rows(row_list *list, const row_choice *c) {
  row_choice one = *c;
  one.threads = 1;
  return add(list, &one, DG_ORDER_FMA, BOP_FORWARD, 1024, 1024, 1024) &&
         add(list, &one, DG_ORDER_FMA, BOP_NT, 1, 4096, 4096) &&
         add(list, &one, DG_ORDER_TC16, BOP_FORWARD, 512, 512, 512);
}

bool row_list_make(row_list *list, const row_choice *c) {
  if (c->shapes->count == 0) {
    if (c->quick) return quick_rows(list, c);
    if (!c->cpu) return gpu_rows(list, c);
    return cpu_rows(list, c) && (c->threads == 1 || scaling_rows(list, c));
  }
  for (size_t i = 0; i < c->shapes->count; i++)
    for (dg_order order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
      const int64_t *s = c->shapes->shapes[i];
      if (!shape_fits(s)) return false;
      const bench_op op = c->op < 0 ? BOP_NT : (bench_op)c->op;
      if (!add(list, c, order, op, s[0], s[1], s[2])) return false;
    }
  return true;
}

double row_flops(const bench_row *r) { return 2.0 * (double)r->m * (double)r->n * (double)r->k; }

/* What must cross the memory bus once: BF16 operands, the result and the state. */
double row_bytes(const bench_row *r) {
  const double m = (double)r->m, n = (double)r->n, k = (double)r->k;
  const double out = (r->out == DG_F32 ? 4.0 : 2.0) + (r->start ? 4.0 : 0.0);
  return 2.0 * (m * k + n * k) + out * m * n;
}

double row_limit(const bench_row *r, double peak, double bandwidth) {
  if (bandwidth <= 0 || peak <= 0) return 0;
  const double compute = row_flops(r) / peak, memory = row_bytes(r) / bandwidth;
  return (compute > memory ? compute : memory) / r->seconds;
}

void row_print_head(const char *peer) {
  printf("%-5s %-12s %-22s %2s %10s %10s %8s %8s %8s %8s %8s %s\n", "order", "op", "M x N x K",
         "th", "time us", "GFLOP/s", "GB/s", peer ? "x peer" : "", "% limit", "x fma", "host us",
         "kernel");
}

static void print_number(int digits, double value) {
  if (value > 0) printf(" %8.*f", digits, value);
  else printf(" %8s", "-");
}

void row_print(const bench_row *r, double peak, double bandwidth) {
  char shape[72], name[32];
  snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64 " x %" PRId64, r->m, r->n, r->k);
  printf("%-5s %-12s %-22s %2d %10.1f %10.1f %8.2f", order_name(r->order), bench_row_name(r, name),
         shape, r->threads, r->seconds * 1e6, row_flops(r) / r->seconds * 1e-9,
         row_bytes(r) / r->seconds * 1e-9);
  print_number(2, r->peer_seconds / r->seconds);
  print_number(1, 100 * row_limit(r, peak, bandwidth));
  print_number(3, r->fma_seconds / r->seconds);
  print_number(2, r->host_seconds * 1e6);
  printf(" %s\n", r->kernel);
}

json_t *row_json(const bench_row *r, double peak, double bandwidth) {
  char name[32];
  json_t *row =
      json_pack("{s:s, s:s, s:I, s:I, s:I, s:i, s:s, s:f, s:o, s:o}", "order", order_name(r->order),
                "op", bench_row_name(r, name), "m", (json_int_t)r->m, "n", (json_int_t)r->n, "k",
                (json_int_t)r->k, "threads", r->threads, "kernel", r->kernel, "seconds", r->seconds,
                "gflops", answer_number(row_flops(r) / r->seconds * 1e-9), "gbytes_per_second",
                answer_number(row_bytes(r) / r->seconds * 1e-9));
  if (r->peer_seconds > 0) {
    json_object_set_new(row, "peer_seconds", json_real(r->peer_seconds));
    json_object_set_new(row, "peer_ratio", json_real(r->peer_seconds / r->seconds));
  }
  if (r->host_seconds > 0) json_object_set_new(row, "host_seconds", json_real(r->host_seconds));
  if (r->fma_seconds > 0)
    json_object_set_new(row, "fma_ratio", json_real(r->fma_seconds / r->seconds));
  if (row_limit(r, peak, bandwidth) > 0)
    json_object_set_new(row, "limit_fraction", json_real(row_limit(r, peak, bandwidth)));
  return row;
}
