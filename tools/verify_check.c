/* Checks as text, their inputs, and what the reference makes of them. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify.h"

static const char *const op_names[] = {"forward", "forward-nt", "grad-a", "grad-b", "grad-b-t"};
static const char *const input_names[] = {"plain", "wide", "tiny", "overflow", "special", "zeros"};
static const char *const variant_names[] = {"whole",   "rows",    "chunks",  "permuted",
                                            "batched", "strided", "threads", "continued",
                                            "pieces",  "hostile", "repeated"};
static const char *const dtype_names[] = {"", "bf16", "f16", "f32"};
static const char *const order_names[] = {"", "fma", "tc16"};
static const char *const extra_names[] = {"none", "start", "bias", "start+bias"};

void check_text(const check *c, char text[160]) {
  snprintf(text, 160, "%s/%s/%s/%s/%" PRId64 "x%" PRId64 "x%" PRId64 "/%s/%s/%s/%" PRIu64,
           order_names[c->order], op_names[c->op], dtype_names[c->in], dtype_names[c->out], c->m,
           c->n, c->k, input_names[c->inputs], extra_names[c->start + 2 * c->bias],
           variant_names[c->how], c->seed);
}

static int find(const char *word, const char *const *names, int count) {
  for (int i = 0; i < count; i++)
    if (word != NULL && names[i][0] && strcmp(word, names[i]) == 0) return i;
  return -1;
}

static bool scan_seed(const char *text, uint64_t *seed) {
  char *end;
  *seed = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0';
}

bool check_parse(const char *text, check *c) {
  char copy[256], *words[9] = {NULL}, *rest = copy;
  int64_t shape[3];
  uint64_t seed;
  snprintf(copy, sizeof copy, "%s", text);
  for (int i = 0; i < 9; i++) words[i] = strsep(&rest, "/");
  const int order = find(words[0], order_names, 3), op = find(words[1], op_names, VOPS);
  const int in = find(words[2], dtype_names, 4), out = find(words[3], dtype_names, 4);
  const int inputs = find(words[5], input_names, INS), extra = find(words[6], extra_names, 4);
  const int how = find(words[7], variant_names, VARIANTS);
  if (order < 0 || op < 0 || in < 0 || out < 0 || inputs < 0 || extra < 0 || how < 0 ||
      words[8] == NULL || rest != NULL || !scan_shape(words[4], shape) ||
      !scan_seed(words[8], &seed)) {
    complain("\"%s\" is no check; take one from the output of detgemm verify", text);
    return false;
  }
  *c = (check){(dg_order)order,  (verify_op)op,    (dg_dtype)in, (dg_dtype)out,
               shape[0],         shape[1],         shape[2],     (verify_inputs)inputs,
               (extra & 1) != 0, (extra & 2) != 0, (variant)how, seed};
  return true;
}

uint64_t random_next(uint64_t *state) { /* splitmix64 */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Where the formats keep their exponents. */
typedef struct format {
  int mantissa, bias, low, high; /* low to high: unbiased exponents of normal numbers */
} format;
static const format formats[] = {{0}, {7, 127, -126, 127}, {10, 15, -14, 15}, {23, 127, -126, 127}};

/* A number of exponent e (clamped) with random sign and mantissa; below the range: subnormal. */
static uint32_t number(int dtype, int e, uint64_t r) {
  const format f = formats[dtype];
  const uint32_t sign = (uint32_t)(r & 1) << (dtype == DG_F32 ? 31 : 15);
  const uint32_t mantissa = (uint32_t)(r >> 8) & ((1u << f.mantissa) - 1);
  const uint32_t exponent = e < f.low ? 0 : (uint32_t)((e > f.high ? f.high : e) + f.bias);
  return sign | exponent << f.mantissa | mantissa;
}

static uint32_t zero(int dtype, uint64_t r) {
  return (uint32_t)(r & 1) << (dtype == DG_F32 ? 31 : 15);
}

/* line is the row of a, or the column of b: special values fill some lines only, as one NaN makes
 * the whole sum NaN. */
static uint32_t input(verify_inputs how, int dtype, int64_t line, uint64_t *state) {
  const uint64_t r = random_next(state);
  const int spread = (int)(r >> 40 & 0xffff);
  const bool narrow = dtype == DG_F16;
  switch (how) {
    case IN_PLAIN: return number(dtype, spread % 12 - 7, r);
    case IN_WIDE: return number(dtype, narrow ? spread % 30 - 14 : spread % 120 - 60, r);
    case IN_TINY:
      return number(dtype, narrow ? spread % 6 - 15 : spread % 16 ? spread % 14 - 76 : -127, r);
    case IN_OVERFLOW: return number(dtype, narrow ? 12 + spread % 4 : 59 + spread % 5, r);
    case IN_ZEROS:
      return spread % 5 ? zero(dtype, r) : number(dtype, narrow ? -15 : spread % 14 - 76, r);
    default:
      if (line % 5 == 0 && spread % 7 == 0)
        return (uint32_t)(dtype == DG_F32 ? r >> 8 : r >> 8 & 0xffff);
      return spread % 4 ? number(dtype, narrow ? spread % 30 - 14 : spread % 60 - 30, r)
                        : zero(dtype, r);
  }
}

static void put(unsigned char *at, int dtype, uint32_t bits) {
  const uint16_t narrow = (uint16_t)bits;
  if (dtype == DG_F32) memcpy(at, &bits, 4);
  else memcpy(at, &narrow, 2);
}

/* rows x cols numbers; by_row: a line is a row. NULL: no memory. */
static unsigned char *fill(int64_t rows, int64_t cols, int dtype, verify_inputs how, bool by_row,
                           uint64_t *state) {
  const int64_t size = dtype_bytes(dtype);
  unsigned char *data = malloc((size_t)(rows * cols * size) + 1);
  for (int64_t i = 0; data && i < rows * cols; i++)
    put(data + i * size, dtype, input(how, dtype, by_row ? i / cols : i % cols, state));
  return data;
}

/* A share of the reference's work: elements of the samples, or columns. */
typedef struct share {
  dg_gemm_args args;
  const check_data *d;
  int64_t first, last;
} share;

static dg_view part(dg_view v, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  if (v.data == NULL) return v;
  v.data = (char *)v.data + (row * v.row_stride + col * v.col_stride) * dtype_bytes(v.dtype);
  v.rows = rows;
  v.cols = cols;
  return v;
}

static bool reference_block(const dg_gemm_args *all, int64_t row, int64_t rows, int64_t col,
                            int64_t cols) {
  dg_gemm_args g = *all;
  g.a = part(all->a, row, rows, 0, all->a.cols);
  g.b = part(all->b, 0, all->b.rows, col, cols);
  g.out = part(all->out, row, rows, col, cols);
  g.start = part(all->start, row, rows, col, cols);
  g.bias = part(all->bias, 0, 1, col, cols);
  return dg_reference(&g) == DG_OK || complain("the reference failed: %s", dg_last_error()) == 0;
}

static void *run_share(void *context) {
  const share *s = context;
  const check_data *d = s->d;
  bool good = true;
  if (d->samples == NULL)
    good =
        s->last == s->first || reference_block(&s->args, 0, d->c.m, s->first, s->last - s->first);
  for (int64_t i = s->first; d->samples && good && i < s->last; i++)
    good = reference_block(&s->args, d->samples[i] / d->c.n, 1, d->samples[i] % d->c.n, 1);
  return good ? NULL : context;
}

static bool run_reference(check_data *d) {
  enum { THREADS_USED = 4 };
  const check *c = &d->c;
  pthread_t threads[THREADS_USED];
  share shares[THREADS_USED];
  int started = 0;
  bool good = true;
  dg_gemm_args g = dg_gemm_args_init();
  g.order = c->order;
  g.a = dg_row_major(d->a, c->in, c->m, c->k);
  g.b = dg_row_major(d->b, c->in, c->k, c->n);
  g.out = dg_row_major(d->expected, c->out, c->m, c->n);
  if (d->start) g.start = dg_row_major(d->start, DG_F32, c->m, c->n);
  if (d->bias) g.bias = dg_row_major(d->bias, c->in, 1, c->n);
  const int64_t all = d->samples ? d->sample_count : c->n;
  for (int i = 0; i < THREADS_USED; i++) {
    shares[i] = (share){g, d, all * i / THREADS_USED, all * (i + 1) / THREADS_USED};
    if (i + 1 < THREADS_USED && c->m * c->n * c->k > 100000 &&
        pthread_create(&threads[started], NULL, run_share, &shares[i]) == 0)
      started++;
    else good = run_share(&shares[i]) == NULL && good;
  }
  for (int i = 0; i < started; i++) {
    void *failed;
    good = pthread_join(threads[i], &failed) == 0 && failed == NULL && good;
  }
  return good;
}

/* Above this many steps a product is compared in sampled elements only. */
static bool choose_samples(check_data *d, uint64_t *state) {
  const check *c = &d->c;
  const int64_t total = c->m * c->n, budget = 1 << 26;
  if (c->k == 0 || total <= budget / c->k) return true;
  d->sample_count = budget / 8 / c->k > 64 ? budget / 8 / c->k : 64;
  if (d->sample_count > total) d->sample_count = total;
  d->samples = malloc((size_t)d->sample_count * sizeof *d->samples);
  for (int64_t i = 0; d->samples && i < d->sample_count; i++)
    d->samples[i] = i == 0   ? 0
                    : i == 1 ? total - 1
                             : (int64_t)(random_next(state) % (uint64_t)total);
  return d->samples != NULL;
}

bool check_data_make(check_data *d, const check *c) {
  uint64_t state = c->seed * 1000003u + (uint64_t)c->m * 31 + (uint64_t)c->n * 17 + (uint64_t)c->k;
  memset(d, 0, sizeof *d);
  d->c = *c;
  if (!shape_fits((const int64_t[3]){c->m, c->n, c->k})) return false;
  d->a = fill(c->m, c->k, c->in, c->inputs, true, &state);
  d->b = fill(c->k, c->n, c->in, c->inputs, false, &state);
  if (c->start) d->start = fill(c->m, c->n, DG_F32, c->inputs, true, &state);
  if (c->bias) d->bias = fill(1, c->n, c->in, c->inputs, false, &state);
  d->expected = calloc((size_t)(c->m * c->n + 1), (size_t)dtype_bytes(c->out));
  if (!d->a || !d->b || (c->start && !d->start) || (c->bias && !d->bias) || !d->expected ||
      !choose_samples(d, &state)) {
    complain("no memory for a product of %" PRId64 " x %" PRId64 " x %" PRId64, c->m, c->n, c->k);
    return false;
  }
  return run_reference(d);
}

void check_data_free(check_data *d) {
  free(d->a);
  free(d->b);
  free(d->start);
  free(d->bias);
  free(d->expected);
  free(d->samples);
  memset(d, 0, sizeof *d);
}
