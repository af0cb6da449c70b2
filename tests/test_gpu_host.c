/* The GPU host layer against a test double of the driver: what it asks of the driver, what it
 * leaves behind, and what it says when any call fails. Each case runs in a child of its own, since
 * a driver is loaded once per process.
 *
 * Compiled once per platform with FAKE_NAMES, FAKE_LIBRARY and FAKE_DEVICE; the double must be the
 * first library of that name in LD_LIBRARY_PATH. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "detgemm.h"
#include "fake_driver.h"
#include "native_kernels.h"
#include "on_cpu.h"
#include FAKE_NAMES

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static fake_driver *fake;
static int (*init)(unsigned flags);
static int (*retain)(void **context, int device);
static int (*drop)(int device);
static int (*push)(void *context);
static int (*pop)(void **context);
static int (*get)(void **context);
static int (*fake_alloc)(void **data, size_t bytes);
static int (*fake_free)(void *data);
static int (*copy_in)(void *to, const void *from, size_t bytes);
static int (*stream_create)(void **stream, unsigned flags);
static int (*stream_destroy)(void *stream);

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "%s%s\n", what, why);
  exit(1);
}

static void find(void *library, const char *name, void *field) {
  void *address = dlsym(library, name);
  if (address == NULL) give_up("the double has no ", name);
  memcpy(field, &address, sizeof address);
}

static void load_double(void) {
  void *library = dlopen(FAKE_LIBRARY, RTLD_NOW);
  if (library == NULL) give_up("", dlerror());
  find(library, "fake_driver_state", &fake);
  find(library, TEXT(FAKE_init), &init);
  find(library, TEXT(FAKE_context_retain), &retain);
  find(library, TEXT(FAKE_context_release), &drop);
  find(library, TEXT(FAKE_context_push), &push);
  find(library, TEXT(FAKE_context_pop), &pop);
  find(library, TEXT(FAKE_context_get), &get);
  find(library, TEXT(FAKE_alloc), &fake_alloc);
  find(library, TEXT(FAKE_release), &fake_free);
  find(library, TEXT(FAKE_copy_in), &copy_in);
  find(library, TEXT(FAKE_stream_create), &stream_create);
  find(library, TEXT(FAKE_stream_destroy), &stream_destroy);
}

static dg_device *cpu;

static void compute(const fake_launch *launch) { compute_on_cpu(cpu, launch->parameters[0]); }

/* ---- a case in a child; it says what went wrong and exits with 1 ---- */

#define CHECK(condition) \
  if (!(condition)) report(__LINE__, #condition)
#define CHECK_TEXT(text) \
  if (strstr(dg_last_error(), text) == NULL) report(__LINE__, "the error text has \"" text "\"")

static void report(int line, const char *what) {
  fprintf(stderr,
          "line %d, not true: %s\n  last error: %s\n  misuse: %s\n  failed on purpose: %s\n", line,
          what, dg_last_error(), fake->misuse, fake->failed_call ? fake->failed_call : "-");
  exit(1);
}

/* The child's exit status: 0 good, 2 for "no more calls to fail". */
static int in_child(void (*body)(int), int argument) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    load_double();
    setenv("OMP_NUM_THREADS", "1", 1);
    if (dg_device_open("cpu", &cpu) != DG_OK) give_up("", dg_last_error());
    fake->execute = compute;
    body(argument);
    CHECK(fake->misuse[0] == '\0');
    exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status)) fail_msg("case %d died of signal %d", argument, WTERMSIG(status));
  if (WEXITSTATUS(status) == 1) fail_msg("case %d failed", argument);
  return WEXITSTATUS(status);
}

static dg_device *open_device(const char *name) {
  dg_device *device;
  CHECK(dg_device_open(name, &device) == DG_OK);
  return device;
}

static bool clean(void) {
  return fake->retained == 0 && fake->modules == 0 && fake->allocations == 0;
}

/* ---- a small product on the device ---- */

enum { M = 8, N = 24, K = 32, BYTES = 4096 };

typedef struct product {
  void *context, *a, *b, *out;
  dg_gemm_args args;
  uint32_t expected[M * N];
} product;

static void fill(uint16_t *data, int count) {
  for (int i = 0; i < count; i++) data[i] = (uint16_t)(0x3f80 + i % 97 - (i % 5 ? 0 : 0x8000));
}

static void make(product *x, dg_order order) {
  uint16_t a[M * K], b[K * N];
  fill(a, M * K);
  fill(b, K * N);
  CHECK(init(0) == 0 && retain(&x->context, 0) == 0 && push(x->context) == 0);
  CHECK(fake_alloc(&x->a, BYTES) == 0 && fake_alloc(&x->b, BYTES) == 0 &&
        fake_alloc(&x->out, BYTES) == 0);
  CHECK(copy_in(x->a, a, sizeof a) == 0 && copy_in(x->b, b, sizeof b) == 0);
  CHECK(pop(&x->context) == 0);
  memset(x->out, 0xa5, BYTES);
  x->args = dg_gemm_args_init();
  x->args.order = order;
  x->args.a = dg_row_major(a, DG_BF16, M, K);
  x->args.b = dg_row_major(b, DG_BF16, K, N);
  x->args.out = dg_row_major(x->expected, DG_F32, M, N);
  CHECK(dg_reference(&x->args) == DG_OK);
  x->args.a.data = x->a;
  x->args.b.data = x->b;
  x->args.out.data = x->out;
}

/* Puts b at another address of its memory. */
static bool copy_in_at(const product *x, void *to) {
  uint16_t b[K * N];
  void *context;
  fill(b, K * N);
  return push(x->context) == 0 && copy_in(to, b, sizeof b) == 0 && pop(&context) == 0;
}

static bool same(const product *x) { return memcmp(x->out, x->expected, sizeof x->expected) == 0; }

static bool untouched(const product *x) {
  const unsigned char *out = x->out;
  for (int i = 0; i < BYTES; i++)
    if (out[i] != 0xa5) return false;
  return true;
}

static void drop_product(product *x) {
  void *context;
  CHECK(push(x->context) == 0);
  CHECK(fake_free(x->a) == 0 && fake_free(x->b) == 0 && fake_free(x->out) == 0);
  CHECK(pop(&context) == 0 && drop(0) == 0);
}

/* ---- opening ---- */

/* A row for other architectures of the platform. */
static bool of_another(const dg_kernel_info *info) {
  return info->withheld && strncmp(info->withheld, "needs ", 6) == 0;
}

static void opens(int unused) {
  (void)unused;
  dg_kernel_info info;
  void *context;
  CHECK(dg_device_count() == 3);
  CHECK(strcmp(dg_device_name_at(1), FAKE_DEVICE ":0") == 0);
  CHECK(strcmp(dg_device_name_at(2), FAKE_DEVICE ":1") == 0);
  dg_device *device = open_device(FAKE_DEVICE);
  CHECK(strcmp(dg_device_name(device), FAKE_DEVICE ":0") == 0);
  CHECK(strstr(dg_device_description(device), "Test double 0") != NULL);
  CHECK(dg_kernel_count(device) > 0);
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++)
    if (info.withheld && !of_another(&info)) report(__LINE__, info.withheld);
  CHECK(get(&context) == 0 && context == NULL);
  CHECK(fake->allocations == 0);

  const int modules = fake->modules, calls = fake->launches;
  dg_device *again = open_device(FAKE_DEVICE ":0"), *other = open_device(FAKE_DEVICE ":1");
  CHECK(fake->modules == 2 * modules);
  CHECK(fake->launches == 2 * calls); /* the probe ran once per device */
  dg_device_close(device);
  CHECK(fake->modules == 2 * modules);
  dg_device_close(again);
  CHECK(fake->modules == modules);
  dg_device_close(other);
  CHECK(clean());
  device = open_device(FAKE_DEVICE);
  CHECK(fake->launches == 2 * calls);
  dg_device_close(device);
  CHECK(clean());
}

static void no_such_device(int unused) {
  (void)unused;
  dg_device *device;
  CHECK(dg_device_open(FAKE_DEVICE ":2", &device) == DG_ERROR_DEVICE && device == NULL);
  CHECK_TEXT("sees 2");
  CHECK(clean());
}

static void no_devices(int unused) {
  (void)unused;
  dg_device *device;
  fake->devices = 0;
  CHECK(dg_device_count() == 1);
  CHECK(dg_device_open(FAKE_DEVICE, &device) == DG_ERROR_DEVICE);
  CHECK_TEXT("NO_DEVICE");
  CHECK(clean());
}

/* Calls whose failure cannot be made good, and leaves their object alive. */
static bool is_cleanup(const char *call) {
  static const char *const calls[] = {TEXT(FAKE_release), TEXT(FAKE_module_unload),
                                      TEXT(FAKE_context_release), TEXT(FAKE_context_pop)};
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
    if (strcmp(call, calls[i]) == 0) return true;
  return false;
}

/* Calls made to decorate, and the first ones of the process, whose failure means "no driver". */
static bool is_optional(const char *call) {
  return strcmp(call, TEXT(FAKE_version)) == 0 || strcmp(call, TEXT(FAKE_device_name)) == 0;
}

static bool is_loading(const char *call) {
  return strcmp(call, TEXT(FAKE_init)) == 0 || strcmp(call, TEXT(FAKE_device_count)) == 0;
}

static void check_failure(dg_status status, int error) {
  const char *call = fake->failed_call;
  /* that answer of the driver means an unknown pointer: ours is, or none is asked about any more */
  if (error == 1 && strstr(call, "PointerGet") && status != DG_ERROR_DEVICE) return;
  if (status == DG_OK) {
    /* a launch that the device refuses withholds the row alone */
    CHECK(is_cleanup(call) || is_optional(call) || (error == 1 && strstr(call, "aunch")) ||
          (error == 1 && strstr(call, "Map")));
    return;
  }
  switch (error) {
    case 1: CHECK_TEXT("INVALID_VALUE"); break;
    case 2: CHECK(is_loading(call) || status == DG_ERROR_MEMORY); break;
    case 200: CHECK_TEXT("INVALID_IMAGE"); break;
    case 700: CHECK_TEXT("ILLEGAL_ADDRESS"); break;
  }
  CHECK(status == DG_ERROR_MEMORY || status == DG_ERROR_DEVICE ||
        (error == 1 && status == DG_ERROR_UNSUPPORTED));
}

static const struct {
  int error;
  bool sticky;
} kinds[] = {{1, false}, {2, false}, {200, false}, {700, true}};
enum { KINDS = 4 };

static void compute_nothing(const fake_launch *launch) { (void)launch; }

/* Call number n of opening fails. One row to probe is enough, and on one product. */
static void open_fails(int n) {
  dg_device *device;
  const int kind = n % KINDS;
  void *context;
  setenv("DETGEMM_KERNEL", "fma_1x1_*", 1);
  fake->execute = compute_nothing;
  fake->fail_at = n / KINDS;
  fake->fail_with = kinds[kind].error;
  fake->sticky = kinds[kind].sticky;
  const dg_status status = dg_device_open(FAKE_DEVICE, &device);
  if (fake->failed_call == NULL) _exit(2); /* nothing was tested: no search for leaks */
  CHECK((status == DG_OK) == (device != NULL));
  check_failure(status, fake->fail_with);
  dg_device_close(device);
  const bool cleanup = is_cleanup(fake->failed_call), sticky = fake->sticky;
  fake->fail_at = -1;
  if (!sticky && !cleanup) CHECK(clean());
  if (sticky || cleanup || is_loading(fake->failed_call)) return;
  CHECK(get(&context) == 0 && context == NULL);
  dg_device_close(open_device(FAKE_DEVICE)); /* and it works when the trouble is over */
  CHECK(clean());
}

/* Runs cases 0, 1, ... until each of the `sequences` interleaved sequences has ended. */
static void sweep(void (*body)(int), int sequences) {
  int done[2 * KINDS] = {0}, left = sequences, n = 0;
  for (; left > 0; n++) {
    if (done[n % sequences]) continue;
    done[n % sequences] = in_child(body, n) == 2;
    left -= done[n % sequences];
  }
  assert_true(n > 2 * sequences);
}

/* ---- computing ---- */

static void computes(int order) {
  product x;
  void *context;
  make(&x, (dg_order)order);
  dg_device *device = open_device(FAKE_DEVICE);
  CHECK(dg_gemm(device, &x.args) == DG_OK);
  CHECK(same(&x));
  CHECK(get(&context) == 0 && context == NULL);
  dg_device_close(device);
  drop_product(&x);
  CHECK(clean());
}

static void every_row_computes(int order) {
  dg_kernel_info info, used;
  char names[64][64];
  int count = 0;
  product x;
  make(&x, (dg_order)order);
  dg_device *device = open_device(FAKE_DEVICE);
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++)
    if ((int)info.order == order) snprintf(names[count++], 64, "%s", info.name);
  for (int i = 0; i < count; i++) {
    setenv("DETGEMM_KERNEL", names[i], 1);
    dg_device *forced = open_device(FAKE_DEVICE);
    memset(x.out, 0xa5, BYTES);
    const dg_status status = dg_gemm(forced, &x.args);
    if (status == DG_OK) {
      CHECK(same(&x));
      CHECK(dg_gemm_kernel(forced, &x.args, &used) == DG_OK && strcmp(used.name, names[i]) == 0);
    } else {
      CHECK(status == DG_ERROR_UNSUPPORTED); /* a row for other shapes */
    }
    dg_device_close(forced);
  }
  dg_device_close(device);
  drop_product(&x);
  CHECK(clean());
}

/* Call number n of a product fails: one order in the even cases, the other in the odd ones. */
static void call_fails(int n) {
  product x;
  void *context;
#ifdef FAKE_ONLY_FMA
  const bool tc16 = false;
#else
  const bool tc16 = n % 2;
#endif
  const dg_order order = tc16 ? DG_ORDER_TC16 : DG_ORDER_FMA;
  setenv("DETGEMM_KERNEL", tc16 ? "tc16_stream16_*" : "fma_1x1_*", 1); /* less to probe */
  n /= 2;
  make(&x, order);
  dg_device *device = open_device(FAKE_DEVICE);
  fake->fail_at = n / KINDS;
  fake->fail_with = kinds[n % KINDS].error;
  fake->sticky = kinds[n % KINDS].sticky;
  const dg_status status = dg_gemm(device, &x.args);
  if (fake->failed_call == NULL) _exit(2); /* nothing was tested: no search for leaks */
  check_failure(status, fake->fail_with);
  fake->fail_at = -1;
  CHECK(status == DG_OK ? same(&x) : untouched(&x));
  const bool cleanup = is_cleanup(fake->failed_call);
  if (!cleanup) {
    CHECK(get(&context) == 0 && context == NULL);
    memset(x.out, 0xa5, BYTES);
    CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x));
  }
  dg_device_close(device);
  drop_product(&x);
  if (!cleanup) CHECK(clean());
}

/* What is remembered of a product serves other addresses, alignments, shapes and handles. */
static void remembers(int order) {
  product x, y;
  make(&x, (dg_order)order);
  make(&y, (dg_order)order);
  dg_device *device = open_device(FAKE_DEVICE), *other = open_device(FAKE_DEVICE ":0");
  for (int turn = 0; turn < 12; turn++) {
    dg_gemm_args g = x.args;
    const product *out = turn % 2 ? &y : &x;
    if (turn % 3 == 1) g.b.data = y.b; /* the same numbers */
    if (turn % 3 == 2) g.a.data = y.a;
    g.out.data = out->out;
    if (turn % 4 == 3) { /* the first row and other rows' distance alone */
      g.a.rows = g.out.rows = M / 2;
      g.a.row_stride = 2 * K;
      g.out.row_stride = 2 * N;
    }
    CHECK(dg_gemm(turn % 5 ? device : other, &g) == DG_OK && same(out));
    if (turn == 6) { /* an unaligned address of b, for which other kernels may be needed */
      g.b.data = (char *)y.b + 2;
      CHECK(copy_in_at(&y, g.b.data) && dg_gemm(device, &g) == DG_OK && same(out));
      CHECK(copy_in_at(&y, y.b));
    }
  }
  dg_device_close(device);
  dg_device_close(other);
  drop_product(&x);
  drop_product(&y);
}

static void leaves_the_context(int unused) {
  (void)unused;
  product x;
  void *mine, *context;
  make(&x, DG_ORDER_FMA);
  CHECK(retain(&mine, 1) == 0 && push(mine) == 0);
  dg_device *device = open_device(FAKE_DEVICE ":0");
  CHECK(get(&context) == 0 && context == mine);
  CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x));
  CHECK(get(&context) == 0 && context == mine);
  dg_device_close(device);
  CHECK(get(&context) == 0 && context == mine);
  CHECK(pop(&context) == 0 && context == mine && drop(1) == 0);
  drop_product(&x);
  CHECK(clean());
}

static void streams(int unused) {
  (void)unused;
  product x;
  void *context;
  make(&x, DG_ORDER_FMA);
  dg_device *device = open_device(FAKE_DEVICE);
  CHECK(push(x.context) == 0 && stream_create(&x.args.stream, 1) == 0 && pop(&context) == 0);
  CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x));
  CHECK(push(x.context) == 0 && stream_destroy(x.args.stream) == 0 && pop(&context) == 0);
  memset(x.out, 0xa5, BYTES);
  CHECK(dg_gemm(device, &x.args) == DG_ERROR_DEVICE && untouched(&x));
  CHECK_TEXT("live stream");
  dg_device_close(device);
  drop_product(&x);
}

static void bad_pointers(int unused) {
  (void)unused;
  product x;
  make(&x, DG_ORDER_FMA);
  dg_device *device = open_device(FAKE_DEVICE);
  dg_gemm_args odd = x.args;
  odd.b.data = (char *)odd.b.data + 1;
  CHECK(dg_gemm(device, &odd) == DG_ERROR_ARGUMENT && untouched(&x));
  CHECK_TEXT("b.data");
  void *other, *context, *there = NULL;
  odd = x.args;
  odd.a.data = &odd;
  CHECK(dg_gemm(device, &odd) == DG_ERROR_ARGUMENT && untouched(&x));
  CHECK_TEXT("pass device memory");
  CHECK(retain(&other, 1) == 0 && push(other) == 0 && fake_alloc(&there, BYTES) == 0);
  odd.a.data = there;
  CHECK(dg_gemm(device, &odd) == DG_ERROR_ARGUMENT && untouched(&x));
  CHECK_TEXT("memory of device 1");
  CHECK(fake_free(there) == 0);
  CHECK(dg_gemm(device, &odd) == DG_ERROR_ARGUMENT && untouched(&x)); /* freed */
  CHECK_TEXT("pass device memory");
  uint16_t a[M * K];
  fill(a, M * K);
  for (fake->kind = 1; fake->kind <= 2; fake->kind++) { /* pinned, managed: of all devices */
    CHECK(fake_alloc(&there, BYTES) == 0 && copy_in(there, a, sizeof a) == 0);
    odd.a.data = there;
    memset(x.out, 0xa5, BYTES);
    CHECK(dg_gemm(device, &odd) == DG_OK && same(&x));
    CHECK(fake_free(there) == 0);
  }
  fake->kind = 0;
  CHECK(pop(&context) == 0 && drop(1) == 0);
  dg_device_close(device);
  drop_product(&x);
}

#ifdef FAKE_pointer_get_one
/* A driver whose answers about known memory are wrong is not asked about any. */
static void wrong_answers(int unused) {
  (void)unused;
  product x;
  fake->knows_every_pointer = true;
  make(&x, DG_ORDER_FMA);
  dg_device *device = open_device(FAKE_DEVICE);
  const int calls = fake->calls;
  CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x));
  CHECK(fake->calls == calls + 4); /* get, push, launch, pop */
  dg_device_close(device);
  drop_product(&x);
}
#endif

static void empty_products(int unused) {
  (void)unused;
  product x;
  dg_kernel_info info;
  make(&x, DG_ORDER_FMA);
  dg_device *device = open_device(FAKE_DEVICE);
  const int launches = fake->launches;
  dg_gemm_args none = x.args;
  none.a.rows = none.out.rows = 0;
  CHECK(dg_gemm(device, &none) == DG_OK && dg_gemm_kernel(device, &none, &info) == DG_OK);
  none = x.args;
  none.batch = 0;
  CHECK(dg_gemm(device, &none) == DG_OK && untouched(&x) && fake->launches == launches);
  none = x.args;
  none.a.cols = none.b.rows = 0;
  none.a.data = none.b.data = NULL;
  memset(x.expected, 0, sizeof x.expected);
  CHECK(dg_gemm(device, &none) == DG_OK && same(&x));
  dg_device_close(device);
  drop_product(&x);
}

/* ---- devices that are not what the kernels were made for ---- */

static void older_device(int unused) {
  (void)unused;
  product x;
#ifndef FAKE_ONLY_FMA
  fake->capability[0] = 8;
#endif
  make(&x, DG_ORDER_TC16);
  dg_device *device = open_device(FAKE_DEVICE);
  CHECK(dg_gemm(device, &x.args) == DG_ERROR_UNSUPPORTED && untouched(&x));
  CHECK_TEXT("tc16");
  x.args.order = DG_ORDER_FMA;
  CHECK(dg_gemm(device, &x.args) == DG_OK);
  dg_device_close(device);
  drop_product(&x);
}

#ifdef FAKE_ONLY_FMA
/* What the driver says of the device cannot be true, so nothing it says is believed. */
static void implausible_device(int which) {
  dg_device *device;
  if (which == 0) fake->warp = 31;
  if (which == 1) fake->capability[0] = 40;
  if (which == 2) fake->multiprocessors = 0;
  CHECK(dg_device_open(FAKE_DEVICE, &device) == DG_ERROR_DEVICE && device == NULL);
  CHECK_TEXT("its driver gives");
  CHECK(clean());
}
#endif

/* The kernels' own source, compiled for this processor, computes what the probe asks and every
 * row's product. */
static void runs_natively(int unused) {
  (void)unused;
  dg_kernel_info info;
  product x;
  fake->execute = native_run;
  setenv("DETGEMM_KERNEL", "fma_*", 1);
  make(&x, DG_ORDER_FMA);
  dg_device *device = open_device(FAKE_DEVICE);
  int ready = 0;
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++) {
    if (info.withheld == NULL) ready++;
    else CHECK(strstr(info.withheld, "bits") == NULL);
  }
  CHECK(ready >= 5);
  CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x));
  dg_device_close(device);
  drop_product(&x);
  every_row_computes(DG_ORDER_FMA);
}

/* A column of b, or a row, that stands for all of them: stride 0, which no kernel may take for a
 * dense line. Large enough for whole panels. */
static void repeated_lines(int unused) {
  (void)unused;
  enum { ROWS = 8, COLS = 64, SUMS = 256 };
  static uint16_t a[ROWS * SUMS], b[SUMS];
  static float out[ROWS * COLS];
  dg_kernel_info info;
  product x;
  int computed = 0;
  make(&x, DG_ORDER_FMA);
  fill(a, ROWS * SUMS);
  fill(b, SUMS);
  CHECK(push(x.context) == 0 && copy_in(x.a, a, sizeof a) == 0 && copy_in(x.b, b, sizeof b) == 0 &&
        pop(&x.context) == 0);
  setenv("DETGEMM_KERNEL", "fma_*", 1);
  dg_device *device = open_device(FAKE_DEVICE);
  fake->execute = native_run;
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++)
    for (int by_row = 0; by_row < 2 && info.withheld == NULL; by_row++) {
      dg_gemm_args g = x.args;
      setenv("DETGEMM_KERNEL", info.name, 1);
      dg_device *forced = open_device(FAKE_DEVICE);
      g.a = dg_row_major(a, DG_BF16, ROWS, SUMS);
      g.b = dg_row_major(b, DG_BF16, SUMS, COLS);
      g.b.row_stride = by_row ? 0 : 1;
      g.b.col_stride = by_row ? 1 : 0;
      g.out = dg_row_major(out, DG_F32, ROWS, COLS);
      CHECK(dg_reference(&g) == DG_OK);
      g.a.data = x.a;
      g.b.data = x.b;
      g.out.data = x.out;
      const dg_status status = dg_gemm(forced, &g);
      CHECK(status == DG_ERROR_UNSUPPORTED ||
            (status == DG_OK && memcmp(x.out, out, sizeof out) == 0));
      computed += status == DG_OK;
      dg_device_close(forced);
    }
  CHECK(computed >= 6);
  dg_device_close(device);
  drop_product(&x);
}

/* Groups of more than a tile's rows, of none and of few, over fewer blocks than tiles. */
static void grouped_natively(int by_k) {
  enum { T = 150, D = 70, COLUMNS = 90, GROUPS = 4, MOST = GROUPS * D * COLUMNS };
  static const int32_t offsets[GROUPS + 1] = {0, 67, 67, 131, T};
  static uint16_t rows[T * D], columns[MOST];
  static float expected[MOST], begin[MOST], bias[GROUPS * COLUMNS];
  const void *from[] = {rows, columns, begin, bias, offsets};
  const size_t bytes[] = {sizeof rows, sizeof columns, sizeof begin, sizeof bias, sizeof offsets};
  void *context, *memory[6], *out;
  fake->multiprocessors = 2;
  fake->execute = native_run;
  setenv("DETGEMM_KERNEL", "fma_grouped_*", 1);
  fill(rows, T * D);
  fill(columns, MOST);
  for (int i = 0; i < MOST; i++) begin[i] = expected[i] = (float)(i % 61) - 30;
  for (int i = 0; i < GROUPS * COLUMNS; i++) bias[i] = (float)(i % 13);

  dg_grouped_args g = dg_grouped_args_init();
  g.order = DG_ORDER_FMA;
  g.split = by_k ? DG_SPLIT_K : DG_SPLIT_M;
  g.groups = (dg_groups){GROUPS, offsets, 4};
  g.a = dg_row_major(rows, DG_BF16, T, D);
  if (by_k) g.a = dg_transposed(g.a);
  g.b = dg_row_major(columns, DG_BF16, by_k ? T : D, COLUMNS);
  g.start = dg_row_major(begin, DG_F32, by_k ? D : T, COLUMNS);
  g.out = dg_row_major(expected, DG_F32, by_k ? D : T, COLUMNS);
  g.bias = dg_row_major(bias, DG_F32, 1, COLUMNS);
  CHECK(dg_reference_grouped(&g) == DG_OK);

  CHECK(init(0) == 0 && retain(&context, 0) == 0 && push(context) == 0);
  for (int i = 0; i < 5; i++)
    CHECK(fake_alloc(&memory[i], bytes[i]) == 0 && copy_in(memory[i], from[i], bytes[i]) == 0);
  CHECK(fake_alloc(&out, sizeof begin) == 0 && copy_in(out, begin, sizeof begin) == 0);
  CHECK(pop(&context) == 0);
  g.a.data = memory[0];
  g.b.data = memory[1];
  g.start.data = memory[2];
  g.bias.data = memory[3];
  g.groups.offsets = memory[4];
  g.out.data = out;
  dg_device *device = open_device(FAKE_DEVICE);
  CHECK(dg_gemm_grouped(device, &g) == DG_OK);
  CHECK(memcmp(out, expected, sizeof expected) == 0);
  dg_device_close(device);
  memory[5] = out;
  CHECK(push(context) == 0);
  for (int i = 0; i < 6; i++) CHECK(fake_free(memory[i]) == 0);
  CHECK(pop(&context) == 0 && drop(0) == 0 && clean());
}

static void wrong_bits(int unused) {
  (void)unused;
  dg_kernel_info info;
  product x;
  fake->wrong = "*";
  make(&x, DG_ORDER_FMA);
  dg_device *device = open_device(FAKE_DEVICE);
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++)
    CHECK(of_another(&info) ||
          (info.withheld && strstr(info.withheld, "gave other bits than the reference in probe")));
  CHECK(dg_gemm(device, &x.args) == DG_ERROR_UNSUPPORTED && untouched(&x));
  CHECK_TEXT("gave other bits");
  dg_device_close(device);
  drop_product(&x);
  CHECK(clean());
}

/* ---- processes and threads ---- */

static void forked(int unused) {
  (void)unused;
  product x;
  int status;
  make(&x, DG_ORDER_FMA);
  dg_device *device = open_device(FAKE_DEVICE), *second;
  const pid_t child = fork();
  if (child == 0) {
    CHECK(dg_gemm(device, &x.args) == DG_ERROR_DEVICE && untouched(&x));
    CHECK_TEXT("forked");
    CHECK(dg_device_open(FAKE_DEVICE, &second) == DG_ERROR_DEVICE && second == NULL);
    CHECK_TEXT("forked");
    CHECK(dg_device_count() == 1);
    dg_device_close(device);
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x));
  dg_device_close(device);
  drop_product(&x);
  CHECK(clean());
}

static void *thread(void *unused) {
  (void)unused;
  product x;
  dg_device *device = open_device(FAKE_DEVICE);
  make(&x, DG_ORDER_FMA);
  for (int i = 0; i < 100; i++) CHECK(dg_gemm(device, &x.args) == DG_OK && same(&x));
  drop_product(&x);
  dg_device_close(device);
  return NULL;
}

static void threads(int unused) {
  (void)unused;
  pthread_t ids[8];
  for (int i = 0; i < 8; i++) CHECK(pthread_create(&ids[i], NULL, thread, NULL) == 0);
  for (int i = 0; i < 8; i++) pthread_join(ids[i], NULL);
  CHECK(clean());
}

/* ---- the list ---- */

#define CASE(body)                    \
  static void test_##body(void **s) { \
    (void)s;                          \
    in_child(body, 0);                \
  }
CASE(opens)
CASE(no_such_device)
CASE(no_devices)
CASE(leaves_the_context)
CASE(streams)
CASE(bad_pointers)
#ifdef FAKE_pointer_get_one
CASE(wrong_answers)
#endif
CASE(empty_products)
CASE(older_device)
CASE(wrong_bits)
CASE(runs_natively)

static void test_grouped_natively(void **unused) {
  (void)unused;
  for (int by_k = 0; by_k < 2; by_k++) assert_int_equal(in_child(grouped_natively, by_k), 0);
}
CASE(repeated_lines)
CASE(forked)
CASE(threads)

static void test_open_fails(void **s) {
  (void)s;
  sweep(open_fails, KINDS);
}

static void test_call_fails(void **s) {
  (void)s;
  sweep(call_fails, 2 * KINDS);
}

static void test_computes(void **s) {
  (void)s;
  in_child(computes, DG_ORDER_FMA);
  in_child(every_row_computes, DG_ORDER_FMA);
  in_child(remembers, DG_ORDER_FMA);
#ifndef FAKE_ONLY_FMA
  in_child(remembers, DG_ORDER_TC16);
  in_child(every_row_computes, DG_ORDER_TC16);
#endif
}

#ifdef FAKE_ONLY_FMA
static void test_implausible_device(void **s) {
  (void)s;
  for (int which = 0; which < 3; which++) in_child(implausible_device, which);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_opens),
      cmocka_unit_test(test_no_such_device),
      cmocka_unit_test(test_no_devices),
      cmocka_unit_test(test_computes),
      cmocka_unit_test(test_leaves_the_context),
      cmocka_unit_test(test_streams),
      cmocka_unit_test(test_bad_pointers),
#ifdef FAKE_pointer_get_one
      cmocka_unit_test(test_wrong_answers),
#endif
      cmocka_unit_test(test_empty_products),
      cmocka_unit_test(test_older_device),
      cmocka_unit_test(test_wrong_bits),
      cmocka_unit_test(test_runs_natively),
      cmocka_unit_test(test_grouped_natively),
      cmocka_unit_test(test_repeated_lines),
#ifdef FAKE_ONLY_FMA
      cmocka_unit_test(test_implausible_device),
#endif
      cmocka_unit_test(test_forked),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_call_fails),
      cmocka_unit_test(test_open_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
