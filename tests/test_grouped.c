/* Grouped products: random routings compared bit for bit with dg_gemm and dg_reference on each
 * group's rows alone, and every mistake that the arguments can hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After the headers that it needs. */
#include <cmocka.h>

#include "inputs.h"
#include "support.h"

static dg_device *cpu;

/* ---- random products ---- */

enum { MAX_GROUPS = 12, OPERANDS = 5 }; /* a, b, out, start, bias */

typedef struct operand {
  dg_view view;
  size_t bytes;
} operand;

typedef struct product {
  dg_grouped_args args;
  operand a, b, out, start, bias;
  int64_t first[MAX_GROUPS + 1];
  int32_t narrow[MAX_GROUPS + 1];
  uint64_t random;
} product;

static int64_t below(product *p, int64_t limit) { return random_below(&p->random, limit); }

/* count matrices in memory of exactly their size: row by row or column by column, with or without
 * gaps. */
static operand make(product *p, dg_dtype dtype, int64_t count, int64_t rows, int64_t cols,
                    input_class which) {
  const bool by_columns = below(p, 2);
  const int64_t outer = by_columns ? cols : rows, inner = by_columns ? rows : cols;
  const int64_t pitch = inner + below(p, 2) * below(p, 5);
  operand x = {.view = dg_row_major(NULL, dtype, rows, cols)};
  x.view.row_stride = by_columns ? 1 : pitch;
  x.view.col_stride = by_columns ? pitch : 1;
  x.view.batch_stride = outer * pitch + below(p, 2) * below(p, 9);
  const int64_t size = dtype == DG_F32 ? 4 : 2;
  int64_t elements = 0;
  if (count && rows && cols)
    elements = (count - 1) * x.view.batch_stride + (outer - 1) * pitch + inner;
  x.bytes = (size_t)(elements * size);
  x.view.data = malloc(x.bytes + (x.bytes == 0));
  assert_non_null(x.view.data);
  input_state state = {.random = p->random};
  for (int64_t i = 0; i < elements; i++) {
    const uint32_t bits = input_next(&state, which, dtype);
    const uint16_t half = (uint16_t)bits;
    if (size == 4) memcpy((char *)x.view.data + 4 * i, &bits, 4);
    else memcpy((char *)x.view.data + 2 * i, &half, 2);
  }
  p->random = state.random;
  return x;
}

/* Ascending offsets within total, groups without rows among them. */
static void route(product *p, int64_t groups, int64_t total) {
  int64_t at = below(p, 3) ? 0 : below(p, total + 1);
  for (int64_t e = 0; e <= groups; e++) {
    p->first[e] = at;
    p->narrow[e] = (int32_t)at;
    const int64_t rest = total - at;
    if (below(p, 3)) at += e + 1 == groups && below(p, 4) ? rest : below(p, rest + 1);
  }
  p->args.groups.count = groups;
  p->args.groups.offset_bytes = below(p, 2) ? 8 : 4;
  p->args.groups.offsets = p->args.groups.offset_bytes == 8 ? (void *)p->first : (void *)p->narrow;
}

static void make_product(product *p, uint64_t seed) {
  static const dg_dtype types[] = {DG_BF16, DG_F16, DG_F32};
  static const int64_t sizes[] = {1, 2, 7, 15, 16, 17, 33, 40, 64, 70};
  *p = (product){.args = dg_grouped_args_init(), .random = seed};
  dg_grouped_args *g = &p->args;
  g->order = below(p, 2) ? DG_ORDER_FMA : DG_ORDER_TC16;
  g->split = below(p, 2) ? DG_SPLIT_M : DG_SPLIT_K;
  const bool by_m = g->split == DG_SPLIT_M;
  const int64_t groups = below(p, MAX_GROUPS + 1), total = below(p, 4) ? below(p, 150) : 0;
  const int64_t n = sizes[below(p, 10)], other = sizes[below(p, 10)];
  const int64_t m = by_m ? total : other, k = by_m ? other : total;
  const dg_dtype in = types[below(p, g->order == DG_ORDER_FMA ? 3 : 2)];
  const input_class which = (input_class)below(p, INPUTS);
  route(p, groups, total);
  p->a = make(p, in, 1, m, k, which);
  p->b = make(p, in, by_m ? groups : 1, k, n, which);
  p->out = make(p, types[below(p, 3)], by_m ? 1 : groups, m, n, INPUT_RAW);
  p->start = make(p, DG_F32, by_m ? 1 : groups, m, n, which);
  p->bias = make(p, types[below(p, 3)], groups, 1, n, which);
  g->a = p->a.view;
  g->b = p->b.view;
  g->out = p->out.view;
  if (below(p, 2)) g->start = p->start.view;
  if (below(p, 3) == 0) g->bias = p->bias.view;
}

static void free_product(product *p) {
  operand *all[OPERANDS] = {&p->a, &p->b, &p->out, &p->start, &p->bias};
  for (int i = 0; i < OPERANDS; i++) free(all[i]->view.data);
}

static dg_view moved(dg_view v, int64_t elements) {
  if (v.data && elements) v.data = (char *)v.data + elements * (v.dtype == DG_F32 ? 4 : 2);
  return v;
}
static dg_view rows_of(dg_view v, int64_t first, int64_t count) {
  v = moved(v, count ? first * v.row_stride : 0);
  v.rows = count;
  return v;
}
static dg_view cols_of(dg_view v, int64_t first, int64_t count) {
  v = moved(v, count ? first * v.col_stride : 0);
  v.cols = count;
  return v;
}

/* Group e as a product of its own, written to `out`. */
static dg_gemm_args alone(const product *p, int64_t e, dg_view out) {
  const dg_grouped_args *g = &p->args;
  const int64_t first = p->first[e], count = p->first[e + 1] - first;
  dg_gemm_args one = dg_gemm_args_init();
  one.order = g->order;
  one.bias = moved(g->bias, e * g->bias.batch_stride);
  if (g->split == DG_SPLIT_M) {
    one.a = rows_of(g->a, first, count);
    one.b = moved(g->b, e * g->b.batch_stride);
    one.out = rows_of(out, first, count);
    if (g->start.data) one.start = rows_of(g->start, first, count);
  } else {
    one.a = cols_of(g->a, first, count);
    one.b = rows_of(g->b, first, count);
    one.out = moved(out, e * out.batch_stride);
    one.start = moved(g->start, e * g->start.batch_stride);
  }
  return one;
}

static void check_same(const product *p, uint64_t seed, const char *what, const void *expected,
                       const void *got) {
  if (p->out.bytes == 0 || memcmp(expected, got, p->out.bytes) == 0) return;
  fail_msg("seed %llu, %s: other bits (order %d, split %d, %lld groups)", (unsigned long long)seed,
           what, p->args.order, p->args.split, (long long)p->args.groups.count);
}

/* The whole buffers are compared, so also that nothing else was written. */
static void check_product(uint64_t seed) {
  product p;
  make_product(&p, seed);
  void *expected = malloc(p.out.bytes + 1), *got = malloc(p.out.bytes + 1);
  assert_non_null(expected);
  assert_non_null(got);
  memcpy(expected, p.out.view.data, p.out.bytes);
  memcpy(got, p.out.view.data, p.out.bytes);
  dg_view out = p.out.view;
  out.data = expected;
  for (int64_t e = 0; e < p.args.groups.count; e++) {
    const dg_gemm_args one = alone(&p, e, out);
    if (dg_gemm(cpu, &one) != DG_OK)
      fail_msg("seed %llu: %s", (unsigned long long)seed, dg_last_error());
  }
  p.args.out.data = got;
  if (dg_reference_grouped(&p.args) != DG_OK) fail_msg("%s", dg_last_error());
  check_same(&p, seed, "reference", expected, got);
  for (int threads = 1; threads <= 3; threads++) {
    memcpy(got, p.out.view.data, p.out.bytes);
    assert_int_equal(dg_device_set_threads(cpu, threads), DG_OK);
    if (dg_gemm_grouped(cpu, &p.args) != DG_OK) fail_msg("%s", dg_last_error());
    check_same(&p, seed, "dg_gemm_grouped", expected, got);
  }
  dg_device_set_threads(cpu, 0);
  free(expected);
  free(got);
  free_product(&p);
}

static void test_random_products(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 600; seed++) check_product(seed);
}

/* ---- a layer of experts ---- */

enum { TOKENS = 50, N = 24, K = 40, EXPERTS = 4 };

typedef struct layer {
  uint16_t a[TOKENS * K], dc[TOKENS * N], w[EXPERTS * N * K];
  float out[TOKENS * N], da[TOKENS * K], dw[EXPERTS * N * K];
} layer;

static void fill(uint16_t *x, int64_t count, uint64_t seed) {
  input_state state = {.random = seed};
  for (int64_t i = 0; i < count; i++) x[i] = (uint16_t)input_next(&state, INPUT_PLAIN, DG_BF16);
}

static layer *make_layer(void) {
  layer *l = malloc(sizeof *l);
  assert_non_null(l);
  fill(l->a, TOKENS * K, 1);
  fill(l->dc, TOKENS * N, 2);
  fill(l->w, EXPERTS * N * K, 3);
  memset(l->out, 0xa5, sizeof l->out);
  memset(l->da, 0xa5, sizeof l->da);
  memset(l->dw, 0xa5, sizeof l->dw);
  return l;
}

static void run_layer(layer *l, dg_order order, const int32_t *offsets) {
  const dg_groups groups = {EXPERTS, offsets, 4};
  const dg_view a = dg_row_major(l->a, DG_BF16, TOKENS, K);
  const dg_view dc = dg_row_major(l->dc, DG_BF16, TOKENS, N);
  const dg_view w = dg_row_major(l->w, DG_BF16, N, K);
  const dg_view out = dg_row_major(l->out, DG_F32, TOKENS, N);
  const dg_view da = dg_row_major(l->da, DG_F32, TOKENS, K);
  const dg_view dw = dg_row_major(l->dw, DG_F32, N, K);
  assert_int_equal(dg_grouped_forward(cpu, NULL, order, groups, a, w, out), DG_OK);
  assert_int_equal(dg_grouped_grad_a(cpu, NULL, order, groups, dc, w, da), DG_OK);
  assert_int_equal(dg_grouped_grad_b(cpu, NULL, order, groups, a, dc, dw), DG_OK);
}

/* The named operations against dg_forward_nt, dg_grad_a and dg_grad_b_t per expert. */
static void test_named_operations(void **state) {
  (void)state;
  static const int32_t offsets[] = {0, 19, 19, 20, TOKENS};
  static float out[TOKENS * K];
  for (dg_order order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    layer *l = make_layer();
    run_layer(l, order, offsets);
    for (int e = 0; e < EXPERTS; e++) {
      const int64_t first = offsets[e], count = offsets[e + 1] - first;
      const dg_view a = dg_row_major(l->a + first * K, DG_BF16, count, K);
      const dg_view dc = dg_row_major(l->dc + first * N, DG_BF16, count, N);
      const dg_view w = dg_row_major(l->w + e * N * K, DG_BF16, N, K);
      dg_forward_nt(cpu, NULL, order, a, w, dg_row_major(out, DG_F32, count, N));
      assert_memory_equal(out, l->out + first * N, (size_t)(count * N) * 4);
      dg_grad_a(cpu, NULL, order, dc, dg_transposed(w), dg_row_major(out, DG_F32, count, K));
      assert_memory_equal(out, l->da + first * K, (size_t)(count * K) * 4);
      dg_grad_b_t(cpu, NULL, order, a, dc, dg_row_major(out, DG_F32, N, K));
      assert_memory_equal(out, l->dw + e * N * K, (size_t)(N * K) * 4);
    }
    free(l);
  }
}

/* The last token always goes to the last expert: alone, among others, or with all of them. */
static void test_a_token_keeps_its_bits(void **state) {
  (void)state;
  static const int32_t routings[][EXPERTS + 1] = {{0, 10, 20, TOKENS - 1, TOKENS},
                                                  {0, 1, 2, 3, TOKENS},
                                                  {0, 0, 0, 0, TOKENS},
                                                  {0, 17, 17, 30, TOKENS}};
  const size_t bytes = N * sizeof(float);
  for (dg_order order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    layer *first = make_layer(), *other = make_layer();
    run_layer(first, order, routings[0]);
    for (int i = 1; i < 4; i++) {
      run_layer(other, order, routings[i]);
      assert_memory_equal(first->out + (TOKENS - 1) * N, other->out + (TOKENS - 1) * N, bytes);
    }
    free(first);
    free(other);
  }
}

/* Weight gradients over two micro-batches, continued in place, are those of one. */
static void test_continued_weight_gradients(void **state) {
  (void)state;
  enum { E = 2, T = 64, CUT = 32 };
  static const int64_t all[] = {0, 32, 64}, early[] = {0, 16, 32}, late[] = {0, 16, 32};
  static uint16_t a[T * K], dc[T * N], a_parts[T * K], dc_parts[T * N];
  static float whole[E * N * K], parts[E * N * K];
  fill(a, T * K, 4);
  fill(dc, T * N, 5);
  for (int part = 0; part < 2; part++) /* each micro-batch has half of every expert's tokens */
    for (int e = 0; e < E; e++) {
      const int64_t from = e * 32 + part * 16, to = part * CUT + e * 16;
      memcpy(a_parts + to * K, a + from * K, 16 * K * sizeof *a);
      memcpy(dc_parts + to * N, dc + from * N, 16 * N * sizeof *dc);
    }
  for (dg_order order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    dg_grouped_args g = dg_grouped_args_init();
    g.order = order;
    g.split = DG_SPLIT_K;
    g.groups = (dg_groups){E, all, 8};
    g.a = dg_transposed(dg_row_major(dc, DG_BF16, T, N));
    g.b = dg_row_major(a, DG_BF16, T, K);
    g.out = dg_row_major(whole, DG_F32, N, K);
    assert_int_equal(dg_gemm_grouped(cpu, &g), DG_OK);
    g.out.data = parts;
    for (int part = 0; part < 2; part++) {
      g.groups.offsets = part ? late : early;
      g.a = dg_transposed(dg_row_major(dc_parts + part * CUT * N, DG_BF16, CUT, N));
      g.b = dg_row_major(a_parts + part * CUT * K, DG_BF16, CUT, K);
      if (part) g.start = g.out;
      assert_int_equal(dg_gemm_grouped(cpu, &g), DG_OK);
    }
    assert_memory_equal(whole, parts, sizeof whole);
  }
}

/* ---- mistakes ---- */

static void expect_error(layer *l, const dg_grouped_args *args, dg_status status,
                         const char *text) {
  for (int i = 0; i < 2; i++) {
    const dg_status got = i ? dg_reference_grouped(args) : dg_gemm_grouped(cpu, args);
    if (got != status || strstr(dg_last_error(), text) == NULL)
      fail_msg("status %d, \"%s\"; expected %d, \"%s\"", got, dg_last_error(), status, text);
  }
  const unsigned char *bytes = (const unsigned char *)l->out;
  for (size_t i = 0; i < sizeof l->out; i++) assert_int_equal(bytes[i], 0xa5);
}

static dg_grouped_args valid(layer *l, const void *offsets, int bytes) {
  dg_grouped_args g = dg_grouped_args_init();
  g.order = DG_ORDER_TC16;
  g.split = DG_SPLIT_M;
  g.groups = (dg_groups){EXPERTS, offsets, bytes};
  g.a = dg_row_major(l->a, DG_BF16, TOKENS, K);
  g.b = dg_transposed(dg_row_major(l->w, DG_BF16, N, K));
  g.out = dg_row_major(l->out, DG_F32, TOKENS, N);
  return g;
}

static void test_bad_offsets(void **state) {
  (void)state;
  layer *l = make_layer();
  static const struct {
    int64_t offsets[EXPERTS + 1];
    const char *text;
  } bad[] = {
      {{0, 10, 9, 20, TOKENS}, "offsets[2] is 9; it must be 10 to 50"},
      {{-1, 10, 11, 20, TOKENS}, "offsets[0] is -1; it must be 0 to 50"},
      {{0, 10, 11, 20, TOKENS + 1}, "offsets[4] is 51; it must be 20 to 50"},
      {{0, 10, 11, 1 << 30, TOKENS}, "offsets[3] is 1073741824"},
      {{0, 10, 11, 20, INT32_MIN}, "offsets[4] is -2147483648"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    int32_t narrow[EXPERTS + 1];
    for (int e = 0; e <= EXPERTS; e++) narrow[e] = (int32_t)bad[i].offsets[e];
    dg_grouped_args g = valid(l, bad[i].offsets, 8);
    expect_error(l, &g, DG_ERROR_ARGUMENT, bad[i].text);
    g = valid(l, narrow, 4);
    expect_error(l, &g, DG_ERROR_ARGUMENT, bad[i].text);
  }
  free(l);
}

static void test_bad_arguments(void **state) {
  (void)state;
  static const int64_t offsets[] = {0, 10, 11, 20, TOKENS};
  layer *l = make_layer();
  const dg_grouped_args good = valid(l, offsets, 8);
  dg_grouped_args g;
#define EXPECT(change, text) \
  g = good;                  \
  g.change;                  \
  expect_error(l, &g, DG_ERROR_ARGUMENT, text)
  EXPECT(size = 8, "args.size is 8");
  EXPECT(order = (dg_order)7, "order is 7");
  EXPECT(split = (dg_split)0, "split is 0");
  EXPECT(groups.count = -1, "groups.count is -1");
  EXPECT(groups.count = INT64_MAX, "groups.count is 9223372036854775807");
  EXPECT(groups.offset_bytes = 2, "offset_bytes is 2");
  EXPECT(groups.offsets = NULL, "groups.offsets is NULL");
  EXPECT(a.cols = K - 1, "b is 40 x 24");
  EXPECT(b.data = NULL, "b.data is NULL");
  EXPECT(a.dtype = DG_F16, "a is F16 and b is BF16");
  EXPECT(out.row_stride = 0, "elements coincide");
  EXPECT(out.data = l->w + 3 * N * K, "overlaps b");
  EXPECT(b.batch_stride = INT64_MAX, "reaches past the address space");
  EXPECT(split = DG_SPLIT_K; g.out.batch_stride = 0, "elements coincide");
#undef EXPECT
  assert_int_equal(dg_gemm_grouped(NULL, &good), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_gemm_grouped(cpu, NULL), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_reference_grouped(NULL), DG_ERROR_ARGUMENT);
  free(l);
}

/* Nothing is computed from the strides of operands without elements, nor from those of groups
 * without rows: run by the sanitisers of undefined behaviour. */
static void test_no_elements(void **state) {
  (void)state;
  enum { ROWS = 3, E = 2 };
  static const int64_t offsets[] = {1, 2, ROWS}, late[] = {ROWS, ROWS, ROWS};
  static uint16_t data[E * ROWS];
  float out[E * ROWS];
  for (int i = 0; i < 6; i++) {
    const int64_t h = i % 2 ? INT64_MIN / 2 : INT64_MAX;
    const bool by_rows = i < 2 || i == 4;
    const dg_view nothing = {data, ROWS, 0, h, h, h, DG_BF16};
    dg_grouped_args g = dg_grouped_args_init();
    g.order = DG_ORDER_FMA;
    g.split = by_rows ? DG_SPLIT_M : DG_SPLIT_K;
    g.groups = (dg_groups){E, i < 4 ? offsets : late, 8};
    memset(out, 0xa5, sizeof out);
    if (i < 2) { /* no K */
      g.a = nothing;
      g.b = (dg_view){NULL, 0, 1, h, h, h, DG_BF16};
      g.out = dg_row_major(out, DG_F32, ROWS, 1);
    } else if (i < 4) { /* no columns */
      g.a = dg_row_major(data, DG_BF16, 1, ROWS);
      g.b = nothing;
      g.out = (dg_view){NULL, 1, 0, h, h, h, DG_F32};
      g.bias = g.start = g.out;
      g.bias.data = g.start.data = out;
    } else { /* past the last row of this one no address can be computed */
      const int64_t pitch = (INT64_C(1) << 61) - 1;
      const dg_view far = {(void *)(uintptr_t)INT64_MIN, ROWS, 1, pitch, 1, 0, DG_BF16};
      g.a = by_rows ? far : dg_transposed(far);
      g.b = by_rows ? dg_row_major(data, DG_BF16, 1, 1) : dg_row_major(data, DG_BF16, ROWS, 1);
      g.out = dg_row_major(out, DG_F32, by_rows ? ROWS : 1, 1);
    }
    for (int r = 0; r < 2; r++)
      if ((r ? dg_reference_grouped(&g) : dg_gemm_grouped(cpu, &g)) != DG_OK)
        fail_msg("case %d: %s", i, dg_last_error());
    if (i < 2) assert_true(out[1] == 0 && out[2] == 0);
    if (i == 5) assert_true(out[0] == 0 && out[1] == 0);
  }
}

static int open_cpu(void **state) {
  (void)state;
  return dg_device_open("cpu", &cpu);
}

static int close_cpu(void **state) {
  (void)state;
  dg_device_close(cpu);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_products),
      cmocka_unit_test(test_named_operations),
      cmocka_unit_test(test_a_token_keeps_its_bits),
      cmocka_unit_test(test_continued_weight_gradients),
      cmocka_unit_test(test_bad_offsets),
      cmocka_unit_test(test_bad_arguments),
      cmocka_unit_test(test_no_elements),
  };
  return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
