/* Every kernel against the scalar reference, in the manner of checkasm: random products over all
 * operations, input classes, layouts and edge shapes. Operands lie between guard pages, inputs are
 * read-only and their gaps hold NaNs; the output's gaps and everything else in its memory must stay
 * as they were. Compared with memcmp only.
 * usage: check [--kernel PATTERN] [--seed N] [--cases N] [--case I]
 * A case depends on the seed and its number alone. Without --seed the clock gives one. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "guarded.h"
#include "inputs.h"
#include "support.h"
#include "verify.h"

typedef enum operation {
  FORWARD,
  FORWARD_NT,
  GRAD_A,
  GRAD_B,
  GRAD_B_T,
  GEMM,
  OPERATIONS
} operation;
static const char *const operation_names[OPERATIONS] = {"forward", "forward_nt", "grad_a",
                                                        "grad_b",  "grad_b_t",   "gemm"};

/* An operand in guarded memory. */
typedef struct operand {
  guarded memory;
  dg_view view;
  layout_kind kind;
} operand;

typedef struct product {
  uint64_t random;
  operation op;
  input_class inputs;
  dg_gemm_args args; /* of dg_gemm; the wrappers get the same views */
  operand a, b, start, bias, out, expected;
  unsigned char *before; /* the output's memory before a call */
  int hostile;           /* floating-point environment of the caller */
} product;

static dg_view shape(int64_t rows, int64_t cols, dg_dtype dtype) {
  return (dg_view){.rows = rows, .cols = cols, .dtype = dtype};
}

/* Memory and strides for a view of that shape. Odd addresses included: no alignment is promised. */
static operand place(product *p, dg_view view, layout_kind kind, bool at_end, size_t offset) {
  int64_t below, above;
  operand x = {.view = view, .kind = kind};
  const int64_t size = dtype_size(view.dtype);
  layout_strides(&x.view, p->args.batch, kind, &p->random, &below, &above);
  x.memory = guarded_make((size_t)((below + above + 1) * size), at_end, offset);
  x.view.data = x.memory.data + below * size;
  return x;
}

static void put(const dg_view *v, int64_t z, int64_t i, int64_t j, uint32_t bits) {
  unsigned char *at =
      (unsigned char *)v->data +
      dtype_size(v->dtype) * (z * v->batch_stride + i * v->row_stride + j * v->col_stride);
  const uint16_t half = (uint16_t)bits;
  if (v->dtype == DG_F32) memcpy(at, &bits, 4);
  else memcpy(at, &half, 2);
}

static void fill(product *p, const operand *x) {
  input_state state = {.random = random_next(&p->random)};
  for (int64_t z = 0; z < p->args.batch; z++)
    for (int64_t i = 0; i < x->view.rows; i++)
      for (int64_t j = 0; j < x->view.cols; j++)
        put(&x->view, z, i, j, input_next(&state, p->inputs, x->view.dtype));
}

static operand make_input(product *p, dg_view view) {
  const layout_kind kind = (layout_kind)random_below(&p->random, LAYOUTS);
  const bool at_end = random_below(&p->random, 2);
  operand x = place(p, view, kind, at_end, (size_t)random_below(&p->random, 64));
  memset(x.memory.data, 0xff, x.memory.size); /* NaN where nobody should read */
  fill(p, &x);
  guarded_read_only(&x.memory);
  return x;
}

/* Sizes around the edges of tiles and vectors, and around one kernel's own tile. */
static int64_t pick_size(product *p, int tile, int64_t limit) {
  static const int edges[] = {0,  1,  1,   2,   3,   4,   5,   7,   8,   9,   11,  12,  13,  15,
                              16, 17, 24,  25,  31,  32,  33,  47,  48,  49,  63,  64,  65,  96,
                              97, 99, 127, 128, 129, 130, 255, 256, 257, 258, 259, 383, 512, 513};
  int64_t size = edges[random_below(&p->random, sizeof edges / sizeof edges[0])];
  const int64_t way = random_below(&p->random, 4);
  if (way == 0) size = tile * (1 + random_below(&p->random, 3)) - 1 + random_below(&p->random, 3);
  if (way == 1) size = random_below(&p->random, 70);
  return size > limit ? 1 + random_below(&p->random, limit) : size;
}

/* Tiles that kernels have; not read off the kernels, so that a case is the same on every machine.
 */
static void pick_shape(product *p, int64_t *m, int64_t *n, int64_t *k) {
  static const int rows[] = {1, 2, 3, 4, 5, 6, 8, 12, 14, 16, 28, 32};
  static const int columns[] = {4, 8, 12, 16, 24, 32, 48, 64};
  enum { MULTIPLICATIONS = 150000 };
  const int mr = rows[random_below(&p->random, sizeof rows / sizeof rows[0])];
  const int nr = columns[random_below(&p->random, sizeof columns / sizeof columns[0])];
  *m = pick_size(p, mr, 600);
  *n = pick_size(p, nr, MULTIPLICATIONS / (*m ? *m : 1));
  const int64_t left = MULTIPLICATIONS / ((*m ? *m : 1) * (*n ? *n : 1));
  *k = random_below(&p->random, 8) ? pick_size(p, 16, left) : random_below(&p->random, left + 1);
}

/* The views of a product as its operation takes them: rows and columns exchanged where it will
 * exchange them back. */
static void make_operands(product *p) {
  int64_t m, n, k;
  const bool fma = p->args.order == DG_ORDER_FMA;
  const dg_dtype in =
      (dg_dtype)(DG_BF16 +
                 (random_below(&p->random, 3) ? 0 : 1 + random_below(&p->random, fma ? 2 : 1)));
  const dg_dtype out = (dg_dtype)(DG_BF16 + random_below(&p->random, 3));
  const bool a_turned = p->op == GRAD_B || p->op == GRAD_B_T;
  const bool b_turned = p->op == FORWARD_NT || p->op == GRAD_A, out_turned = p->op == GRAD_B_T;
  pick_shape(p, &m, &n, &k);
  p->a = make_input(p, a_turned ? shape(k, m, in) : shape(m, k, in));
  p->b = make_input(p, b_turned ? shape(n, k, in) : shape(k, n, in));
  p->out = place(p, out_turned ? shape(n, m, out) : shape(m, n, out),
                 (layout_kind)random_below(&p->random, LAYOUT_REPEATED),
                 random_below(&p->random, 2), (size_t)random_below(&p->random, 64));
  p->expected = p->out;
  p->expected.memory = guarded_make(p->out.memory.size, true, 0);
  p->expected.view.data =
      p->expected.memory.data + ((unsigned char *)p->out.view.data - p->out.memory.data);
  p->before = malloc(p->out.memory.size);
  if (p->before == NULL) abort();
  for (size_t i = 0; i < p->out.memory.size; i++) p->before[i] = (unsigned char)(0xa5 + i);
  p->args.a = a_turned ? dg_transposed(p->a.view) : p->a.view;
  p->args.b = b_turned ? dg_transposed(p->b.view) : p->b.view;
  p->args.out = out_turned ? dg_transposed(p->out.view) : p->out.view;
}

/* A state to continue from, its own or the output itself, and a bias. */
static void make_extras(product *p) {
  const int64_t m = p->args.out.rows, n = p->args.out.cols;
  const int64_t way = random_below(&p->random, 4);
  if (way == 0) {
    p->start = make_input(p, shape(m, n, DG_F32));
    p->args.start = p->start.view;
  } else if (way == 1 && p->args.out.dtype == DG_F32) {
    memcpy(p->out.memory.data, p->before, p->out.memory.size);
    fill(p, &p->out);
    memcpy(p->before, p->out.memory.data, p->out.memory.size);
    p->args.start = p->args.out;
  }
  if (random_below(&p->random, 3)) return;
  p->bias = make_input(p, shape(1, n, (dg_dtype)(DG_BF16 + random_below(&p->random, 3))));
  p->args.bias = p->bias.view;
}

static product make_product(uint64_t seed, int64_t number, dg_order order) {
  product p = {.random = seed + (uint64_t)number * 0x9e3779b97f4a7c15u};
  random_next(&p.random);
  p.op = (operation)(number % OPERATIONS);
  p.inputs = (input_class)(number / OPERATIONS % INPUTS);
  p.args = dg_gemm_args_init();
  p.args.order = order;
  if (p.op == GEMM && random_below(&p.random, 2)) p.args.batch = random_below(&p.random, 4);
  make_operands(&p);
  if (p.op == GEMM) make_extras(&p);
  p.hostile = random_below(&p.random, 4) ? 0 : (int)random_below(&p.random, 8);
  return p;
}

static void free_product(product *p) {
  operand *all[] = {&p->a, &p->b, &p->start, &p->bias, &p->out, &p->expected};
  for (int i = 0; i < 6; i++)
    if (all[i]->memory.mapping) guarded_free(&all[i]->memory);
  free(p->before);
}

static void compute_expected(product *p) {
  dg_gemm_args args = p->args;
  const bool in_place = args.start.data && args.start.data == args.out.data;
  args.out.data = p->expected.view.data;
  if (in_place) args.start.data = args.out.data;
  memcpy(p->expected.memory.data, p->before, p->out.memory.size);
  if (dg_reference(&args) != DG_OK) {
    test_failed("dg_reference: %s", dg_last_error());
    exit(counts_end());
  }
}

static dg_status call(const product *p, const subject *s) {
  dg_device *d = s->device;
  const dg_order order = p->args.order;
  switch (p->op) {
    case FORWARD: return dg_forward(d, NULL, order, p->a.view, p->b.view, p->out.view);
    case FORWARD_NT: return dg_forward_nt(d, NULL, order, p->a.view, p->b.view, p->out.view);
    case GRAD_A: return dg_grad_a(d, NULL, order, p->a.view, p->b.view, p->out.view);
    case GRAD_B: return dg_grad_b(d, NULL, order, p->a.view, p->b.view, p->out.view);
    case GRAD_B_T: return dg_grad_b_t(d, NULL, order, p->a.view, p->b.view, p->out.view);
    default: return dg_gemm(d, &p->args);
  }
}

/* Which element the byte at offset belongs to, or that it is none. */
static void locate(const product *p, size_t offset, char *text, size_t size) {
  const dg_view *v = &p->args.out;
  const int64_t width = dtype_size(v->dtype);
  const unsigned char *base = p->out.memory.data;
  for (int64_t z = 0; z < p->args.batch; z++)
    for (int64_t i = 0; i < v->rows; i++)
      for (int64_t j = 0; j < v->cols; j++) {
        const int64_t at = (const unsigned char *)v->data - base +
                           width * (z * v->batch_stride + i * v->row_stride + j * v->col_stride);
        if ((int64_t)offset < at || (int64_t)offset >= at + width) continue;
        uint32_t got = 0, want = 0;
        memcpy(&got, base + at, (size_t)width);
        memcpy(&want, p->expected.memory.data + at, (size_t)width);
        snprintf(text, size,
                 "element (%" PRId64 ", %" PRId64 ", %" PRId64 ") is %0*" PRIx32
                 ", the order gives %0*" PRIx32,
                 z, i, j, (int)width * 2, got, (int)width * 2, want);
        return;
      }
  snprintf(text, size, "byte %zu beside the elements was written", offset);
}

static void describe(const product *p, char *text, size_t size) {
  static const char *const types[] = {"", "bf16", "f16", "f32"};
  snprintf(text, size,
           "%s %" PRId64 "x%" PRId64 "x%" PRId64 " batch %" PRId64
           " %s->%s %s inputs, a %s, b %s, "
           "out %s%s%s",
           operation_names[p->op], p->args.out.rows, p->args.out.cols, p->args.a.cols,
           p->args.batch, types[p->args.a.dtype], types[p->args.out.dtype], input_names[p->inputs],
           layout_names[p->a.kind], layout_names[p->b.kind], layout_names[p->out.kind],
           p->args.start.data ? ", start" : "", p->args.bias.data ? ", bias" : "");
}

/* What became of a kernel in one operation and input class: a test of its own. */
typedef struct verdict {
  int64_t cases, unfit;
  bool failed;
} verdict;

static void run_case(product *p, const subject *s, verdict *v, uint64_t seed, int64_t number) {
  char what[256], where[160];
  memcpy(p->out.memory.data, p->before, p->out.memory.size);
  dg_device_set_threads(s->device, 1 + (int)(number % 5));
  hostile_set(p->hostile);
  const dg_status status = call(p, s);
  hostile_reset();
  if (status == DG_ERROR_UNSUPPORTED) {
    v->unfit++;
    if (memcmp(p->out.memory.data, p->before, p->out.memory.size) == 0) return;
    test_failed("%s wrote to the output of a call it refused", s->name);
    return;
  }
  v->cases++;
  size_t at = 0;
  if (status == DG_OK &&
      memcmp(p->out.memory.data, p->expected.memory.data, p->out.memory.size) == 0)
    return;
  v->failed = true;
  describe(p, what, sizeof what);
  if (status == DG_OK) {
    while (p->out.memory.data[at] == p->expected.memory.data[at]) at++;
    locate(p, at, where, sizeof where);
  } else snprintf(where, sizeof where, "%.150s", dg_last_error());
  printf("%s, --seed %" PRIu64 " --case %" PRId64 ": %s: %s\n", s->name, seed, number, what, where);
}

static void run_order(dg_order order, const subject *all, int count, uint64_t seed, int64_t first,
                      int64_t past) {
  static verdict verdicts[MAX_SUBJECTS][OPERATIONS][INPUTS];
  subject list[MAX_SUBJECTS];
  int matching = 0;
  for (int i = 0; i < count; i++)
    if (all[i].order == order) list[matching++] = all[i];
  memset(verdicts, 0, sizeof verdicts);
  for (int64_t number = first; matching && number < past; number++) {
    product p = make_product(seed, number, order);
    compute_expected(&p);
    for (int i = 0; i < matching; i++)
      run_case(&p, &list[i], &verdicts[i][p.op][p.inputs], seed, number);
    free_product(&p);
  }
  for (int i = 0; i < matching; i++) {
    int64_t cases = 0, unfit = 0;
    for (int op = 0; op < OPERATIONS; op++)
      for (int in = 0; in < INPUTS; in++) {
        const verdict *v = &verdicts[i][op][in];
        cases += v->cases;
        unfit += v->unfit;
        if (v->failed)
          test_failed("%s: %s of %s", list[i].name, operation_names[op], input_names[in]);
        else if (v->cases) test_passed();
      }
    printf("%s: %" PRId64 " products, %" PRId64 " that it does not take\n", list[i].name, cases,
           unfit);
    if (cases == 0 && past - first > 1000) test_failed("%s never ran", list[i].name);
  }
}

int main(int argc, char **argv) {
  static const struct option options[] = {
      {"device", required_argument, NULL, 'd'}, {"kernel", required_argument, NULL, 'k'},
      {"seed", required_argument, NULL, 's'},   {"cases", required_argument, NULL, 'n'},
      {"case", required_argument, NULL, 'c'},   {0}};
  const char *kernel = NULL;
  uint64_t seed = (uint64_t)time(NULL);
  int64_t first = 0, past = 3000;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (option) {
      case 'k': kernel = optarg; break;
      case 's': seed = strtoull(optarg, NULL, 0); break;
      case 'n': past = strtoll(optarg, NULL, 0); break;
      case 'c':
        first = strtoll(optarg, NULL, 0);
        past = first + 1;
        break;
      default: return 2;
    }
  subject list[MAX_SUBJECTS];
  const int count = subjects_open("cpu", kernel, list);
  printf("seed %" PRIu64 "\n", seed);
  run_order(DG_ORDER_FMA, list, count, seed, first, past);
  run_order(DG_ORDER_TC16, list, count, seed, first, past);
  subjects_close(list, count);
  return counts_end();
}
