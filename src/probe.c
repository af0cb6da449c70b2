/* The conformance probe: before a row is used, it computes small products full of edge cases, and
 * its bits are compared with the scalar reference. So an unknown device, compiler flag or driver
 * gives a reason the user can read, never other bits.
 *
 * Each product is laid out once and computed by all rows that take it, each into an output of its
 * own; all outputs travel in one copy, for which alone the device is waited. Only some rows and
 * columns are compared, which meet every place in a tile of 8 x 16 and the edges behind 128 rows
 * and 256 columns, since the reference takes most of the probe's time; the rest must have been
 * written, and nothing between the rows of the output. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "num.h"
#include "order.h"

/* What the inputs are full of. */
typedef enum inputs { ORDINARY, TINY, HUGE_ONES, SPECIAL, ZEROS } inputs;

/* A product. Sizes are odd in every tile. The aligned ones have rows of whole 16 bytes, as tensor
 * maps need them, and hold whole tiles; where k is 152 the sum ends within a panel. */
typedef struct probe_case {
  int m, n, k;
  bool aligned, a_transposed, b_transposed;
  int in, out; /* dtypes */
  bool bias;   /* there is always a start */
  inputs inputs;
} probe_case;

static const probe_case cases[] = {
    {19, 49, 83, false, false, false, DG_BF16, DG_F32, false, ORDINARY},
    {19, 49, 83, false, false, false, DG_BF16, DG_F32, false, TINY},
    {19, 49, 83, false, false, false, DG_BF16, DG_F32, false, HUGE_ONES},
    {19, 49, 83, false, false, false, DG_BF16, DG_F32, false, SPECIAL},
    {19, 49, 83, false, true, true, DG_F16, DG_F16, true, SPECIAL},
    {19, 49, 83, false, false, true, DG_F32, DG_F32, false, SPECIAL},
    {136, 265, 152, true, false, true, DG_BF16, DG_F32, false, ORDINARY},
    {136, 265, 144, true, false, true, DG_BF16, DG_F32, false, TINY},
    {136, 265, 144, true, false, true, DG_BF16, DG_F32, false, HUGE_ONES},
    {136, 265, 144, true, false, true, DG_BF16, DG_BF16, true, SPECIAL},
    {136, 265, 144, true, false, false, DG_BF16, DG_BF16, false, SPECIAL},
    {136, 265, 152, true, true, false, DG_BF16, DG_F32, false, SPECIAL},
    {136, 265, 144, true, false, true, DG_F16, DG_F16, false, ORDINARY},
    {5, 265, 272, true, false, true, DG_BF16, DG_F32, false, TINY},
    {5, 265, 272, true, false, true, DG_BF16, DG_BF16, true, SPECIAL},
    {5, 265, 272, true, false, false, DG_BF16, DG_F32, false, ORDINARY},
    {19, 49, 83, false, false, true, DG_BF16, DG_F32, false, ZEROS},
    {24, 37, 72, true, false, true, DG_BF16, DG_F32, false, ZEROS},
    {17, 41, 128, true, false, true, DG_BF16, DG_F32, false, ORDINARY},
    {33, 97, 128, true, false, true, DG_BF16, DG_BF16, true, SPECIAL},
    {40, 97, 128, true, false, false, DG_BF16, DG_F32, false, TINY},
    {49, 97, 128, true, false, true, DG_F16, DG_F32, false, SPECIAL},
    {64, 81, 128, true, false, true, DG_BF16, DG_F32, false, ORDINARY},
    {5, 139, 83, false, false, true, DG_BF16, DG_F32, false, SPECIAL},
    {5, 139, 83, false, false, false, DG_BF16, DG_F32, false, SPECIAL},
};
enum { CASES = sizeof cases / sizeof cases[0], MAX_M = 136, MAX_N = 272, MAX_K = 272 };
enum {
  A_BYTES = 4 * MAX_M * MAX_K,
  B_BYTES = 4 * MAX_N * MAX_K,
  OUT_BYTES = 4 * MAX_M * MAX_N + 256
};
enum { POISON = 0xa5, MAX_KERNELS = 64 };

typedef struct buffer {
  unsigned char *host;
  void *device;
  size_t used; /* bytes, by the product at hand */
} buffer;

typedef struct probe {
  dg_device *device;
  const dg_probe_memory *memory;
  buffer a, b, start, bias;
  buffer out; /* one output after another, `pitch` bytes apart */
  size_t pitch;
  unsigned char *expected;
} probe;

/* ---- inputs ---- */

static uint32_t random_bits(uint64_t *state) { /* splitmix64, high half */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* The bits of a BF16 by class: around one; products near the least subnormal; near overflow with
 * cancellation; every bit pattern, infinities and NaN among them in a few lines (rows of A, columns
 * of B); zeros. */
static uint16_t random_bf16(inputs kind, int64_t line, uint32_t r) {
  const uint16_t sign_mantissa = (uint16_t)(r & 0x807fu);
  const uint16_t spread = (uint16_t)((r >> 16) % 12u);
  switch (kind) {
    case ORDINARY: return sign_mantissa | (uint16_t)((120u + spread) << 7);
    case TINY: return sign_mantissa | (uint16_t)((spread < 2 ? spread : 52u + spread) << 7);
    case HUGE_ONES: return sign_mantissa | (uint16_t)((186u + spread / 3u) << 7);
    case ZEROS: return line % 2 ? 0x8000u : 0; /* so that some sums have products of -0 only */
    default:
      if (line % 7 == 0) return (uint16_t)(r >> 8);
      return r % 5u ? sign_mantissa | (uint16_t)((100u + r / 64u % 60u) << 7)
                    : (uint16_t)(r & 0x8000u);
  }
}

static uint16_t random_f16(inputs kind, int64_t line, uint32_t r) {
  if (kind == SPECIAL && line % 7 == 0) return (uint16_t)(r >> 8);
  return (uint16_t)((r & 0x83ffu) | ((6u + (r >> 16) % 14u) << 10));
}

static void fill_input(const probe_case *c, const dg_operand *x, int64_t lines, int64_t line_stride,
                       int64_t k_stride, uint64_t seed) {
  for (int64_t i = 0; i < lines; i++)
    for (int64_t k = 0; k < c->k; k++) {
      const uint32_t r = random_bits(&seed);
      const uint16_t narrow =
          c->in == DG_F16 ? random_f16(c->inputs, i, r) : random_bf16(c->inputs, i, r);
      const uint32_t wide = (uint32_t)narrow << 16 | (r >> 16 & 0xfff0u);
      unsigned char *to =
          (unsigned char *)x->data + dg_dtype_bytes(c->in) * (i * line_stride + k * k_stride);
      if (c->in == DG_F32) memcpy(to, &wide, sizeof wide);
      else memcpy(to, &narrow, sizeof narrow);
    }
}

static void fill_start(const probe_case *c, float *start, int64_t pitch, uint64_t seed) {
  for (int64_t i = 0; i < c->m; i++)
    for (int64_t j = 0; j < c->n; j++) {
      const uint32_t r = random_bits(&seed);
      const uint32_t wide = c->inputs == TINY ? r & 0x80ffffffu : r & 0xbfffffffu;
      const bool zero = c->inputs == ZEROS || (i + j) % 11 == 0;
      start[i * pitch + j] = dg_f32_from_bits(zero ? r & 0x80000000u : wide);
    }
}

/* ---- a product ---- */

static int64_t pitch_of(const probe_case *c, int64_t extent) {
  return c->aligned ? (extent + 7) / 8 * 8 : extent;
}

static dg_operand matrix(void *data, int64_t pitch, bool transposed, int dtype) {
  return (dg_operand){
      .data = data, .rs = transposed ? 1 : pitch, .cs = transposed ? pitch : 1, .dtype = dtype};
}

/* The product on host memory, its result in x->expected. */
static dg_problem problem_of(const probe *x, const probe_case *c, int order) {
  dg_problem p = {.m = c->m, .n = c->n, .k = c->k, .batch = 1, .order = order};
  p.a = matrix(x->a.host, pitch_of(c, c->a_transposed ? c->m : c->k), c->a_transposed, c->in);
  p.b = matrix(x->b.host, pitch_of(c, c->b_transposed ? c->k : c->n), c->b_transposed, c->in);
  p.start = matrix(x->start.host, pitch_of(c, c->n), false, DG_F32);
  p.out = matrix(x->expected, pitch_of(c, c->n), false, c->out);
  if (c->bias) p.bias = (dg_operand){.data = x->bias.host, .cs = 1, .dtype = c->in};
  return p;
}

/* How far apart the compared rows and columns are. */
static int64_t row_step(const probe_case *c) { return c->m > 128 ? 19 : c->m > 32 ? 9 : 1; }
static int64_t col_step(const probe_case *c) { return c->n > 64 ? 11 : 3; }

static void compute_expected(const probe_case *c, dg_problem p) {
  const int64_t rows = row_step(c), cols = col_step(c);
  p.m = (p.m + rows - 1) / rows;
  p.n = (p.n + cols - 1) / cols;
  p.a.rs *= rows;
  p.b.cs *= cols;
  p.bias.cs *= cols;
  p.start.rs *= rows, p.start.cs *= cols;
  p.out.rs *= rows, p.out.cs *= cols;
  dg_reference_run(&p);
}

static dg_problem prepare(probe *x, const probe_case *c, int order) {
  const uint64_t seed = 2026 + (uint64_t)(c - cases);
  const dg_problem p = problem_of(x, c, order);
  const size_t in = (size_t)dg_dtype_bytes(c->in), pitch = (size_t)pitch_of(c, c->n);
  x->a.used = in * (size_t)(c->a_transposed ? c->k * p.a.cs : c->m * p.a.rs);
  x->b.used = in * (size_t)(c->b_transposed ? c->n * p.b.cs : c->k * p.b.rs);
  x->start.used = 4 * pitch * (size_t)c->m;
  x->bias.used = in * (size_t)c->n;
  x->pitch = ((size_t)dg_dtype_bytes(c->out) * pitch * (size_t)c->m + 255) / 256 * 256;
  memset(x->expected, POISON, OUT_BYTES);
  fill_input(c, &p.a, p.m, p.a.rs, p.a.cs, seed);
  fill_input(c, &p.b, p.n, p.b.cs, p.b.rs, seed << 8);
  fill_start(c, p.start.data, p.start.rs, seed << 16);
  if (c->bias) {
    probe_case line = *c;
    line.k = 1;
    fill_input(&line, &p.bias, p.n, 1, 0, seed << 24);
  }
  compute_expected(c, p);
  return p;
}

/* ---- a row on it ---- */

static dg_status copy(const probe *x, const buffer *b) {
  return x->memory->copy_in(x->memory->context, b->device, b->host, b->used);
}

/* Queues a row's product with the index-th output. */
static dg_status run_row(const probe *x, int kernel, dg_problem p, int index) {
  p.a.data = x->a.device;
  p.b.data = x->b.device;
  p.start.data = x->start.device;
  p.out.data = (char *)x->out.device + (size_t)index * x->pitch;
  if (p.bias.data) p.bias.data = x->bias.device;
  return x->device->backend->run(x->device, &p, kernel, NULL);
}

static uint32_t bits_at(const unsigned char *data, int64_t index, int64_t bytes) {
  uint32_t u = 0;
  uint16_t h;
  if (bytes == 4) memcpy(&u, data + 4 * index, 4);
  else memcpy(&h, data + 2 * index, 2), u = h;
  return u;
}

/* The first place of a row of an output that is not right, or the pitch: a compared column of other
 * bits; one that was not written; one behind the row that was. */
static int64_t first_wrong(const probe *x, const probe_case *c, const unsigned char *out, int64_t i,
                           int64_t pitch) {
  const int64_t bytes = dg_dtype_bytes(c->out), rows = row_step(c), cols = col_step(c);
  const int64_t at = i * pitch;
  for (int64_t j = 0; i % rows == 0 && j < c->n; j += cols)
    if (bits_at(out, at + j, bytes) != bits_at(x->expected, at + j, bytes)) return j;
  for (int64_t j = 0; bytes == 4 && j < c->n; j++)
    if (bits_at(out, at + j, 4) == 0xa5a5a5a5u) return j;
  for (int64_t j = c->n; j < pitch; j++)
    if (bits_at(out, at + j, bytes) != bits_at(x->expected, at + j, bytes)) return j;
  return pitch;
}

static void compare(const probe *x, const probe_case *c, const unsigned char *out, int64_t pitch,
                    char *why) {
  const int64_t bytes = dg_dtype_bytes(c->out);
  for (int64_t i = 0; i < c->m; i++) {
    const int64_t j = first_wrong(x, c, out, i, pitch);
    if (j == pitch) continue;
    snprintf(why, DG_PROBE_TEXT,
             "gave other bits than the reference in probe %d at row %" PRId64 ", column %" PRId64
             ": %0*" PRIx32 " instead of %0*" PRIx32,
             (int)(c - cases), i, j, (int)(2 * bytes), bits_at(out, i * pitch + j, bytes),
             (int)(2 * bytes), bits_at(x->expected, i * pitch + j, bytes));
    return;
  }
}

static bool takes(const probe *x, int kernel, const dg_problem *p) {
  const dg_backend *backend = x->device->backend;
  return backend->takes == NULL || backend->takes(x->device, p, kernel);
}

/* The rows of an order that are in question and take the product. */
static int rows_of(const probe *x, int order, const dg_problem *p, const dg_verdict *verdicts,
                   int *rows) {
  int count = 0;
  for (int i = 0; i < x->device->kernel_count && count < MAX_KERNELS; i++)
    if (verdicts[i].wanted && verdicts[i].why[0] == '\0' &&
        (int)x->device->kernels[i].order == order && takes(x, i, p))
      rows[count++] = i;
  return count;
}

/* All of them on one product. */
static dg_status run_case(probe *x, const probe_case *c, int order, dg_verdict *verdicts) {
  int rows[MAX_KERNELS];
  dg_problem p = problem_of(x, c, order);
  const int count = rows_of(x, order, &p, verdicts, rows);
  if (count == 0) return DG_OK;
  p = prepare(x, c, order);
  x->out.used = (size_t)count * x->pitch;
  memset(x->out.host, POISON, x->out.used);
  const buffer *all[] = {&x->a, &x->b, &x->start, &x->bias, &x->out};
  dg_status status = DG_OK;
  for (int i = 0; status == DG_OK && i < 5; i++) status = copy(x, all[i]);
  for (int i = 0; status == DG_OK && i < count; i++) {
    dg_verdict *v = &verdicts[rows[i]];
    status = run_row(x, rows[i], p, i);
    v->tried = true;
    if (status != DG_ERROR_UNSUPPORTED) continue;
    snprintf(v->why, DG_PROBE_TEXT, "cannot run here: %.120s", dg_last_error());
    status = DG_OK;
  }
  if (status == DG_OK)
    status = x->memory->copy_out(x->memory->context, x->out.host, x->out.device, x->out.used);
  for (int i = 0; status == DG_OK && i < count; i++)
    if (verdicts[rows[i]].why[0] == '\0')
      compare(x, c, x->out.host + (size_t)i * x->pitch, p.out.rs, verdicts[rows[i]].why);
  return status;
}

static dg_status make(const probe *x, buffer *b, size_t bytes) {
  b->host = calloc(bytes, 1);
  if (b->host == NULL) return dg_fail(DG_ERROR_MEMORY, "no memory for the conformance probe");
  return x->memory->alloc(x->memory->context, &b->device, bytes);
}

static dg_status run_cases(probe *x, dg_verdict *verdicts) {
  dg_status status = DG_OK;
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++)
    for (int i = 0; status == DG_OK && i < CASES; i++)
      if ((x->memory->large || !cases[i].aligned) &&
          (order == DG_ORDER_FMA || cases[i].in != DG_F32))
        status = run_case(x, &cases[i], order, verdicts);
  return status;
}

/* How many rows may be tried on one product. */
static int most_of_an_order(const dg_device *device, const dg_verdict *verdicts) {
  int counts[2] = {0, 0};
  for (int i = 0; i < device->kernel_count; i++)
    counts[device->kernels[i].order == DG_ORDER_TC16] += verdicts[i].wanted;
  return counts[0] > counts[1] ? counts[0] : counts[1];
}

/* Lays out the memory, runs everything and cleans up. */
static dg_status probe_rows(dg_device *device, const dg_probe_memory *memory,
                            dg_verdict *verdicts) {
  probe x = {.device = device, .memory = memory, .expected = malloc(OUT_BYTES)};
  buffer *all[] = {&x.a, &x.b, &x.start, &x.bias, &x.out};
  const size_t outputs = OUT_BYTES * (size_t)most_of_an_order(device, verdicts);
  const size_t bytes[] = {A_BYTES, B_BYTES, OUT_BYTES, 4 * MAX_N, outputs};
  dg_status status = DG_OK;
  if (x.expected == NULL) status = dg_fail(DG_ERROR_MEMORY, "no memory for the conformance probe");
  for (int i = 0; status == DG_OK && i < 5; i++) status = make(&x, all[i], bytes[i]);
  if (status == DG_OK) status = run_cases(&x, verdicts);
  for (int i = 0; i < 5; i++) {
    if (all[i]->device) memory->release(memory->context, all[i]->device);
    free(all[i]->host);
  }
  free(x.expected);
  return status;
}

dg_status dg_probe(dg_device *device, const dg_probe_memory *memory, dg_verdict *kept) {
  bool any = false;
  for (int i = 0; i < device->kernel_count; i++) {
    kept[i].wanted = device->kernels[i].withheld == NULL && !kept[i].reached;
    if (kept[i].wanted) any = true, kept[i].tried = false, kept[i].why[0] = '\0';
  }
  const dg_status status = any ? probe_rows(device, memory, kept) : DG_OK;
  if (status != DG_OK) return status;
  for (int i = 0; i < device->kernel_count; i++) {
    if (kept[i].wanted) kept[i].reached = true;
    if (kept[i].wanted && !kept[i].tried)
      snprintf(kept[i].why, DG_PROBE_TEXT, "takes none of the probe's products");
    if (kept[i].reached && kept[i].why[0] && device->kernels[i].withheld == NULL)
      device->kernels[i].withheld = kept[i].why;
  }
  return DG_OK;
}
