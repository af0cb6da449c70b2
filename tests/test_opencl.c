/* The OpenCL back end's memory and queues on a real driver: cl_mem with offsets, sub-buffers, SVM
 * and plain memory, a caller's own contexts and queues, threads, and what must be refused. Expected
 * bits are the scalar reference's.
 *
 *   test_opencl [DEVICE]
 *
 * Without an OpenCL device everything counts as skipped. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/opencl/opencl.h"
#include "inputs.h"
#include "support.h"

#define MORE_FUNCTIONS(F)                                                                 \
  F(void *, clCreateSubBuffer, (void *, uint64_t, uint32_t, const void *, int *))         \
  F(void *, clCreateImage, (void *, uint64_t, const void *, const void *, void *, int *)) \
  F(void *, clSVMAlloc, (void *, uint64_t, size_t, uint32_t))                             \
  F(void, clSVMFree, (void *, void *))                                                    \
  F(int, clEnqueueSVMMap,                                                                 \
    (void *, uint32_t, uint64_t, void *, size_t, uint32_t, void *const *, void **))       \
  F(int, clEnqueueSVMUnmap, (void *, void *, uint32_t, void *const *, void **))           \
  F(int, clEnqueueReadBuffer,                                                             \
    (void *, void *, uint32_t, size_t, size_t, void *, uint32_t, void *const *, void **)) \
  F(int, clEnqueueWriteBuffer,                                                            \
    (void *, void *, uint32_t, size_t, size_t, const void *, uint32_t, void *const *, void **))

#define FIELD(result, name, parameters) static result(*name) parameters;
DG_OPENCL_FUNCTIONS(FIELD)
MORE_FUNCTIONS(FIELD)
#undef FIELD

enum { BLOCKING = 1, READ = 1, WRITE = 2 };
enum { READ_WRITE = 1, WRITE_ONLY = 2, READ_ONLY = 4, FINE_GRAIN = 1 << 10 };
enum { ANY_ORDER = 1 };

static const char *name = "opencl:0";
static dg_device *device;
static int device_index;
static void *ids[16], *id;
static uint32_t id_count;
static uint64_t svm; /* capabilities: 1 coarse, 2 fine */

static void give_up(const char *what, int status) {
  printf("%s gave %d; last error: %s\n", what, status, dg_last_error());
  exit(1);
}
#define MUST(call)                             \
  do {                                         \
    const int status_ = (call);                \
    if (status_ != 0) give_up(#call, status_); \
  } while (0)

#define CHECK(condition) judge(condition, __LINE__, #condition)
static void judge(bool good, int line, const char *what) {
  if (good) test_passed();
  else test_failed("line %d, not true: %s; last error: %s", line, what, dg_last_error());
}

/* The call is refused, and the sentence has the text. */
#define REFUSED(call, status, text)                 \
  do {                                              \
    CHECK((call) == (status));                      \
    CHECK(strstr(dg_last_error(), (text)) != NULL); \
  } while (0)

static bool load(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW), *symbol;
  if (library == NULL) return false;
#define LOAD(result, function, parameters) \
  symbol = dlsym(library, #function);      \
  if (symbol == NULL) return false;        \
  memcpy(&function, &symbol, sizeof symbol);
  DG_OPENCL_FUNCTIONS(LOAD)
  MORE_FUNCTIONS(LOAD)
#undef LOAD
  return true;
}

/* The devices, in the library's order. */
static void list(void) {
  enum { SVM_CAPABILITIES = 0x1053 };
  void *platforms[16];
  uint32_t count = 0;
  MUST(clGetPlatformIDs(16, platforms, &count));
  for (uint32_t i = 0; i < count && id_count < 16; i++) {
    uint32_t here = 0;
    if (clGetDeviceIDs(platforms[i], 0xffffffffu, 16 - id_count, ids + id_count, &here) == 0)
      id_count += here;
  }
  id = ids[device_index];
  if (clGetDeviceInfo(id, SVM_CAPABILITIES, sizeof svm, &svm, NULL) != 0) svm = 0;
}

typedef struct place {
  void *context, *queue;
} place;

static place new_place(void *of) {
  place x;
  int error;
  x.context = clCreateContext(NULL, 1, &of, NULL, NULL, &error);
  MUST(error);
  x.queue = clCreateCommandQueue(x.context, of, 0, &error);
  MUST(error);
  return x;
}

static void drop_place(place *x) {
  MUST(clFinish(x->queue));
  MUST(clReleaseCommandQueue(x->queue));
  MUST(clReleaseContext(x->context));
}

static void *new_buffer(const place *x, uint64_t flags, size_t bytes) {
  int error;
  void *mem = clCreateBuffer(x->context, flags, bytes, NULL, &error);
  MUST(error);
  return mem;
}

static char *attach(void *mem) {
  void *address;
  MUST(dg_opencl_attach(mem, &address));
  return address;
}

/* ---- products ---- */

typedef struct product {
  int64_t m, n, k;
  size_t a_bytes, b_bytes, out_bytes, start_bytes, bias_bytes;
  unsigned char *a, *b, *start, *bias, *expected;
  dg_gemm_args args; /* on host memory; out is expected */
} product;

static unsigned char *numbers(int64_t count, dg_dtype dtype, input_class inputs, uint64_t seed,
                              size_t *bytes) {
  input_state state = {.random = seed};
  const size_t size = dtype == DG_F32 ? 4 : 2;
  unsigned char *data = malloc((size_t)count * size + 1);
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = input_next(&state, inputs, dtype);
    memcpy(data + (size_t)i * size, &bits, size);
  }
  *bytes = (size_t)count * size;
  return data;
}

static product make(int64_t m, int64_t n, int64_t k, input_class inputs) {
  product x = {.m = m, .n = n, .k = k};
  x.a = numbers(m * k, DG_BF16, inputs, 1, &x.a_bytes);
  x.b = numbers(k * n, DG_BF16, inputs, 2, &x.b_bytes);
  x.start = numbers(m * n, DG_F32, inputs, 3, &x.start_bytes);
  x.bias = numbers(n, DG_BF16, inputs, 4, &x.bias_bytes);
  x.out_bytes = x.start_bytes;
  x.expected = malloc(x.out_bytes);
  x.args = dg_gemm_args_init();
  x.args.order = DG_ORDER_FMA;
  x.args.a = dg_row_major(x.a, DG_BF16, m, k);
  x.args.b = dg_row_major(x.b, DG_BF16, k, n);
  x.args.start = dg_row_major(x.start, DG_F32, m, n);
  x.args.bias = dg_row_major(x.bias, DG_BF16, 1, n);
  x.args.out = dg_row_major(x.expected, DG_F32, m, n);
  MUST(dg_reference(&x.args));
  return x;
}

static void drop(product *x) {
  free(x->a);
  free(x->b);
  free(x->start);
  free(x->bias);
  free(x->expected);
}

static void put(const place *x, void *mem, size_t at, const void *data, size_t bytes) {
  MUST(clEnqueueWriteBuffer(x->queue, mem, BLOCKING, at, bytes, data, 0, NULL, NULL));
}

/* Whether the buffer holds the expected bits at `at`, and what it held around them. */
static bool holds(const place *x, void *mem, size_t at, size_t size, const product *p) {
  unsigned char *all = malloc(size);
  MUST(clEnqueueReadBuffer(x->queue, mem, BLOCKING, 0, size, all, 0, NULL, NULL));
  bool good = memcmp(all + at, p->expected, p->out_bytes) == 0;
  for (size_t i = 0; i < size; i++)
    if ((i < at || i >= at + p->out_bytes) && all[i] != 0xa5) good = false;
  free(all);
  return good;
}

static void poison(const place *x, void *mem, size_t size) {
  unsigned char *all = malloc(size);
  memset(all, 0xa5, size);
  put(x, mem, 0, all, size);
  free(all);
}

/* ---- cl_mem ---- */

static const int64_t shapes[][3] = {{1, 1, 1},     {1, 200, 70}, {17, 65, 33},
                                    {130, 70, 64}, {33, 40, 1},  {9, 300, 128},
                                    {5, 7, 0},     {64, 64, 64}, {16, 64, 100}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Each operand in a buffer of its own at an offset, then all in one. */
static void buffers(const place *x, const product *p, size_t offset) {
  const size_t sizes[] = {p->a_bytes, p->b_bytes, p->start_bytes, p->bias_bytes, p->out_bytes};
  const void *data[] = {p->a, p->b, p->start, p->bias, NULL};
  void *mem[5];
  char *at[5];
  dg_gemm_args g = p->args;
  for (int i = 0; i < 5; i++) {
    const size_t size = offset + sizes[i] + 8;
    mem[i] = new_buffer(x, READ_WRITE, size);
    poison(x, mem[i], size);
    if (data[i] && sizes[i]) put(x, mem[i], offset, data[i], sizes[i]);
    at[i] = attach(mem[i]);
    MUST(clReleaseMemObject(mem[i])); /* the library has retained it */
  }
  g.a.data = at[0] + offset;
  g.b.data = at[1] + offset;
  g.start.data = at[2] + offset;
  g.bias.data = at[3] + offset;
  g.out.data = at[4] + offset;
  g.stream = x->queue;
  CHECK(dg_gemm(device, &g) == DG_OK);
  CHECK(holds(x, mem[4], offset, offset + p->out_bytes + 8, p));
  for (int i = 0; i < 5; i++) CHECK(dg_opencl_detach(at[i]) == DG_OK);
}

static void one_buffer(const place *x, const product *p) {
  size_t offsets[5], size = 0;
  const size_t sizes[] = {p->a_bytes, p->b_bytes, p->start_bytes, p->bias_bytes, p->out_bytes};
  for (int i = 0; i < 5; i++) {
    offsets[i] = size;
    size = (size + sizes[i] + 15) / 16 * 16;
  }
  void *mem = new_buffer(x, READ_WRITE, size);
  char *at = attach(mem);
  const void *data[] = {p->a, p->b, p->start, p->bias};
  for (int i = 0; i < 4; i++)
    if (sizes[i]) put(x, mem, offsets[i], data[i], sizes[i]);
  dg_gemm_args g = p->args;
  g.a.data = at + offsets[0];
  g.b.data = at + offsets[1];
  g.start.data = at + offsets[2];
  g.bias.data = at + offsets[3];
  g.out.data = at + offsets[4];
  g.stream = x->queue;
  unsigned char *got = malloc(p->out_bytes);
  CHECK(dg_gemm(device, &g) == DG_OK);
  MUST(clEnqueueReadBuffer(x->queue, mem, BLOCKING, offsets[4], p->out_bytes, got, 0, NULL, NULL));
  CHECK(memcmp(got, p->expected, p->out_bytes) == 0);
  g.out.data = g.start.data; /* continues in place */
  CHECK(dg_gemm(device, &g) == DG_OK);
  MUST(clEnqueueReadBuffer(x->queue, mem, BLOCKING, offsets[2], p->out_bytes, got, 0, NULL, NULL));
  CHECK(memcmp(got, p->expected, p->out_bytes) == 0);
  free(got);
  CHECK(dg_opencl_detach(at) == DG_OK);
  MUST(clReleaseMemObject(mem));
}

static void cl_mem_of(const place *x) {
  for (int i = 0; i < SHAPES; i++) {
    product p = make(shapes[i][0], shapes[i][1], shapes[i][2], i % 2 ? INPUT_WIDE : INPUT_TINY);
    buffers(x, &p, 0);
    buffers(x, &p, 20); /* the numbers are aligned for their type, not for vectors */
    one_buffer(x, &p);
    drop(&p);
  }
}

/* Sub-buffers as operands, and addresses inside them. */
static void sub_buffers(void) {
  enum { REGION = 0x1220, APART = 4096 };
  place x = new_place(id);
  product p = make(17, 40, 24, INPUT_WIDE);
  const size_t sizes[] = {p.a_bytes, p.b_bytes, p.start_bytes, p.bias_bytes, p.out_bytes + 64};
  const void *data[] = {p.a, p.b, p.start, p.bias, NULL};
  void *whole = new_buffer(&x, READ_WRITE, 5 * APART), *mem[5];
  char *at[5];
  poison(&x, whole, 5 * APART);
  for (int i = 0; i < 5; i++) {
    const size_t region[] = {(size_t)i * APART, sizes[i]};
    int error;
    mem[i] = clCreateSubBuffer(whole, READ_WRITE, REGION, region, &error);
    MUST(error);
    if (data[i]) put(&x, mem[i], 0, data[i], sizes[i]);
    at[i] = attach(mem[i]);
  }
  dg_gemm_args g = p.args;
  g.a.data = at[0];
  g.b.data = at[1];
  g.start.data = at[2];
  g.bias.data = at[3];
  g.out.data = at[4] + 64;
  g.stream = x.queue;
  CHECK(dg_gemm(device, &g) == DG_OK);
  CHECK(holds(&x, mem[4], 64, sizes[4], &p));
  g.out.data = at[4] + 68; /* the last element is outside */
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "attached");
  for (int i = 0; i < 5; i++) {
    CHECK(dg_opencl_detach(at[i]) == DG_OK);
    MUST(clReleaseMemObject(mem[i]));
  }
  MUST(clReleaseMemObject(whole));
  drop(&p);
  drop_place(&x);
}

/* ---- SVM and plain memory ---- */

static void *svm_copy(const place *x, bool fine, const void *data, size_t bytes) {
  char *memory = clSVMAlloc(x->context, READ_WRITE | (fine ? FINE_GRAIN : 0), bytes + 64, 0);
  if (memory == NULL) give_up("clSVMAlloc", 0);
  if (!fine) MUST(clEnqueueSVMMap(x->queue, BLOCKING, WRITE, memory, bytes + 64, 0, NULL, NULL));
  if (data) memcpy(memory + 64, data, bytes);
  else memset(memory, 0xa5, bytes + 64);
  if (!fine) MUST(clEnqueueSVMUnmap(x->queue, memory, 0, NULL, NULL));
  MUST(clFinish(x->queue));
  return memory;
}

static void shared(bool fine) {
  if ((svm & (fine ? 2 : 1)) == 0) {
    test_skipped("%s has no %s-grained SVM", name, fine ? "fine" : "coarse");
    return;
  }
  place x = new_place(id);
  for (int i = 0; i < SHAPES; i++) {
    product p = make(shapes[i][0], shapes[i][1], shapes[i][2], INPUT_WIDE);
    dg_gemm_args g = p.args;
    char *a = svm_copy(&x, fine, p.a, p.a_bytes), *b = svm_copy(&x, fine, p.b, p.b_bytes);
    char *start = svm_copy(&x, fine, p.start, p.start_bytes);
    char *bias = svm_copy(&x, fine, p.bias, p.bias_bytes);
    char *out = svm_copy(&x, fine, NULL, p.out_bytes);
    g.a.data = a + 64;
    g.b.data = b + 64;
    g.start.data = start + 64;
    g.bias.data = bias + 64;
    g.out.data = out + 64;
    g.stream = x.queue;
    CHECK(dg_gemm(device, &g) == DG_OK);
    if (fine) MUST(clFinish(x.queue));
    else MUST(clEnqueueSVMMap(x.queue, BLOCKING, READ, out, p.out_bytes + 64, 0, NULL, NULL));
    CHECK(memcmp(out + 64, p.expected, p.out_bytes) == 0);
    if (!fine) MUST(clEnqueueSVMUnmap(x.queue, out, 0, NULL, NULL));
    MUST(clFinish(x.queue));
    void *all[] = {a, b, start, bias, out};
    for (int j = 0; j < 5; j++) clSVMFree(x.context, all[j]);
    drop(&p);
  }
  drop_place(&x);
}

/* Plain memory, by the library's own queue and by a caller's. */
static void plain(void *queue) {
  for (int i = 0; i < SHAPES; i++) {
    product p = make(shapes[i][0], shapes[i][1], shapes[i][2], INPUT_TINY);
    unsigned char *out = malloc(p.out_bytes + 8);
    memset(out, 0xa5, p.out_bytes + 8);
    dg_gemm_args g = p.args;
    g.out.data = out + 4;
    g.stream = queue;
    CHECK(dg_gemm(device, &g) == DG_OK);
    CHECK(memcmp(out + 4, p.expected, p.out_bytes) == 0);
    CHECK(memcmp(out, "\xa5\xa5\xa5\xa5", 4) == 0);
    CHECK(memcmp(out + 4 + p.out_bytes, "\xa5\xa5\xa5\xa5", 4) == 0);
    memcpy(out, p.start, p.out_bytes); /* in place */
    g.start.data = g.out.data = out;
    CHECK(dg_gemm(device, &g) == DG_OK);
    CHECK(memcmp(out, p.expected, p.out_bytes) == 0);
    free(out);
    drop(&p);
  }
}

/* Plain inputs with a cl_mem output, and the other way round. */
static void mixed(const place *x) {
  product p = make(37, 70, 48, INPUT_WIDE);
  void *mem = new_buffer(x, READ_WRITE, p.out_bytes), *a = new_buffer(x, READ_ONLY, p.a_bytes);
  char *out = attach(mem), *left = attach(a);
  unsigned char *plain_out = malloc(p.out_bytes);
  poison(x, mem, p.out_bytes);
  put(x, a, 0, p.a, p.a_bytes);
  dg_gemm_args g = p.args;
  g.stream = x->queue;
  g.out.data = out;
  CHECK(dg_gemm(device, &g) == DG_OK);
  CHECK(holds(x, mem, 0, p.out_bytes, &p));
  g.out.data = plain_out;
  g.a.data = left;
  CHECK(dg_gemm(device, &g) == DG_OK);
  CHECK(memcmp(plain_out, p.expected, p.out_bytes) == 0);
  CHECK(dg_opencl_detach(out) == DG_OK && dg_opencl_detach(left) == DG_OK);
  MUST(clReleaseMemObject(mem));
  MUST(clReleaseMemObject(a));
  free(plain_out);
  drop(&p);
}

/* ---- grouped products ---- */

enum { GROUPS = 5, TOKENS = 150, DEPTH = 70, COLUMNS = 90, MOST = GROUPS * DEPTH * COLUMNS };

/* Groups of no rows, of one, and of more than a tile's; the first and last rows belong to nobody.
 */
static const int64_t first_rows[GROUPS + 1] = {2, 2, 3, 70, 137, 149};

typedef struct grouped {
  void *offsets;
  size_t sizes[6];
  void *data[6]; /* a, b, start, bias, offsets, what out is before */
  unsigned char *expected;
  dg_grouped_args args; /* on host memory */
} grouped;

static grouped make_grouped(dg_split split, int offset_bytes) {
  const bool by_k = split == DG_SPLIT_K;
  const int64_t outs = by_k ? MOST : TOKENS * COLUMNS;
  grouped x = {.args = dg_grouped_args_init()};
  dg_grouped_args *g = &x.args;
  x.data[0] = numbers(TOKENS * DEPTH, DG_BF16, INPUT_WIDE, 1, &x.sizes[0]);
  x.data[1] = numbers(by_k ? TOKENS * COLUMNS : MOST, DG_BF16, INPUT_WIDE, 2, &x.sizes[1]);
  x.data[2] = numbers(outs, DG_F32, INPUT_WIDE, 3, &x.sizes[2]);
  x.data[3] = numbers(GROUPS * COLUMNS, DG_F32, INPUT_PLAIN, 4, &x.sizes[3]);
  x.sizes[4] = (GROUPS + 1) * (size_t)offset_bytes;
  x.data[4] = x.offsets = malloc(x.sizes[4]);
  for (int i = 0; i <= GROUPS; i++) {
    const int32_t narrow = (int32_t)first_rows[i];
    if (offset_bytes == 8) memcpy((int64_t *)x.offsets + i, &first_rows[i], 8);
    else memcpy((int32_t *)x.offsets + i, &narrow, 4);
  }
  x.sizes[5] = x.sizes[2];
  x.data[5] = memset(malloc(x.sizes[5]), 0xa5, x.sizes[5]);
  x.expected = memset(malloc(x.sizes[5]), 0xa5, x.sizes[5]);
  g->order = DG_ORDER_FMA;
  g->split = split;
  g->groups = (dg_groups){GROUPS, x.offsets, offset_bytes};
  g->a = dg_row_major(x.data[0], DG_BF16, TOKENS, DEPTH);
  if (by_k) g->a = dg_transposed(g->a);
  g->b = dg_row_major(x.data[1], DG_BF16, by_k ? TOKENS : DEPTH, COLUMNS);
  g->start = dg_row_major(x.data[2], DG_F32, by_k ? DEPTH : TOKENS, COLUMNS);
  g->bias = dg_row_major(x.data[3], DG_F32, 1, COLUMNS);
  g->out = dg_row_major(x.expected, DG_F32, by_k ? DEPTH : TOKENS, COLUMNS);
  MUST(dg_reference_grouped(g));
  return x;
}

static void drop_grouped(grouped *x) {
  for (int i = 0; i < 6; i++) free(x->data[i]);
  free(x->expected);
}

static dg_grouped_args grouped_at(const grouped *x, char *const at[6], void *queue) {
  dg_grouped_args g = x->args;
  g.a.data = at[0];
  g.b.data = at[1];
  g.start.data = at[2];
  g.bias.data = at[3];
  g.groups.offsets = at[4];
  g.out.data = at[5];
  g.stream = queue;
  return g;
}

static void grouped_plain(const grouped *x, void *queue) {
  unsigned char *out = memset(malloc(x->sizes[5]), 0xa5, x->sizes[5]);
  dg_grouped_args g = x->args;
  g.out.data = out;
  g.stream = queue;
  CHECK(dg_gemm_grouped(device, &g) == DG_OK && memcmp(out, x->expected, x->sizes[5]) == 0);
  memset(out, 0xa5, x->sizes[5]);
  unsigned char *wrong = memset(malloc(x->sizes[4]), 0x11, x->sizes[4]);
  g.groups.offsets = wrong;
  REFUSED(dg_gemm_grouped(device, &g), DG_ERROR_ARGUMENT, "groups.offsets[0]");
  CHECK(memcmp(out, x->data[5], x->sizes[5]) == 0);
  g.groups.offsets = (char *)x->offsets + 1;
  REFUSED(dg_gemm_grouped(device, &g), DG_ERROR_ARGUMENT, "groups.offsets is");
  g.groups.offsets = x->offsets;
  g.groups.count = 0;
  CHECK(dg_gemm_grouped(device, &g) == DG_OK);
  free(wrong);
  free(out);
}

static void grouped_buffers(const grouped *x, const place *at_place) {
  static const int64_t wrong[GROUPS + 1] = {-5, 90, 20, 1000, 30, 1 << 30};
  void *mem[6];
  char *at[6];
  unsigned char *got = malloc(x->sizes[5]);
  for (int i = 0; i < 6; i++) {
    mem[i] = new_buffer(at_place, READ_WRITE, x->sizes[i]);
    put(at_place, mem[i], 0, x->data[i], x->sizes[i]);
    at[i] = attach(mem[i]);
  }
  dg_grouped_args g = grouped_at(x, at, at_place->queue);
  CHECK(dg_gemm_grouped(device, &g) == DG_OK);
  MUST(clEnqueueReadBuffer(at_place->queue, mem[5], BLOCKING, 0, x->sizes[5], got, 0, NULL, NULL));
  CHECK(memcmp(got, x->expected, x->sizes[5]) == 0);
  if (x->args.groups.offset_bytes == 8) { /* results without meaning, but no fault */
    put(at_place, mem[4], 0, wrong, sizeof wrong);
    CHECK(dg_gemm_grouped(device, &g) == DG_OK);
    MUST(clFinish(at_place->queue));
  }
  g.groups.offsets = at[4] + 8;
  REFUSED(dg_gemm_grouped(device, &g), DG_ERROR_ARGUMENT, "groups.offsets reaches outside");
  g = grouped_at(x, at, at_place->queue);
  if (g.split == DG_SPLIT_M) g.b.data = at[1] + 2; /* the last group is outside */
  else g.out.data = at[5] + 4;
  REFUSED(dg_gemm_grouped(device, &g), DG_ERROR_ARGUMENT, "reaches outside");
  for (int i = 0; i < 6; i++) {
    CHECK(dg_opencl_detach(at[i]) == DG_OK);
    MUST(clReleaseMemObject(mem[i]));
  }
  free(got);
}

static void grouped_shared(const grouped *x, const place *at_place) {
  char *at[6];
  if ((svm & 1) == 0) return;
  for (int i = 0; i < 6; i++)
    at[i] = (char *)svm_copy(at_place, false, x->data[i], x->sizes[i]) + 64;
  dg_grouped_args g = grouped_at(x, at, at_place->queue);
  CHECK(dg_gemm_grouped(device, &g) == DG_OK);
  MUST(clEnqueueSVMMap(at_place->queue, BLOCKING, READ, at[5], x->sizes[5], 0, NULL, NULL));
  CHECK(memcmp(at[5], x->expected, x->sizes[5]) == 0);
  MUST(clEnqueueSVMUnmap(at_place->queue, at[5], 0, NULL, NULL));
  MUST(clFinish(at_place->queue));
  for (int i = 0; i < 6; i++) clSVMFree(at_place->context, at[i] - 64);
}

static void grouped_products(const place *x) {
  for (int offset_bytes = 4; offset_bytes <= 8; offset_bytes += 4)
    for (int by_k = 0; by_k < 2; by_k++) {
      grouped g = make_grouped(by_k ? DG_SPLIT_K : DG_SPLIT_M, offset_bytes);
      grouped_plain(&g, by_k ? x->queue : NULL);
      grouped_buffers(&g, x);
      grouped_shared(&g, x);
      drop_grouped(&g);
    }
}

/* ---- contexts and threads ---- */

static void two_contexts(void) {
  place x = new_place(id), y = new_place(id);
  product p = make(37, 70, 48, INPUT_WIDE);
  for (int i = 0; i < 4; i++) {
    one_buffer(i % 2 ? &x : &y, &p);
    plain(i == 1 ? x.queue : NULL);
  }
  drop(&p);
  drop_place(&x);
  drop_place(&y);
}

typedef struct worker {
  place x;
  const product *p;
  int which, different;
} worker;

static void *work(void *data) {
  worker *w = data;
  const product *p = w->p;
  unsigned char *got = malloc(p->out_bytes);
  void *mem = new_buffer(&w->x, READ_WRITE, p->out_bytes);
  char *at = attach(mem);
  for (int i = 0; i < 40; i++) {
    dg_gemm_args g = p->args;
    const bool attached = (w->which + i) % 2;
    g.stream = attached || w->which == 0 ? w->x.queue : NULL;
    g.out.data = attached ? (void *)at : got;
    memset(got, 0xa5, p->out_bytes);
    w->different += dg_gemm(device, &g) != DG_OK;
    if (attached)
      MUST(clEnqueueReadBuffer(w->x.queue, mem, BLOCKING, 0, p->out_bytes, got, 0, NULL, NULL));
    w->different += memcmp(got, p->expected, p->out_bytes) != 0;
  }
  w->different += dg_opencl_detach(at) != DG_OK;
  MUST(clReleaseMemObject(mem));
  free(got);
  return NULL;
}

static void threads(void) {
  enum { THREADS = 4 };
  place one = new_place(id), other = new_place(id);
  product p[2] = {make(37, 70, 48, INPUT_WIDE), make(5, 200, 90, INPUT_TINY)};
  worker workers[THREADS];
  pthread_t all[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.x = i < 2 ? one : other, .p = &p[i % 2], .which = i};
    pthread_create(&all[i], NULL, work, &workers[i]);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(all[i], NULL);
    CHECK(workers[i].different == 0);
  }
  for (int i = 0; i < 2; i++) drop(&p[i]);
  drop_place(&one);
  drop_place(&other);
}

/* ---- what is refused ---- */

static void bad_attachments(const place *x) {
  void *address = &address;
  int here;
  void *mem = new_buffer(x, READ_WRITE, 64);
  REFUSED(dg_opencl_attach(NULL, &address), DG_ERROR_ARGUMENT, "mem is NULL");
  REFUSED(dg_opencl_attach(mem, NULL), DG_ERROR_ARGUMENT, "address is NULL");
  REFUSED(dg_opencl_detach(NULL), DG_ERROR_ARGUMENT, "no address that dg_opencl_attach() gave");
  REFUSED(dg_opencl_detach(&here), DG_ERROR_ARGUMENT, "no address that dg_opencl_attach() gave");
  char *at = attach(mem), *again = attach(mem);
  CHECK(at != again);
  REFUSED(dg_opencl_detach(at + 4), DG_ERROR_ARGUMENT, "no address that dg_opencl_attach() gave");
  CHECK(dg_opencl_detach(at) == DG_OK);
  REFUSED(dg_opencl_detach(at), DG_ERROR_ARGUMENT, "no address that dg_opencl_attach() gave");
  CHECK(dg_opencl_detach(again) == DG_OK);
  MUST(clReleaseMemObject(mem));

  static const uint32_t format[] = {0x10b5, 0x10de}; /* RGBA, float */
  struct {
    uint32_t type;
    size_t width, height, rest[7];
  } shape = {0x10f1, 16, 16, {0}};
  int error;
  void *image = clCreateImage(x->context, READ_WRITE, format, &shape, NULL, &error);
  if (error != 0) {
    test_skipped("%s has no images (%d)", name, error);
    return;
  }
  REFUSED(dg_opencl_attach(image, &address), DG_ERROR_ARGUMENT, "no buffer");
  CHECK(address == NULL);
  MUST(clReleaseMemObject(image));
}

static void bad_places(const place *x) {
  product p = make(9, 17, 12, INPUT_PLAIN);
  const size_t room = 4096;
  void *mem = new_buffer(x, READ_WRITE, room);
  char *at = attach(mem);
  dg_gemm_args g = p.args;
  g.stream = x->queue;
  poison(x, mem, room);

  /* Outside of an attached buffer: its end, its beginning, an address beyond it. */
  const size_t wrong[] = {room - p.out_bytes + 4, (size_t)0 - 4, room - 4};
  for (int i = 0; i < 3; i++) {
    g.out.data = at + wrong[i];
    REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "attached");
  }
  g = p.args;
  g.stream = x->queue;
  g.a.data = at + room - 2;
  g.out.data = at;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "attached");

  /* Rows that reach beyond, and rows that go back before the first byte. */
  g.a.data = p.args.a.data;
  g.out.row_stride = 2000;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "attached");
  g.out.row_stride = -17;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "attached");

  /* Elements between two numbers. */
  g = p.args;
  g.stream = x->queue;
  g.out.data = at + 2;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "out.data");
  g.out.data = at;
  g.a.data = (char *)g.a.data + 1;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "a.data");

  /* A buffer of another context: the library's own queue, a queue of another context. */
  g = p.args;
  g.out.data = at;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "context");
  place other = new_place(id);
  g.stream = other.queue;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "context");
  drop_place(&other);
  CHECK(dg_opencl_detach(at) == DG_OK);

  unsigned char untouched[16], bytes[16];
  memset(untouched, 0xa5, sizeof untouched);
  MUST(clEnqueueReadBuffer(x->queue, mem, BLOCKING, 0, 16, bytes, 0, NULL, NULL));
  CHECK(memcmp(bytes, untouched, 16) == 0);
  MUST(clReleaseMemObject(mem));

  /* Flags that forbid what the product does. */
  void *constant = new_buffer(x, READ_ONLY, room), *blind = new_buffer(x, WRITE_ONLY, room);
  char *at_constant = attach(constant), *at_blind = attach(blind);
  g.stream = x->queue;
  g.out.data = at_constant;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "CL_MEM_READ_ONLY");
  g.out.data = at_blind;
  CHECK(dg_gemm(device, &g) == DG_OK);
  g.start.data = at_blind;
  REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "CL_MEM_WRITE_ONLY");
  CHECK(dg_opencl_detach(at_constant) == DG_OK && dg_opencl_detach(at_blind) == DG_OK);
  MUST(clReleaseMemObject(constant));
  MUST(clReleaseMemObject(blind));
  drop(&p);
}

static void bad_queues(const place *x) {
  product p = make(9, 17, 12, INPUT_PLAIN);
  unsigned char *out = malloc(p.out_bytes);
  dg_gemm_args g = p.args;
  g.out.data = out;
  int error;
  void *any = clCreateCommandQueue(x->context, id, ANY_ORDER, &error);
  if (error == 0) {
    g.stream = any;
    REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "in order");
    MUST(clReleaseCommandQueue(any));
  } else {
    test_skipped("%s has no out-of-order queues (%d)", name, error);
  }
  for (uint32_t i = 0; i < id_count; i++) {
    if (ids[i] == id) continue;
    place other = new_place(ids[i]);
    g.stream = other.queue;
    REFUSED(dg_gemm(device, &g), DG_ERROR_ARGUMENT, "another device");
    drop_place(&other);
  }
  free(out);
  drop(&p);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1) name = argv[1];
  device_index = atoi(name + strcspn(name, "0123456789"));
  if (dg_device_open(name, &device) != DG_OK) {
    test_skipped("everything: %s", dg_last_error());
    return counts_end();
  }
  if (!load()) {
    test_skipped("everything: libOpenCL.so.1 is older than 2.0");
    return counts_end();
  }
  list();
  place x = new_place(id);
  cl_mem_of(&x);
  sub_buffers();
  shared(false);
  shared(true);
  plain(NULL);
  plain(x.queue);
  mixed(&x);
  grouped_products(&x);
  bad_attachments(&x);
  bad_places(&x);
  bad_queues(&x);
  two_contexts();
  threads();
  drop_place(&x);
  dg_device_close(device);
  return counts_end();
}
