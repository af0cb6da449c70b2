/* What only a real GPU can show: stream capture, streams and threads at once, contexts, forked
 * children, pointers the device cannot use, and (with --sweep, for compute-sanitizer) every row on
 * small odd shapes in memory without a byte to spare.
 *
 *   test_gpu_device [--sweep] [--repeats N] [--device NAME]
 *
 * Without a GPU everything counts as skipped. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inputs.h"
#include "support.h"

typedef unsigned long long pointer; /* CUdeviceptr */

#define CUDA_FUNCTIONS(F)                                               \
  F(cuInit, (unsigned))                                                 \
  F(cuDevicePrimaryCtxRetain, (void **, int))                           \
  F(cuCtxCreate_v2, (void **, unsigned, int))                           \
  F(cuCtxDestroy_v2, (void *))                                          \
  F(cuCtxGetCurrent, (void **))                                         \
  F(cuCtxSetCurrent, (void *))                                          \
  F(cuCtxSynchronize, (void))                                           \
  F(cuMemAlloc_v2, (pointer *, size_t))                                 \
  F(cuMemFree_v2, (pointer))                                            \
  F(cuMemHostAlloc, (void **, size_t, unsigned))                        \
  F(cuMemFreeHost, (void *))                                            \
  F(cuMemsetD8Async, (pointer, unsigned char, size_t, void *))          \
  F(cuMemcpyHtoD_v2, (pointer, const void *, size_t))                   \
  F(cuMemcpyDtoHAsync_v2, (void *, pointer, size_t, void *))            \
  F(cuStreamCreate, (void **, unsigned))                                \
  F(cuStreamDestroy_v2, (void *))                                       \
  F(cuStreamSynchronize, (void *))                                      \
  F(cuStreamBeginCapture_v2, (void *, int))                             \
  F(cuStreamEndCapture, (void *, void **))                              \
  F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) \
  F(cuGraphLaunch, (void *, void *))                                    \
  F(cuGraphExecDestroy, (void *))                                       \
  F(cuGraphDestroy, (void *))

#define FIELD(name, parameters) static int(*name) parameters;
CUDA_FUNCTIONS(FIELD)
#undef FIELD

static const char *name = "cuda:0"; /* or a double's that runs on the same driver */
static void *context;               /* the primary one */
static int repeats = 1000;

static bool load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol;
  if (library == NULL) return false;
#define LOAD(name, parameters)      \
  symbol = dlsym(library, #name);   \
  if (symbol == NULL) return false; \
  memcpy(&name, &symbol, sizeof symbol);
  CUDA_FUNCTIONS(LOAD)
#undef LOAD
  return true;
}

/* Every call here must succeed; a test program has nothing to make good. */
#define CU(call) must(call, #call, __LINE__)
static void must(int status, const char *call, int line) {
  if (status == 0) return;
  printf("line %d: %s gave %d; last error: %s\n", line, call, status, dg_last_error());
  exit(1);
}

#define CHECK(condition) judge(condition, __LINE__, #condition)
static void judge(bool good, int line, const char *what) {
  if (good) test_passed();
  else test_failed("line %d, not true: %s; last error: %s", line, what, dg_last_error());
}

/* ---- products on the device ---- */

typedef struct product {
  int64_t m, n, k;
  pointer a, b, out;
  size_t bytes; /* of the output */
  unsigned char *expected, *got;
  dg_gemm_args args;
} product;

static void *random_matrix(int64_t count, dg_dtype dtype, input_class inputs, uint64_t seed) {
  input_state state = {.random = seed};
  const int64_t size = dtype == DG_F32 ? 4 : 2;
  char *data = malloc((size_t)(count * size) + 1);
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = input_next(&state, inputs, dtype);
    memcpy(data + i * size, &bits, (size_t)size); /* little-endian, as every GPU's host is */
  }
  return data;
}

static pointer upload(const void *data, size_t bytes) {
  pointer p = 0;
  CU(cuMemAlloc_v2(&p, bytes ? bytes : 1));
  if (bytes) CU(cuMemcpyHtoD_v2(p, data, bytes));
  return p;
}

static dg_view matrix(void *data, dg_dtype dtype, int64_t rows, int64_t cols, bool transposed) {
  return transposed ? dg_transposed(dg_row_major(data, dtype, cols, rows))
                    : dg_row_major(data, dtype, rows, cols);
}

/* A product with its expected bits, from the CPU's kernels where cpu is given, else from the
 * reference. */
static product make(dg_order order, int64_t m, int64_t n, int64_t k, dg_dtype in, dg_dtype out,
                    bool a_transposed, bool b_transposed, dg_device *cpu) {
  product x = {.m = m, .n = n, .k = k};
  const size_t in_bytes = in == DG_F32 ? 4 : 2;
  const input_class inputs = cpu ? INPUT_PLAIN : INPUT_WIDE;
  void *a = random_matrix(m * k, in, inputs, 1 + (uint64_t)m);
  void *b = random_matrix(k * n, in, inputs, 2 + (uint64_t)n);
  x.bytes = (size_t)(m * n) * (out == DG_F32 ? 4 : 2);
  x.expected = malloc(x.bytes + 1);
  x.got = malloc(x.bytes + 1);
  x.args = dg_gemm_args_init();
  x.args.order = order;
  x.args.a = matrix(a, in, m, k, a_transposed);
  x.args.b = matrix(b, in, k, n, b_transposed);
  x.args.out = dg_row_major(x.expected, out, m, n);
  must(cpu ? dg_gemm(cpu, &x.args) : dg_reference(&x.args), "the expected bits", __LINE__);
  x.a = upload(a, (size_t)(m * k) * in_bytes);
  x.b = upload(b, (size_t)(k * n) * in_bytes);
  CU(cuMemAlloc_v2(&x.out, x.bytes));
  x.args.a.data = (void *)(uintptr_t)x.a;
  x.args.b.data = (void *)(uintptr_t)x.b;
  x.args.out.data = (void *)(uintptr_t)x.out;
  free(a);
  free(b);
  return x;
}

static void drop(product *x) {
  CU(cuMemFree_v2(x->a));
  CU(cuMemFree_v2(x->b));
  CU(cuMemFree_v2(x->out));
  free(x->expected);
  free(x->got);
}

static void poison(const product *x, void *stream) {
  CU(cuMemsetD8Async(x->out, 0xa5, x->bytes, stream));
}

static bool same(product *x, void *stream) {
  CU(cuMemcpyDtoHAsync_v2(x->got, x->out, x->bytes, stream));
  CU(cuStreamSynchronize(stream));
  return memcmp(x->got, x->expected, x->bytes) == 0;
}

static void *new_stream(void) {
  void *stream;
  CU(cuStreamCreate(&stream, 1)); /* does not wait for the default stream */
  return stream;
}

/* ---- the tests ---- */

static const dg_order orders[] = {DG_ORDER_FMA, DG_ORDER_TC16};

static bool has(dg_device *device, dg_order order) {
  dg_kernel_info info;
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++)
    if (info.order == order && info.withheld == NULL) return true;
  test_skipped("no %s kernel on %s", order == DG_ORDER_FMA ? "fma" : "tc16",
               dg_device_name(device));
  return false;
}

/* Several products in one graph, in each capture mode, replayed on poisoned outputs. */
static void capture(dg_device *device, dg_device *cpu, dg_order order) {
  static const int64_t shapes[][3] = {
      {1, 512, 512}, {64, 1024, 512}, {333, 515, 77}, {512, 512, 512}};
  enum { COUNT = 4 };
  void *stream = new_stream(), *graph, *replayed = NULL;
  product all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] =
        make(order, shapes[i][0], shapes[i][1], shapes[i][2], DG_BF16, DG_F32, false, true, cpu);
  for (int mode = 0; mode < 3; mode++) {
    CU(cuStreamBeginCapture_v2(stream, mode));
    for (int i = 0; i < COUNT; i++) {
      all[i].args.stream = stream;
      CHECK(dg_gemm(device, &all[i].args) == DG_OK);
    }
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiateWithFlags(&replayed, graph, 0));
    for (int turn = 0; turn < 3; turn++) {
      for (int i = 0; i < COUNT; i++) poison(&all[i], stream);
      CU(cuGraphLaunch(replayed, stream));
      for (int i = 0; i < COUNT; i++) CHECK(same(&all[i], stream));
    }
    CU(cuGraphExecDestroy(replayed));
    CU(cuGraphDestroy(graph));
  }
  for (int i = 0; i < COUNT; i++) drop(&all[i]);
  CU(cuStreamDestroy_v2(stream));
}

typedef struct worker {
  dg_device *device;
  product *x;
  void *stream;
  int different;
} worker;

static void *work(void *data) {
  worker *w = data; /* no context is current in this thread when it calls dg_gemm first */
  w->x->args.stream = w->stream;
  for (int i = 0; i < repeats; i++) {
    if (dg_gemm(w->device, &w->x->args) != DG_OK) w->different++;
    CU(cuCtxSetCurrent(context));
    if (!same(w->x, w->stream)) w->different++;
    poison(w->x, w->stream);
    CU(cuCtxSetCurrent(NULL));
  }
  return NULL;
}

/* The same products again and again on two streams at once, while a third keeps the device busy. */
static void repeat_under_load(dg_device *device, dg_device *cpu, dg_order order) {
  product small = make(order, 8, 1024, 1024, DG_BF16, DG_BF16, false, true, cpu);
  product large = make(order, 300, 700, 512, DG_BF16, DG_F32, false, false, cpu);
  product load = make(order, 1024, 1024, 1024, DG_BF16, DG_F32, false, false, cpu);
  worker workers[2] = {{device, &small, new_stream(), 0}, {device, &large, new_stream(), 0}};
  pthread_t threads[2];
  void *busy = new_stream();
  load.args.stream = busy;
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &workers[i]);
  for (int i = 0; i < repeats; i++) CHECK(dg_gemm(device, &load.args) == DG_OK);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  CHECK(workers[0].different == 0);
  CHECK(workers[1].different == 0);
  CHECK(same(&load, busy));
  CU(cuStreamDestroy_v2(busy));
  for (int i = 0; i < 2; i++) CU(cuStreamDestroy_v2(workers[i].stream));
  drop(&small);
  drop(&large);
  drop(&load);
}

/* With no context and with another one current, the call works and leaves it as it was. */
static void contexts(dg_device *device, dg_device *cpu) {
  product x = make(DG_ORDER_FMA, 17, 65, 33, DG_BF16, DG_F32, false, false, cpu);
  void *other, *current;
  CU(cuCtxSetCurrent(NULL));
  CHECK(dg_gemm(device, &x.args) == DG_OK);
  CU(cuCtxGetCurrent(&current));
  CHECK(current == NULL);
  CU(cuCtxCreate_v2(&other, 0, 0));
  CHECK(dg_gemm(device, &x.args) == DG_OK);
  CU(cuCtxGetCurrent(&current));
  CHECK(current == other);
  CU(cuCtxDestroy_v2(other));
  CU(cuCtxSetCurrent(context));
  CU(cuCtxSynchronize());
  CHECK(same(&x, NULL));
  for (uintptr_t special = 1; special <= 2; special++) { /* the two default streams */
    memcpy(&x.args.stream, &special, sizeof special);
    poison(&x, x.args.stream);
    CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x, x.args.stream));
  }
  drop(&x);
}

static void pointers(dg_device *device, dg_device *cpu) {
  product x = make(DG_ORDER_FMA, 17, 65, 33, DG_BF16, DG_F32, false, false, cpu);
  dg_gemm_args wrong = x.args;
  void *pinned;
  poison(&x, NULL);
  wrong.b.data = x.expected; /* pageable host memory */
  CHECK(dg_gemm(device, &wrong) == DG_ERROR_ARGUMENT);
  CHECK(strstr(dg_last_error(), "pass device memory") != NULL);
  wrong = x.args;
  wrong.a.data = (char *)wrong.a.data + 1;
  CHECK(dg_gemm(device, &wrong) == DG_ERROR_ARGUMENT);
  CU(cuMemHostAlloc(&pinned, x.bytes, 0));
  x.args.out.data = pinned;
  CHECK(dg_gemm(device, &x.args) == DG_OK);
  CU(cuStreamSynchronize(NULL));
  CHECK(memcmp(pinned, x.expected, x.bytes) == 0);
  CU(cuMemFreeHost(pinned));
  drop(&x);
}

static void *open_and_compute(void *data) {
  const product *x = data;
  long failures = 0;
  for (int i = 0; i < 20; i++) {
    dg_device *device;
    if (dg_device_open(name, &device) != DG_OK) return (void *)1;
    failures += dg_gemm(device, &x->args) != DG_OK;
    dg_device_close(device);
  }
  return (void *)failures;
}

static void handles(dg_device *cpu) {
  product x = make(DG_ORDER_FMA, 17, 65, 33, DG_BF16, DG_F32, false, false, cpu);
  pthread_t threads[8];
  poison(&x, NULL);
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, open_and_compute, &x);
  for (int i = 0; i < 8; i++) {
    void *failures;
    pthread_join(threads[i], &failures);
    CHECK(failures == NULL);
  }
  CHECK(same(&x, NULL));
  drop(&x);
}

static void forked(dg_device *device, dg_device *cpu) {
  product x = make(DG_ORDER_FMA, 4, 4, 4, DG_BF16, DG_F32, false, false, cpu);
  int status;
  const pid_t child = fork();
  if (child == 0) {
    dg_device *mine;
    const bool good = dg_gemm(device, &x.args) == DG_ERROR_DEVICE &&
                      dg_device_open(name, &mine) == DG_ERROR_DEVICE &&
                      strstr(dg_last_error(), "forked") != NULL;
    _exit(good ? 0 : 1);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x, NULL));
  drop(&x);
}

static void grouped(dg_device *device, dg_order order);

/* Every row on small odd shapes; compute-sanitizer watches. Outputs are compared all the same. */
static void sweep(dg_device *device) {
  static const int64_t shapes[][3] = {{1, 1, 1},     {1, 17, 33},  {3, 1, 16},    {9, 31, 15},
                                      {17, 65, 1},   {65, 33, 72}, {129, 40, 64}, {8, 136, 160},
                                      {72, 264, 80}, {5, 7, 0}};
  static const dg_dtype dtypes[][2] = {{DG_BF16, DG_BF16}, {DG_F16, DG_F32}};
  static subject rows[MAX_SUBJECTS];
  const int count = subjects_open(name, NULL, rows);
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int layout = 0; layout < 3; layout++)
      for (int o = 0; o < 2; o++) {
        const int64_t *d = shapes[s];
        product x = make(orders[o], d[0], d[1], d[2], dtypes[layout % 2][0], dtypes[layout % 2][1],
                         layout == 2, layout == 1, NULL);
        for (int i = 0; i < count; i++) {
          if (rows[i].order != orders[o]) continue;
          poison(&x, NULL);
          const dg_status status = subject_run(&rows[i], &x.args);
          if (status == DG_ERROR_UNSUPPORTED) continue; /* a row for other shapes */
          if (status == DG_OK && same(&x, NULL)) test_passed();
          else
            test_failed("%s on %" PRId64 " x %" PRId64 " x %" PRId64 ", layout %d: %s",
                        rows[i].name, d[0], d[1], d[2], layout, status ? dg_last_error() : "bits");
        }
        drop(&x);
      }
  subjects_close(rows, count);
  for (int o = 0; o < 2; o++)
    if (has(device, orders[o])) grouped(device, orders[o]);
}

/* ---- grouped products ---- */

enum { GROUPS = 6, TOKENS = 203, IN = 77, OUT = 130 };

/* Groups of no rows, of one and of many; the first and last rows belong to nobody. */
static const int32_t narrow_offsets[GROUPS + 1] = {3, 3, 4, 70, 70, 151, 200};
static const int64_t wrong_offsets[GROUPS + 1] = {-5, 90, 20, 1000, 30, 1 << 30, 10};

static void grouped_product(dg_device *device, dg_order order, dg_split split, bool wide) {
  const bool by_rows = split == DG_SPLIT_M;
  const int64_t b_count = by_rows ? GROUPS * IN * OUT : TOKENS * OUT;
  const int64_t out_count = by_rows ? TOKENS * OUT : GROUPS * IN * OUT;
  void *a = random_matrix(TOKENS * IN, DG_BF16, INPUT_WIDE, 5);
  void *b = random_matrix(b_count, DG_BF16, INPUT_WIDE, 6);
  void *bias = random_matrix(GROUPS * OUT, DG_BF16, INPUT_WIDE, 7);
  product x = {.bytes = (size_t)out_count * 4, .got = malloc((size_t)out_count * 4)};
  int64_t wide_offsets[GROUPS + 1];
  for (int i = 0; i <= GROUPS; i++) wide_offsets[i] = narrow_offsets[i];
  x.expected = malloc(x.bytes);
  memset(x.expected, 0xa5, x.bytes);
  dg_grouped_args g = dg_grouped_args_init();
  g.order = order;
  g.split = split;
  g.groups.count = GROUPS;
  g.groups.offset_bytes = wide ? 8 : 4;
  g.groups.offsets = wide ? (const void *)wide_offsets : narrow_offsets;
  g.a = matrix(a, DG_BF16, TOKENS, IN, false);
  if (!by_rows) g.a = dg_transposed(g.a);
  g.b = by_rows ? dg_row_major(b, DG_BF16, IN, OUT) : dg_row_major(b, DG_BF16, TOKENS, OUT);
  g.out = by_rows ? dg_row_major(x.expected, DG_F32, TOKENS, OUT)
                  : dg_row_major(x.expected, DG_F32, IN, OUT);
  g.bias = dg_row_major(bias, DG_BF16, 1, OUT);
  must(dg_reference_grouped(&g), "the expected bits", __LINE__);
  x.a = upload(a, TOKENS * IN * 2);
  x.b = upload(b, (size_t)b_count * 2);
  const pointer biases = upload(bias, GROUPS * OUT * 2);
  const pointer offsets = upload(g.groups.offsets, (GROUPS + 1) * (size_t)g.groups.offset_bytes);
  CU(cuMemAlloc_v2(&x.out, x.bytes));
  g.a.data = (void *)(uintptr_t)x.a;
  g.b.data = (void *)(uintptr_t)x.b;
  g.bias.data = (void *)(uintptr_t)biases;
  g.out.data = (void *)(uintptr_t)x.out;
  g.groups.offsets = (void *)(uintptr_t)offsets;
  poison(&x, NULL);
  CHECK(dg_gemm_grouped(device, &g) == DG_OK);
  CHECK(same(&x, NULL));
  if (wide) { /* results without meaning, but no fault */
    CU(cuMemcpyHtoD_v2(offsets, wrong_offsets, sizeof wrong_offsets));
    CHECK(dg_gemm_grouped(device, &g) == DG_OK);
    CU(cuCtxSynchronize());
  }
  CU(cuMemFree_v2(biases));
  CU(cuMemFree_v2(offsets));
  free(a);
  free(b);
  free(bias);
  drop(&x);
}

static void grouped(dg_device *device, dg_order order) {
  for (int wide = 0; wide < 2; wide++) {
    grouped_product(device, order, DG_SPLIT_M, wide);
    grouped_product(device, order, DG_SPLIT_K, wide);
  }
}

static void everything(dg_device *device) {
  dg_device *cpu;
  must(dg_device_open("cpu", &cpu), "opening the CPU", __LINE__);
  for (int i = 0; i < 2; i++) {
    if (!has(device, orders[i])) continue;
    capture(device, cpu, orders[i]);
    grouped(device, orders[i]);
    repeat_under_load(device, cpu, orders[i]);
  }
  contexts(device, cpu);
  pointers(device, cpu);
  handles(cpu);
  forked(device, cpu);
  dg_device_close(cpu);
}

int main(int argc, char **argv) {
  dg_device *device;
  bool sweeping = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--sweep") == 0) sweeping = true;
    else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) repeats = atoi(argv[++i]);
    else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) name = argv[++i];
  }
  if (dg_device_open(name, &device) != DG_OK) {
    test_skipped("everything: %s", dg_last_error());
    counts_end();
    return 0;
  }
  if (!load()) {
    test_failed("libcuda.so.1 lacks a function that this test needs");
    return counts_end();
  }
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  if (sweeping) sweep(device);
  else everything(device);
  dg_device_close(device);
  return counts_end();
}
