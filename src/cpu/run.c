/* Runs products on the CPU, task by task, the tasks of all of them in one parallel region.
 *
 * A task is one block of one product's output. For each depth of K its rows of A are packed; then,
 * tile column by tile column, as much of B as fits the first cache is packed and used at once by
 * all panels of A. The FP32 state of a tile starts at the product's start, and is rounded when its
 * last k is in; between depths it waits in the work area. So kernels see full tiles only, every
 * element of B is packed once per block, and the work area does not grow with M, N or K. */
#include <stdlib.h>
#include <string.h>

#include "../num.h"
#include "cpu.h"

enum { ALIGNMENT = 64, LINE = 64, MAX_NR = 64, ON_STACK = 32 << 10 };

/* What all tasks of a product share. */
typedef struct call {
  dg_problem p;
  dg_cpu_plan plan;
  int64_t first_task, tasks;
  int64_t state_stride_i, state_stride_j; /* between tiles, in elements; 0: shared */
  size_t a_bytes, b_bytes, all;           /* of one worker's area */
} call;

/* The products of one parallel region. */
typedef struct region {
  const call *calls;
  int64_t count;
  char *memory;
  size_t area; /* bytes of each worker */
} region;

/* A task: block (i0, j0) of product z, and the worker's area. */
typedef struct block {
  const call *c;
  int64_t z, i0, j0, rows, cols, panels;
  char *a, *b;
  float *state;
} block;

/* A tile's part of the output. */
typedef struct tile {
  float *state;
  int64_t i, j;
  int rows, cols;
} tile;

static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
static int64_t min64(int64_t x, int64_t y) { return x < y ? x : y; }
static size_t aligned(int64_t bytes) { return (size_t)(ceil_div(bytes, ALIGNMENT) * ALIGNMENT); }

static char *at(const dg_operand *x, int64_t z, int64_t i, int64_t j) {
  return (char *)x->data + dg_dtype_bytes(x->dtype) * (z * x->bs + i * x->rs + j * x->cs);
}

/* ---- a tile's first and last step ---- */

static void start(const block *b, const tile *t) {
  const dg_operand *from = &b->c->p.start;
  const int64_t nr = b->c->plan.kernel->nr;
  memset(t->state, 0, sizeof(float) * (size_t)(t->rows * nr));
  if (from->data == NULL) return;
  for (int64_t i = 0; i < t->rows; i++) {
    float *row = t->state + i * nr;
    const char *first = at(from, b->z, t->i + i, t->j);
    if (from->cs == 1) memcpy(row, first, sizeof(float) * (size_t)t->cols);
    else
      for (int64_t j = 0; j < t->cols; j++) memcpy(&row[j], first + 4 * j * from->cs, sizeof *row);
  }
}

/* The bias of a row of the tile. It is one value per column of the caller's output, so after an
 * exchange one per row. */
static const float *row_bias(const block *b, const tile *t, int64_t i, float values[MAX_NR]) {
  const dg_operand *bias = &b->c->p.bias;
  if (bias->data == NULL) return NULL;
  if (i == 0 || bias->rs != 0)
    for (int64_t j = 0; j < t->cols; j++)
      values[j] = dg_f32_from_bits(dg_load(at(bias, b->z, t->i + i, t->j + j), bias->dtype));
  return values;
}

static void finish(const block *b, const tile *t) {
  const dg_operand *out = &b->c->p.out;
  const dg_cpu_kernel *kernel = b->c->plan.kernel;
  const int64_t size = dg_dtype_bytes(out->dtype);
  float bias[MAX_NR], scattered[MAX_NR];
  for (int64_t i = 0; i < t->rows; i++) {
    char *first = at(out, b->z, t->i + i, t->j);
    /* cppcheck-suppress legacyUninitvar ; a place to write to */
    char *to = out->cs == 1 ? first : (char *)scattered;
    kernel->round(t->state + i * kernel->nr, row_bias(b, t, i, bias), t->cols, out->dtype, to);
    for (int64_t j = 0; to != first && j < t->cols; j++)
      memcpy(first + size * j * out->cs, to + size * j, (size_t)size);
  }
}

/* ---- a block ---- */

/* The rows are dealt out evenly: panel i begins at this row of the block. */
static int64_t panel_row(const block *b, int64_t i) { return b->rows * i / b->panels; }

static tile tile_at(const block *b, int64_t i, int64_t j) {
  const call *c = b->c;
  const int64_t row = panel_row(b, i), nr = c->plan.kernel->nr;
  return (tile){.state = b->state + j * c->state_stride_j + i * c->state_stride_i,
                .i = b->i0 + row,
                .j = b->j0 + j * nr,
                .rows = (int)(panel_row(b, i + 1) - row),
                .cols = (int)min64(nr, b->cols - j * nr)};
}

/* ---- asking for memory before it is needed, with the arithmetic in between ---- */

/* Memory in lines of one direction: `count` of them, `bytes` long, `pitch` bytes apart. */
typedef struct lines {
  const char *first;
  int64_t count, bytes, pitch;
} lines;

static lines lines_of(const dg_strip *s, int64_t width, int64_t k) {
  const int64_t size = dg_dtype_bytes(s->dtype);
  if (s->is == 1) return (lines){s->data, k, width * size, s->ks * size};
  if (s->ks == 1) return (lines){s->data, width, k * size, s->is * size};
  return (lines){0};
}

/* Always inlined: gcc takes a function of nothing but prefetches for one without effect, and drops
 * calls of it. */
#define PREFETCHER static inline __attribute__((always_inline)) void

/* Asks for part i of `parts` of x. */
PREFETCHER fetch(const lines *x, int64_t i, int64_t parts) {
  for (int64_t l = x->count * i / parts; l < x->count * (i + 1) / parts; l++) {
    const char *line = x->first + l * x->pitch;
    for (int64_t byte = 0; byte < x->bytes; byte += LINE) __builtin_prefetch(line + byte);
    __builtin_prefetch(line + x->bytes - 1);
  }
}

PREFETCHER fetch_state(const float *state, int64_t count) {
  for (int64_t i = 0; i < count; i += LINE / 4) __builtin_prefetch(state + i, 1);
}

PREFETCHER fetch_output(const block *b, const tile *t) {
  const dg_operand *out = &b->c->p.out;
  if (out->cs != 1) return;
  for (int64_t i = 0; i < t->rows; i++) {
    const char *row = at(out, b->z, t->i + i, t->j);
    __builtin_prefetch(row, 1);
    __builtin_prefetch(row + t->cols * dg_dtype_bytes(out->dtype) - 1, 1);
  }
}

/* ---- the loops ---- */

static void pack_rows(const block *b, int64_t k0, int64_t k, size_t panel_bytes) {
  const dg_operand *a = &b->c->p.a;
  dg_strip s = {at(a, b->z, b->i0, k0), a->rs, a->cs, a->dtype};
  for (int64_t i = 0; i < b->panels; i++) {
    const int64_t row = panel_row(b, i + 1), count = row - panel_row(b, i);
    const dg_strip panel = s;
    if (i + 1 < b->panels) {
      s.data = at(a, b->z, b->i0 + row, k0);
      const lines coming = lines_of(&s, panel_row(b, i + 2) - row, k);
      fetch(&coming, 0, 1);
    }
    b->c->plan.kernel->pack_a(&panel, count, k, b->a + (size_t)i * panel_bytes);
  }
}

/* A step: tile column j over the k terms at offset of the depth that begins at k0. */
typedef struct step {
  int64_t j, k0, offset, k;
} step;

static dg_strip columns_of(const block *b, const step *s) {
  const dg_operand *right = &b->c->p.b;
  const int64_t column = b->j0 + s->j * b->c->plan.kernel->nr;
  return (dg_strip){at(right, b->z, s->k0 + s->offset, column), right->cs, right->rs, right->dtype};
}

/* Runs s; next is the step after it, or has no k. */
static void run_step(const block *b, const step *s, const step *next, size_t panel_bytes) {
  const call *c = b->c;
  const dg_cpu_kernel *kernel = c->plan.kernel;
  const char *a = b->a + s->offset / kernel->k_step * kernel->a_bytes;
  const bool first = s->k0 + s->offset == 0, last = s->k0 + s->offset + s->k == c->p.k;
  const dg_strip columns = columns_of(b, s);
  tile t = tile_at(b, 0, s->j);
  const bool direct = c->plan.direct && t.cols == kernel->nr;
  lines coming = {0};
  if (next->k && !c->plan.direct) {
    const dg_strip strip = columns_of(b, next);
    coming = lines_of(&strip, tile_at(b, 0, next->j).cols, next->k);
  }
  if (!direct) kernel->pack_b(&columns, t.cols, s->k, b->b);
  for (int64_t i = 0; i < b->panels; i++, a += panel_bytes) {
    t = tile_at(b, i, s->j);
    if (first) start(b, &t);
    else if (c->state_stride_i) fetch_state(t.state + c->state_stride_i, c->state_stride_i);
    if (last) fetch_output(b, &t);
    fetch(&coming, i, b->panels);
    if (direct) kernel->direct(s->k, a, &columns, t.state, t.rows);
    else kernel->run(s->k, a, b->b, t.state, t.rows, t.cols);
    if (last) finish(b, &t);
  }
}

/* All columns of the block over a depth of k terms from k0. */
static void run_depth(const block *b, int64_t k0, int64_t k, size_t panel_bytes) {
  const int64_t kb = b->c->plan.kb, columns = ceil_div(b->cols, b->c->plan.kernel->nr);
  step s = {0, k0, 0, min64(kb, k)};
  while (s.j < columns) {
    step next = s;
    next.offset += s.k;
    if (next.offset == k) next = (step){s.j + 1, k0, 0, 0};
    next.k = next.j < columns ? min64(kb, k - next.offset) : 0;
    run_step(b, &s, &next, panel_bytes);
    s = next;
  }
}

/* The same for the only row there is, its tiles' states side by side. */
static void run_across(const block *b, int64_t k0, int64_t k) {
  const call *c = b->c;
  const step s = {0, k0, 0, k};
  const dg_strip columns = columns_of(b, &s);
  const int64_t tiles = ceil_div(b->cols, c->plan.kernel->nr);
  for (int64_t j = 0; k0 == 0 && j < tiles; j++) {
    const tile t = tile_at(b, 0, j);
    start(b, &t);
  }
  c->plan.kernel->across(k, b->a, &columns, b->state, b->cols);
  for (int64_t j = 0; k0 + k == c->p.k && j < tiles; j++) {
    const tile t = tile_at(b, 0, j);
    finish(b, &t);
  }
}

/* The product that the task belongs to. */
static const call *call_of(const region *r, int64_t task) {
  int64_t low = 0, high = r->count;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (r->calls[middle].first_task <= task) low = middle;
    else high = middle;
  }
  return &r->calls[low];
}

static void run_block(void *context, int worker, int64_t task) {
  const region *r = context;
  const call *c = call_of(r, task);
  const dg_cpu_plan *plan = &c->plan;
  const dg_cpu_kernel *kernel = plan->kernel;
  const int64_t index = task - c->first_task;
  char *area = r->memory + (size_t)worker * r->area;
  block b = {.c = c, .a = area, .b = area + c->a_bytes};
  b.state = (float *)(void *)(b.b + c->b_bytes);
  b.z = index / (plan->blocks_m * plan->blocks_n);
  b.i0 = index / plan->blocks_n % plan->blocks_m * plan->mb;
  b.j0 = index % plan->blocks_n * plan->nb;
  b.rows = min64(plan->mb, c->p.m - b.i0);
  b.cols = min64(plan->nb, c->p.n - b.j0);
  b.panels = ceil_div(b.rows, kernel->mr);

  int64_t k0 = 0;
  do { /* once even where K is 0: the start has to be rounded */
    const int64_t deep = min64(plan->depth, c->p.k - k0);
    const size_t panel_bytes = (size_t)(ceil_div(deep, kernel->k_step) * kernel->a_bytes);
    pack_rows(&b, k0, deep, panel_bytes);
    if (plan->across) run_across(&b, k0, deep);
    else run_depth(&b, k0, deep, panel_bytes);
    k0 += deep;
  } while (k0 < c->p.k);
}

/* ---- products ---- */

static void size_areas(call *c) {
  const dg_cpu_plan *plan = &c->plan;
  const dg_cpu_kernel *k = plan->kernel;
  const int64_t one = k->mr * k->nr, panels = ceil_div(plan->mb, k->mr);
  const bool one_depth = c->p.k <= plan->depth && !plan->across,
             one_step = c->p.k <= plan->kb && !plan->across;
  c->state_stride_i = one_step ? 0 : one;
  c->state_stride_j = one_depth ? 0 : one * panels;
  const int64_t tiles = one_step ? 1 : one_depth ? panels : panels * (plan->nb / k->nr);
  c->a_bytes = aligned(panels * (plan->depth / k->k_step) * k->a_bytes);
  c->b_bytes = aligned(plan->kb / k->k_step * k->b_bytes);
  c->all = c->a_bytes + c->b_bytes + aligned(tiles * one * 4);
}

/* An operand without elements has no address and any strides: nothing may be computed from them. */
static void ignore(dg_operand *x) {
  static char nothing;
  *x = (dg_operand){.data = &nothing, .dtype = x->dtype};
}

static call make_call(const dg_cpu_product *x) {
  call c = {.p = x->p};
  if (dg_cpu_exchange(&x->p)) dg_problem_exchange(&c.p);
  if (c.p.k == 0) {
    ignore(&c.p.a);
    ignore(&c.p.b);
  }
  c.plan = dg_cpu_plan_make(&c.p, x->kernel, x->threads);
  c.tasks = c.p.batch * c.plan.blocks_m * c.plan.blocks_n;
  size_areas(&c);
  return c;
}

static dg_status run_region(region *r, int threads, int64_t tasks) {
  _Alignas(ALIGNMENT) char on_stack[ON_STACK];
  const size_t bytes = r->area * (size_t)min64(threads, tasks);
  r->memory = bytes <= sizeof on_stack ? on_stack : aligned_alloc(ALIGNMENT, bytes);
  if (r->memory == NULL)
    return dg_fail(DG_ERROR_MEMORY, "no memory for %zu bytes of work area; use fewer threads",
                   bytes);
  dg_parallel(threads, tasks, run_block, r);
  if (r->memory != on_stack) free(r->memory);
  return DG_OK;
}

dg_status dg_cpu_run(const dg_cpu_product *x) {
  const call c = make_call(x);
  return run_region(&(region){.calls = &c, .count = 1, .area = c.all}, c.plan.threads, c.tasks);
}

static int64_t task_size(const call *c) { return c->plan.mb * c->plan.nb; }

/* Large tasks first, so that small ones fill the gaps at the end. */
static int compare_tasks(const void *x, const void *y) {
  const int64_t a = task_size(x), b = task_size(y);
  return a < b ? 1 : a > b ? -1 : 0;
}

dg_status dg_cpu_run_many(const dg_cpu_product *list, int64_t count, int threads) {
  if (count == 0) return DG_OK;
  call *calls = calloc((size_t)count, sizeof *calls);
  if (calls == NULL)
    return dg_fail(DG_ERROR_MEMORY, "no memory for %lld products", (long long)count);
  region r = {.calls = calls, .count = count};
  int64_t tasks = 0;
  for (int64_t i = 0; i < count; i++) {
    calls[i] = make_call(&list[i]);
    if (calls[i].all > r.area) r.area = calls[i].all;
  }
  qsort(calls, (size_t)count, sizeof *calls, compare_tasks);
  for (int64_t i = 0; i < count; i++) {
    calls[i].first_task = tasks;
    tasks += calls[i].tasks;
  }
  const dg_status status = run_region(&r, threads, tasks);
  free(calls);
  return status;
}
