/* Checks the arguments of a product and reduces it to one strided problem. No data is touched. */
#include <inttypes.h>
#include <string.h>

#include "internal.h"
#include "num.h"

static const int64_t LONGEST_SUM = INT64_C(1) << 56;

/* The bytes a view covers, relative to its data pointer: [low, high). */
typedef struct span {
  int64_t low, high;
} span;

static const char *dtype_name(int dtype) {
  switch (dtype) {
    case DG_BF16: return "BF16";
    case DG_F16: return "F16";
    case DG_F32: return "F32";
    default: return "unknown";
  }
}

static dg_status check_dtype(const char *name, int dtype, bool narrow_only) {
  if (dtype != DG_BF16 && dtype != DG_F16 && dtype != DG_F32)
    return dg_fail(DG_ERROR_ARGUMENT, "%s.dtype is %d; it must be DG_BF16, DG_F16 or DG_F32", name,
                   dtype);
  if (narrow_only && dtype == DG_F32)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%s.dtype is F32; the tc16 order takes BF16 or F16: use the fma order, or round "
                   "to BF16 first",
                   name);
  return DG_OK;
}

/* Widens span by the extent * stride of one dimension, in elements. */
static bool widen(span *s, int64_t extent, int64_t stride) {
  int64_t reach;
  if (__builtin_mul_overflow(extent - 1, stride, &reach)) return false;
  return !(reach < 0 ? __builtin_add_overflow(s->low, reach, &s->low)
                     : __builtin_add_overflow(s->high, reach, &s->high));
}

/* Checks one view on its own and finds its span. A view without elements needs no data. */
static dg_status check_view(const char *name, const dg_view *v, int64_t batch, span *s) {
  const int64_t size = dg_dtype_bytes(v->dtype);
  *s = (span){0, 0};
  if (v->rows < 0 || v->cols < 0)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%s is %" PRId64 " x %" PRId64 "; rows and columns must be 0 or more", name,
                   v->rows, v->cols);
  if (v->rows == 0 || v->cols == 0 || batch == 0) return DG_OK;
  if (v->data == NULL)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%s.data is NULL; a view of %" PRId64 " x %" PRId64 " elements needs memory",
                   name, v->rows, v->cols);
  bool fits = widen(s, v->rows, v->row_stride) && widen(s, v->cols, v->col_stride) &&
              widen(s, batch, v->batch_stride) && !__builtin_add_overflow(s->high, 1, &s->high) &&
              !__builtin_mul_overflow(s->low, size, &s->low) &&
              !__builtin_mul_overflow(s->high, size, &s->high);
  const uintptr_t base = (uintptr_t)v->data;
  if (!fits || -(uintptr_t)s->low > base || base > UINTPTR_MAX - (uintptr_t)s->high)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "%s of %" PRId64 " x %" PRId64 " x %" PRId64 " elements with strides %" PRId64
                   ", %" PRId64 ", %" PRId64
                   " (batch, rows, columns) reaches past the address space; check its sizes and "
                   "strides",
                   name, batch, v->rows, v->cols, v->batch_stride, v->row_stride, v->col_stride);
  return DG_OK;
}

static dg_status check_shape(const char *name, const dg_view *v, int64_t rows, int64_t cols,
                             const char *shape) {
  if (v->rows == rows && v->cols == cols) return DG_OK;
  return dg_fail(DG_ERROR_ARGUMENT,
                 "%s is %" PRId64 " x %" PRId64 "; it must be %s = %" PRId64 " x %" PRId64, name,
                 v->rows, v->cols, shape, rows, cols);
}

typedef struct dimension {
  int64_t extent, stride;
} dimension;

static void sort_by_stride(dimension *d, int count) {
  for (int i = 1; i < count; i++)
    for (int j = i; j > 0 && d[j].stride < d[j - 1].stride; j--) {
      dimension t = d[j];
      d[j] = d[j - 1];
      d[j - 1] = t;
    }
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b;
    b = t;
  }
  return a;
}

/* Whether two different indices of out give the same element. Dimensions nested in one another (the
 * reach of the smaller ones below the next stride) never do. Two that are not nested coincide when
 * a common multiple of both strides is in reach of both; three that are not nested are refused. */
static bool coincides(const dg_view *v, int64_t batch) {
  dimension all[3] = {{v->rows, v->row_stride}, {v->cols, v->col_stride}, {batch, v->batch_stride}};
  dimension d[3];
  int count = 0;
  int64_t reach = 0;
  for (int i = 0; i < 3; i++)
    if (all[i].extent > 1)
      d[count++] = (dimension){all[i].extent, all[i].stride < 0 ? -all[i].stride : all[i].stride};
  sort_by_stride(d, count);
  for (int i = 0; i < count; i++) {
    if (d[i].stride <= reach || d[i].stride == 0) {
      if (count != 2 || d[0].stride == 0) return true;
      const int64_t g = gcd(d[1].stride, d[0].stride);
      return d[1].extent > d[0].stride / g && d[0].extent > d[1].stride / g;
    }
    reach += (d[i].extent - 1) * d[i].stride;
  }
  return false;
}

/* Whether no element of x, spanning sx, shares a byte with an element of out. Exact where the spans
 * are apart, and where both views step through the same rows (columns of one buffer side by side);
 * otherwise views whose spans meet count as overlapping. */
static bool apart(const dg_view *x, span sx, const dg_view *out, span so, int64_t batch) {
  const uintptr_t bx = (uintptr_t)x->data, bo = (uintptr_t)out->data;
  if (bx + (uintptr_t)sx.high <= bo + (uintptr_t)so.low ||
      bo + (uintptr_t)so.high <= bx + (uintptr_t)sx.low)
    return true;
  const int64_t size_x = dg_dtype_bytes(x->dtype), size_o = dg_dtype_bytes(out->dtype);
  const bool by_rows = out->row_stride * size_o == x->row_stride * size_x;
  const bool by_cols = out->col_stride * size_o == x->col_stride * size_x;
  const int64_t pitch = by_rows ? out->row_stride * size_o : out->col_stride * size_o;
  const int64_t width_x = by_rows ? (x->cols - 1) * x->col_stride : (x->rows - 1) * x->row_stride;
  const int64_t width_o =
      by_rows ? (out->cols - 1) * out->col_stride : (out->rows - 1) * out->row_stride;
  if (batch > 1 && (out->batch_stride * size_o % (pitch ? pitch : 1) != 0 ||
                    x->batch_stride * size_x % (pitch ? pitch : 1) != 0))
    return false;
  if (!(by_rows || by_cols) || pitch <= 0 || width_x < 0 || width_o < 0) return false;
  const int64_t bytes_x = width_x * size_x + size_x, bytes_o = width_o * size_o + size_o;
  const int64_t offset = (int64_t)((bo > bx ? bo - bx : bx - bo) % (uintptr_t)pitch);
  const int64_t gap = bo > bx ? offset : (pitch - offset) % pitch; /* out's phase after x's */
  return gap >= bytes_x && gap + bytes_o <= pitch;
}

static dg_status check_apart(const char *name, const dg_view *x, span sx, const dg_view *out,
                             span so, int64_t batch) {
  if (sx.high == sx.low || so.high == so.low || apart(x, sx, out, so, batch)) return DG_OK;
  return dg_fail(DG_ERROR_ARGUMENT,
                 "out at %p overlaps %s at %p; the output must be memory of its own", out->data,
                 name, x->data);
}

static bool same_view(const dg_view *x, const dg_view *y) {
  return x->data == y->data && x->dtype == y->dtype && x->row_stride == y->row_stride &&
         x->col_stride == y->col_stride && x->batch_stride == y->batch_stride;
}

/* Strides along dimensions of one element mean nothing, nor do any of a view without elements: made
 * zero, so that nobody computes with them. */
static dg_view plain(dg_view v, int64_t batch) {
  const bool empty = v.rows == 0 || v.cols == 0 || batch == 0;
  if (empty || v.rows == 1) v.row_stride = 0;
  if (empty || v.cols == 1) v.col_stride = 0;
  if (empty || batch == 1) v.batch_stride = 0;
  return v;
}

static dg_operand operand(const dg_view *v) {
  return (dg_operand){.data = v->data,
                      .rs = v->row_stride,
                      .cs = v->col_stride,
                      .bs = v->batch_stride,
                      .dtype = v->dtype};
}

void dg_problem_exchange(dg_problem *p) {
  dg_operand *all[] = {&p->a, &p->b, &p->out, &p->start, &p->bias};
  for (int i = 0; i < 5; i++) {
    int64_t rs = all[i]->rs;
    all[i]->rs = all[i]->cs;
    all[i]->cs = rs;
  }
  dg_operand a = p->a;
  p->a = p->b;
  p->b = a;
  int64_t m = p->m;
  p->m = p->n;
  p->n = m;
}

/* How many matrices each view holds. */
typedef struct counts {
  int64_t a, b, out, start, bias;
} counts;

static dg_status check_all(const dg_gemm_args *g, const counts *c) {
  const int64_t most = c->out > c->b ? c->out : c->b;
  const int64_t m = g->out.rows, n = g->out.cols, k = g->a.cols;
  const bool tc16 = g->order == DG_ORDER_TC16;
  span a, b, out, start, bias;
  dg_status status = DG_OK;
#define CHECK(call) \
  if ((status = (call)) != DG_OK) return status
  if (g->order != DG_ORDER_FMA && !tc16)
    return dg_fail(DG_ERROR_ARGUMENT, "order is %d; it must be DG_ORDER_FMA or DG_ORDER_TC16",
                   (int)g->order);
  CHECK(check_dtype("a", g->a.dtype, tc16));
  CHECK(check_dtype("b", g->b.dtype, tc16));
  CHECK(check_dtype("out", g->out.dtype, false));
  if (g->a.dtype != g->b.dtype)
    return dg_fail(DG_ERROR_ARGUMENT, "a is %s and b is %s; both must have one dtype",
                   dtype_name(g->a.dtype), dtype_name(g->b.dtype));
  CHECK(check_view("a", &g->a, c->a, &a));
  CHECK(check_view("b", &g->b, c->b, &b));
  CHECK(check_view("out", &g->out, c->out, &out));
  CHECK(check_shape("a", &g->a, m, k, "[M,K]"));
  CHECK(check_shape("b", &g->b, k, n, "[K,N]"));
  if (k > LONGEST_SUM) /* broadcast views have any size; this keeps all arithmetic on K in range */
    return dg_fail(DG_ERROR_ARGUMENT, "K is %" PRId64 "; a sum has at most %" PRId64 " terms", k,
                   LONGEST_SUM);
  if (m && n && c->out && coincides(&g->out, c->out))
    return dg_fail(DG_ERROR_ARGUMENT,
                   "out has strides %" PRId64 ", %" PRId64 ", %" PRId64
                   " (batch, rows, columns), by which some of its elements coincide; every element "
                   "needs its own place",
                   g->out.batch_stride, g->out.row_stride, g->out.col_stride);
  CHECK(check_apart("a", &g->a, a, &g->out, out, most));
  CHECK(check_apart("b", &g->b, b, &g->out, out, most));
  if (g->start.data != NULL) {
    if (g->start.dtype != DG_F32)
      return dg_fail(DG_ERROR_ARGUMENT, "start.dtype is %s; a state to continue from must be F32",
                     dtype_name(g->start.dtype));
    CHECK(check_view("start", &g->start, c->start, &start));
    CHECK(check_shape("start", &g->start, m, n, "[M,N]"));
    if (!same_view(&g->start, &g->out))
      CHECK(check_apart("start", &g->start, start, &g->out, out, most));
  }
  if (g->bias.data != NULL) {
    CHECK(check_dtype("bias", g->bias.dtype, false));
    CHECK(check_view("bias", &g->bias, c->bias, &bias));
    CHECK(check_shape("bias", &g->bias, 1, n, "[1,N]"));
    CHECK(check_apart("bias", &g->bias, bias, &g->out, out, most));
  }
#undef CHECK
  return DG_OK;
}

/* The problem of checked sizes and views; batch is set by the caller. */
static dg_status make(const dg_gemm_args *args, const counts *c, dg_problem *p) {
  dg_gemm_args g = *args;
  g.a = plain(g.a, c->a);
  g.b = plain(g.b, c->b);
  g.out = plain(g.out, c->out);
  g.start = plain(g.start, c->start);
  g.bias = plain(g.bias, c->bias); /* one row, so its row stride is zero: it serves all rows */
  dg_status status = check_all(&g, c);
  if (status != DG_OK) return status;
  memset(p, 0, sizeof *p);
  p->m = g.out.rows;
  p->n = g.out.cols;
  p->k = g.a.cols;
  p->order = (int32_t)g.order;
  p->a = operand(&g.a);
  p->b = operand(&g.b);
  p->out = operand(&g.out);
  if (g.start.data != NULL) p->start = operand(&g.start);
  if (g.bias.data != NULL) p->bias = operand(&g.bias);
  return DG_OK;
}

dg_status dg_problem_make(const dg_gemm_args *args, dg_problem *p) {
  if (args == NULL) return dg_fail(DG_ERROR_ARGUMENT, "args is NULL; pass a dg_gemm_args");
  if (args->size != sizeof *args)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "args.size is %zu; it must be sizeof(dg_gemm_args) = %zu: begin with "
                   "dg_gemm_args_init()",
                   args->size, sizeof *args);
  if (args->batch < 0)
    return dg_fail(DG_ERROR_ARGUMENT, "batch is %" PRId64 "; it must be 0 or more", args->batch);
  const int64_t all = args->batch;
  const dg_status status = make(args, &(counts){all, all, all, all, all}, p);
  if (status == DG_OK) p->batch = all;
  return status;
}

static dg_status check_groups(const dg_groups *g) {
  if (g->count < 0)
    return dg_fail(DG_ERROR_ARGUMENT, "groups.count is %" PRId64 "; it must be 0 or more",
                   g->count);
  if (g->count >= INT64_MAX / 16)
    return dg_fail(DG_ERROR_ARGUMENT, "groups.count is %" PRId64 "; no memory holds its offsets",
                   g->count);
  if (g->offset_bytes != 4 && g->offset_bytes != 8)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "groups.offset_bytes is %d; it must be 4 (int32_t) or 8 (int64_t)",
                   g->offset_bytes);
  if (g->offsets == NULL)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "groups.offsets is NULL; %" PRId64 " groups need an array of %" PRId64
                   " offsets",
                   g->count, g->count + 1);
  return DG_OK;
}

dg_status dg_grouped_make(const dg_grouped_args *args, dg_grouped *g) {
  if (args == NULL) return dg_fail(DG_ERROR_ARGUMENT, "args is NULL; pass a dg_grouped_args");
  if (args->size != sizeof *args)
    return dg_fail(DG_ERROR_ARGUMENT,
                   "args.size is %zu; it must be sizeof(dg_grouped_args) = %zu: begin with "
                   "dg_grouped_args_init()",
                   args->size, sizeof *args);
  if (args->split != DG_SPLIT_M && args->split != DG_SPLIT_K)
    return dg_fail(DG_ERROR_ARGUMENT, "split is %d; it must be DG_SPLIT_M or DG_SPLIT_K",
                   (int)args->split);
  dg_status status = check_groups(&args->groups);
  if (status != DG_OK) return status;
  dg_gemm_args all = dg_gemm_args_init();
  all.order = args->order;
  all.a = args->a;
  all.b = args->b;
  all.out = args->out;
  all.start = args->start;
  all.bias = args->bias;
  const int64_t e = args->groups.count;
  const counts rows = {1, e, 1, 1, e}, sums = {1, 1, e, e, e};
  status = make(&all, args->split == DG_SPLIT_M ? &rows : &sums, &g->p);
  g->p.batch = 1;
  g->groups = e;
  g->offsets = args->groups.offsets;
  g->offset_bytes = args->groups.offset_bytes;
  g->split = (int32_t)args->split;
  return status;
}
