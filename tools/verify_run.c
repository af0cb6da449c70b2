/* Runs one check on one device in its variant, and compares every bit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify.h"

enum { POISON = 0xa5, GUARD = 128 }; /* GUARD elements before and after; keeps 128-byte alignment */

/* A matrix laid out on the device, with a copy of its bytes on the host. */
typedef struct placed {
  dg_view view;
  unsigned char *host;
  void *device;
  size_t bytes, first; /* byte offset of element (0, 0) */
} placed;

/* How a matrix lies in memory. */
typedef struct layout {
  bool transposed, strided;
  uint64_t style;
} layout;

/* One run: the operands as the variant lays them out. Row r of the result is row map[r] of the
 * check's. */
typedef struct run {
  const check_data *d;
  dg_device *device;
  device_memory *memory;
  check_result *result;
  int64_t rows, batch;
  int64_t *map;
  placed a, b, out, state, start, bias;
  outcome outcome;
} run;

static void set_strides(dg_view *v, const layout *l) {
  const int64_t inner = l->transposed ? v->rows : v->cols;
  const int64_t step = l->strided && l->style % 3 == 1 ? 2 : 1;
  const int64_t pitch = inner * step + (l->strided ? 3 + (int64_t)(l->style % 5) : 0);
  v->row_stride = l->transposed ? step : pitch;
  v->col_stride = l->transposed ? pitch : step;
  if (l->strided && l->style % 3 == 2) v->row_stride = -v->row_stride;
}

/* Sizes the buffer: guards around the span of the view. An odd byte address on the host. */
static bool reserve(const run *r, placed *p, const layout *l) {
  dg_view *v = &p->view;
  const int64_t size = dtype_bytes(v->dtype);
  set_strides(v, l);
  const int64_t reach = v->rows ? (v->rows - 1) * v->row_stride : 0;
  const int64_t width = v->cols ? (v->cols - 1) * v->col_stride : 0;
  const int64_t low = reach < 0 ? reach : 0, high = (reach > 0 ? reach : 0) + width + 1;
  const size_t skew = !l->strided ? 0 : device_memory_is_host(r->memory) ? 1 : (size_t)size;
  p->first = (size_t)((GUARD - low) * size) + skew;
  p->bytes = (size_t)((2 * GUARD + high - low) * size) + skew;
  p->host = malloc(p->bytes);
  if (p->host == NULL) return complain("no memory for %zu bytes", p->bytes) == EXIT_GOOD;
  memset(p->host, POISON, p->bytes);
  return true;
}

static unsigned char *element(const placed *p, int64_t i, int64_t j) {
  const dg_view *v = &p->view;
  const int64_t offset = (i * v->row_stride + j * v->col_stride) * dtype_bytes(v->dtype);
  return p->host + (int64_t)p->first + offset;
}

/* Lays out rows x cols elements of data (row-major; row i is row map[i]); data NULL: poison. */
static bool place(const run *r, placed *p, const unsigned char *data, dg_dtype dtype, int64_t rows,
                  int64_t cols, const int64_t *map, layout l) {
  const size_t size = (size_t)dtype_bytes(dtype);
  p->view = (dg_view){.rows = rows, .cols = cols, .dtype = dtype};
  if (!reserve(r, p, &l)) return false;
  for (int64_t i = 0; data && i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      memcpy(element(p, i, j), data + (size_t)((map ? map[i] : i) * cols + j) * size, size);
  p->device = device_memory_copy(r->memory, p->host, p->bytes);
  if (p->device == NULL) return false;
  p->view.data = (char *)p->device + p->first;
  return true;
}

static void unplace(const run *r, placed *p) {
  free(p->host);
  if (p->device) r->memory->platform->release(r->memory, p->device);
}

static void report(run *r, outcome what, const char *text) {
  r->outcome = what;
  snprintf(r->result->what, sizeof r->result->what, "%s", text);
}

static bool same_element(run *r, int64_t row, int64_t col) {
  const check *c = &r->d->c;
  const int64_t size = dtype_bytes(c->out);
  const int64_t source = r->map[row];
  const unsigned char *want = r->d->expected + (source * c->n + col) * size;
  const unsigned char *got = element(&r->out, row, col);
  uint32_t bits[2] = {0, 0};
  if (memcmp(want, got, (size_t)size) == 0) return true;
  if (size == 4) {
    memcpy(&bits[0], got, 4);
    memcpy(&bits[1], want, 4);
  } else {
    uint16_t narrow[2];
    memcpy(&narrow[0], got, 2);
    memcpy(&narrow[1], want, 2);
    bits[0] = narrow[0];
    bits[1] = narrow[1];
  }
  char text[160];
  snprintf(text, sizeof text,
           "row %" PRId64 ", column %" PRId64 " is %0*" PRIx32 ", the reference says %0*" PRIx32,
           row, col, (int)(2 * size), bits[0], (int)(2 * size), bits[1]);
  report(r, DIFFERS, text);
  return false;
}

/* A sampled element, in every row of the result that shows it. */
static bool same_row(run *r, int64_t source, int64_t col) {
  for (int64_t row = 0; row < r->rows; row++)
    if (r->map[row] == source && !same_element(r, row, col)) return false;
  return true;
}

/* Overwrites the elements by poison, so that only bytes that are no element can differ from it. */
static bool margins_untouched(run *r) {
  const size_t size = (size_t)dtype_bytes(r->d->c.out);
  for (int64_t i = 0; i < r->rows; i++)
    for (int64_t j = 0; j < r->d->c.n; j++) memset(element(&r->out, i, j), POISON, size);
  for (size_t i = 0; i < r->out.bytes; i++)
    if (r->out.host[i] != POISON) {
      report(r, DIFFERS, "memory around the result was written to");
      return false;
    }
  return true;
}

/* Fetches the result, compares it and its margins, and makes the output poison again. */
static bool settle(run *r) {
  const check_data *d = r->d;
  const memory_platform *platform = r->memory->platform;
  if (!platform->sync(r->memory) ||
      !platform->to_host(r->memory, r->out.host, r->out.device, r->out.bytes)) {
    report(r, FAILED, "the device failed");
    return false;
  }
  if (d->samples == NULL)
    for (int64_t i = 0; i < r->rows; i++)
      for (int64_t j = 0; j < d->c.n; j++)
        if (!same_element(r, i, j)) return false;
  for (int64_t s = 0; s < d->sample_count; s++)
    if (!same_row(r, d->samples[s] / d->c.n, d->samples[s] % d->c.n)) return false;
  r->result->elements += d->samples ? d->sample_count * r->batch : r->rows * d->c.n;
  return margins_untouched(r) &&
         platform->to_device(r->memory, r->out.device, r->out.host, r->out.bytes);
}

static dg_view part(dg_view v, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  if (v.data == NULL) return v;
  v.data = (char *)v.data + (row * v.row_stride + col * v.col_stride) * dtype_bytes(v.dtype);
  v.rows = rows;
  v.cols = cols;
  return v;
}

/* Notes why a call failed. What a forced kernel does not take is skipped. */
static bool good(run *r, dg_status status) {
  if (status == DG_OK) return true;
  report(r, status == DG_ERROR_UNSUPPORTED ? SKIPPED : FAILED, dg_last_error());
  return false;
}

static dg_gemm_args whole_args(const run *r) {
  dg_gemm_args g = dg_gemm_args_init();
  g.order = r->d->c.order;
  g.a = r->a.view;
  g.b = r->b.view;
  g.out = r->out.view;
  g.start = r->start.view;
  g.bias = r->bias.view;
  return g;
}

/* Rows, columns and ks of the whole; out and start as given. */
static bool block(run *r, int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t k0,
                  int64_t ks, dg_view out, dg_view start, dg_view bias) {
  dg_gemm_args g = whole_args(r);
  g.a = part(g.a, row, rows, k0, ks);
  g.b = part(g.b, k0, ks, col, cols);
  g.out = part(out, row, rows, col, cols);
  g.start = part(start, row, rows, col, cols);
  g.bias = part(bias, 0, 1, col, cols);
  return good(r, dg_gemm(r->device, &g));
}

/* Through the named operation where there is one for it, else dg_gemm. */
static bool whole(run *r) {
  dg_gemm_args g = whole_args(r);
  if (r->d->c.start || r->d->c.bias) return good(r, dg_gemm(r->device, &g));
  switch (r->d->c.op) {
    case VOP_FORWARD: return good(r, dg_forward(r->device, NULL, g.order, g.a, g.b, g.out));
    case VOP_FORWARD_NT:
      return good(r, dg_forward_nt(r->device, NULL, g.order, g.a, dg_transposed(g.b), g.out));
    case VOP_GRAD_A:
      return good(r, dg_grad_a(r->device, NULL, g.order, g.a, dg_transposed(g.b), g.out));
    case VOP_GRAD_B:
      return good(r, dg_grad_b(r->device, NULL, g.order, dg_transposed(g.a), g.b, g.out));
    default:
      return good(
          r, dg_grad_b_t(r->device, NULL, g.order, dg_transposed(g.a), g.b, dg_transposed(g.out)));
  }
}

static bool batched(run *r) {
  dg_gemm_args g = whole_args(r);
  dg_view *views[] = {&g.a, &g.out, &g.start};
  g.batch = r->batch;
  for (int i = 0; i < 3; i++) {
    views[i]->rows /= r->batch;
    views[i]->batch_stride = views[i]->rows * views[i]->row_stride;
  }
  return good(r, dg_gemm(r->device, &g)) && settle(r);
}

static bool chunks(run *r, int64_t row_limit, int64_t col_limit) {
  const check *c = &r->d->c;
  uint64_t state = c->seed;
  for (int64_t i = 0, rows; i < c->m; i += rows) {
    rows = 1 + (int64_t)(random_next(&state) % (uint64_t)row_limit);
    if (rows > c->m - i) rows = c->m - i;
    for (int64_t j = 0, cols; j < c->n; j += cols) {
      cols = col_limit ? 1 + (int64_t)(random_next(&state) % (uint64_t)col_limit) : c->n;
      if (cols > c->n - j) cols = c->n - j;
      if (!block(r, i, rows, j, cols, 0, c->k, r->out.view, r->start.view, r->bias.view))
        return false;
    }
  }
  return settle(r);
}

static bool ks(run *r, int64_t k0, int64_t count, dg_view out, dg_view start, dg_view bias) {
  return block(r, 0, r->rows, 0, r->d->c.n, k0, count, out, start, bias);
}

static int64_t cut_step(const run *r) { return r->d->c.order == DG_ORDER_TC16 ? 16 : 1; }

static bool continued(run *r) {
  const int64_t k = r->d->c.k, step = cut_step(r);
  const int64_t stride = k / step > 130 ? k / step / 130 * step : step; /* all of them up to 130 */
  for (int64_t cut = 0; cut <= k; cut += stride)
    if (!ks(r, 0, cut, r->state.view, r->start.view, (dg_view){0}) ||
        !ks(r, cut, k - cut, r->out.view, r->state.view, r->bias.view) || !settle(r))
      return false;
  return true;
}

static bool pieces(run *r) {
  const int64_t k = r->d->c.k, step = cut_step(r);
  uint64_t state = r->d->c.seed;
  dg_view from = r->start.view;
  int64_t done = 0;
  for (int64_t count; done < k; done += count, from = r->state.view) {
    count = step * (1 + (int64_t)(random_next(&state) % 4));
    if (done + count >= k) break;
    if (!ks(r, done, count, r->state.view, from, (dg_view){0})) return false;
  }
  return ks(r, done, k - done, r->out.view, from, r->bias.view) && settle(r);
}

static bool threads(run *r) {
  static const int counts[] = {1, 2, 3, 5, 8};
  bool same = true;
  for (int i = 0; same && i < 5; i++)
    same = good(r, dg_device_set_threads(r->device, counts[i])) && whole(r) && settle(r);
  dg_device_set_threads(r->device, 0);
  return same;
}

static bool hostile(run *r) {
  bool same = true;
  for (int i = 0; same && hostile_set(i); i++) {
    same = whole(r);
    hostile_reset();
    same = same && settle(r);
  }
  return same;
}

static bool repeated(run *r) {
  for (int i = 0; i < 5; i++)
    if (!whole(r) || !settle(r)) return false;
  return true;
}

/* The sequence of rows. */
static bool make_map(run *r) {
  const check *c = &r->d->c;
  uint64_t state = c->seed;
  r->batch = c->how == BATCHED ? 3 : 1;
  r->rows = c->m * r->batch;
  r->map = malloc((size_t)(r->rows + 1) * sizeof *r->map);
  if (r->map == NULL) return complain("no memory") == EXIT_GOOD;
  for (int64_t i = 0; i < r->rows; i++) r->map[i] = (i + i / c->m) % c->m;
  for (int64_t i = c->m - 1; c->how == PERMUTED && i > 0; i--) {
    const int64_t j = (int64_t)(random_next(&state) % (uint64_t)(i + 1)), t = r->map[i];
    r->map[i] = r->map[j];
    r->map[j] = t;
  }
  return true;
}

static bool place_all(run *r) {
  const check_data *d = r->d;
  const check *c = &d->c;
  const bool strided = c->how == STRIDED;
  uint64_t s = c->seed;
  const layout a = {c->op == VOP_GRAD_B || c->op == VOP_GRAD_B_T, strided, random_next(&s) >> 8};
  const layout b = {c->op == VOP_FORWARD_NT || c->op == VOP_GRAD_A, strided, random_next(&s) >> 8};
  const layout out = {c->op == VOP_GRAD_B_T, strided, random_next(&s) >> 8};
  const layout flat = {false, strided, 0};
  return make_map(r) && place(r, &r->a, d->a, c->in, r->rows, c->k, r->map, a) &&
         place(r, &r->b, d->b, c->in, c->k, c->n, NULL, b) &&
         place(r, &r->out, NULL, c->out, r->rows, c->n, NULL, out) &&
         (!d->start || place(r, &r->start, d->start, DG_F32, r->rows, c->n, r->map, out)) &&
         (!d->bias || place(r, &r->bias, d->bias, c->in, 1, c->n, NULL, flat)) &&
         ((c->how != CONTINUED && c->how != PIECES) ||
          place(r, &r->state, NULL, DG_F32, r->rows, c->n, NULL, out));
}

static bool run_variant(run *r) {
  switch (r->d->c.how) {
    case ROWS: return chunks(r, 1, 0);
    case CHUNKS: return chunks(r, 9, 40);
    case BATCHED: return batched(r);
    case THREADS: return threads(r);
    case CONTINUED: return continued(r);
    case PIECES: return pieces(r);
    case HOSTILE: return hostile(r);
    case REPEATED: return repeated(r);
    default: return whole(r) && settle(r);
  }
}

outcome check_run(const check_data *d, dg_device *device, device_memory *memory,
                  check_result *result) {
  run r = {.d = d, .device = device, .memory = memory, .result = result, .outcome = SAME};
  result->elements = 0;
  result->what[0] = '\0';
  if (!place_all(&r)) report(&r, FAILED, "the inputs could not be laid out");
  else if (!run_variant(&r) && r.outcome == SAME) report(&r, FAILED, "the device failed");
  placed *all[] = {&r.a, &r.b, &r.out, &r.state, &r.start, &r.bias};
  for (int i = 0; i < 6; i++) unplace(&r, all[i]);
  free(r.map);
  return r.outcome;
}
