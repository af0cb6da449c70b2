/* The OpenCL back end against a test double of libOpenCL.so.1: what it asks of a driver, what it
 * leaves behind, what it says when any call fails, and drivers that say strange things. Each case
 * runs in a child of its own, since the library looks for devices once per process. The double must
 * be the first libOpenCL.so.1 in LD_LIBRARY_PATH. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../src/internal.h"
#include "../src/num.h"
#include "../src/opencl/opencl.h"
#include "fake_opencl.h"
#include "on_cpu.h"

static fake_opencl *fake;
static dg_opencl_api cl;
static dg_device *cpu;

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "%s%s\n", what, why);
  exit(1);
}

static void load_double(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (library == NULL) give_up("", dlerror());
  fake = dlsym(library, "fake_opencl_state");
  if (fake == NULL) give_up("libOpenCL.so.1 is not the double", "");
#define LOAD(result, name, parameters) *(void **)&cl.name = dlsym(library, #name);
  DG_OPENCL_FUNCTIONS(LOAD)
#undef LOAD
}

static void compute(const char *symbol, const dg_grouped *g) {
  (void)symbol;
  if (g->offsets == NULL) {
    compute_on_cpu(cpu, &g->p);
    return;
  }
  int64_t first[16];
  if (g->groups > 15 || dg_grouped_offsets(g, first) != DG_OK) give_up("", dg_last_error());
  for (int64_t e = 0; e < g->groups; e++) {
    const dg_problem part = dg_grouped_part(g, e, first[e], first[e + 1]);
    if (part.m > 0) compute_on_cpu(cpu, &part);
  }
}

static void compute_nothing(const char *symbol, const dg_grouped *g) { (void)symbol, (void)g; }

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
  for (int i = 0; i < 5; i++)
    if (fake->alive[i] != 0) return false;
  return true;
}

/* ---- a small product ---- */

enum { M = 8, N = 24, K = 32 };
static uint16_t a_data[M * K], b_data[K * N];
static uint32_t expected[M * N], out_data[M * N + 1];

static dg_gemm_args make(void) {
  dg_gemm_args g = dg_gemm_args_init();
  for (int i = 0; i < M * K; i++) a_data[i] = (uint16_t)(0x3f80 + i % 97);
  for (int i = 0; i < K * N; i++) b_data[i] = (uint16_t)(0x3f80 + i % 89 - (i % 5 ? 0 : 0x8000));
  g.order = DG_ORDER_FMA;
  g.a = dg_row_major(a_data, DG_BF16, M, K);
  g.b = dg_row_major(b_data, DG_BF16, K, N);
  g.out = dg_row_major(expected, DG_F32, M, N);
  CHECK(dg_reference(&g) == DG_OK);
  g.out.data = out_data;
  memset(out_data, 0xa5, sizeof out_data);
  return g;
}

static bool same(void) {
  return memcmp(out_data, expected, sizeof expected) == 0 && out_data[M * N] == 0xa5a5a5a5u;
}

static bool untouched(void) {
  for (int i = 0; i <= M * N; i++)
    if (out_data[i] != 0xa5a5a5a5u) return false;
  return true;
}

/* ---- drivers as they should be ---- */

static void opens(int type) {
  dg_kernel_info info;
  fake->type = (uint64_t)type;
  CHECK(dg_device_count() == 3);
  CHECK(strcmp(dg_device_name_at(2), "opencl:1") == 0);
  dg_device *device = open_device("opencl"), *again = open_device("opencl:0");
  CHECK(fake->builds == 1);
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++) {
    const bool alone = strcmp(info.name, "fma_8x16_alone_opencl") == 0 && type != 2;
    CHECK(alone == (info.withheld != NULL));
  }
  const int launches = fake->launches;
  dg_device *other = open_device("opencl:1");
  CHECK(fake->builds == 2 && fake->launches > launches);
  dg_device_close(other);
  dg_device_close(device);
  dg_device_close(again);
  CHECK(clean());
  again = open_device("opencl:0"); /* judged once per process */
  CHECK(fake->builds == 3 && fake->launches == 2 * launches);
  dg_device_close(again);
  CHECK(clean());
}

/* mode: 1 the device has memory of its own, 2 every pointer is SVM. */
static void computes(int mode) {
  dg_kernel_info info;
  char names[16][64];
  int count = 0, computed = 0;
  dg_gemm_args g = make();
  fake->copies = mode == 1;
  dg_device *device = open_device("opencl");
  fake->all_shared = mode == 2; /* then the results are not brought back */
  CHECK(dg_gemm(device, &g) == DG_OK && same());
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++)
    snprintf(names[count++], 64, "%s", info.name);
  for (int i = 0; i < count; i++) {
    setenv("DETGEMM_KERNEL", names[i], 1);
    dg_device *forced = open_device("opencl:0");
    memset(out_data, 0xa5, sizeof out_data);
    const dg_status status = dg_gemm(forced, &g);
    CHECK(status == DG_ERROR_UNSUPPORTED || (status == DG_OK && same()));
    computed += status == DG_OK;
    dg_device_close(forced);
  }
  CHECK(computed >= 5);
  dg_device_close(device);
  CHECK(clean());
}

/* Operands that overlap lie in one buffer; what lies between the rows of the output is kept. */
static void overlapping(int mode) {
  static uint16_t all[64 * 64];
  static uint32_t wide[M * 2 * N], right[M * 2 * N];
  fake->copies = mode == 1;
  dg_gemm_args g = make();
  for (int i = 0; i < 64 * 64; i++) all[i] = (uint16_t)(0x3f80 + i % 50);
  for (int i = 0; i < M * 2 * N; i++) wide[i] = right[i] = (uint32_t)(0x3f800000 + i);
  g.a = dg_row_major(all, DG_BF16, M, K);
  g.b = dg_row_major(all + 16, DG_BF16, K, N);
  g.out = dg_row_major(right, DG_F32, M, N);
  g.out.row_stride = 2 * N;
  g.start = g.out;
  CHECK(dg_reference(&g) == DG_OK);
  g.out.data = g.start.data = wide;
  dg_device *device = open_device("opencl");
  CHECK(dg_gemm(device, &g) == DG_OK && memcmp(wide, right, sizeof wide) == 0);
  dg_device_close(device);
  CHECK(clean());
}

static void groups(int mode) {
  static const int32_t offsets[4] = {0, 3, 3, M};
  static uint16_t b[3 * K * N];
  fake->copies = mode == 1;
  make();
  for (int i = 0; i < 3 * K * N; i++) b[i] = (uint16_t)(0x3f80 + i % 61);
  dg_grouped_args g = dg_grouped_args_init();
  g.order = DG_ORDER_FMA;
  g.split = DG_SPLIT_M;
  g.groups = (dg_groups){3, offsets, 4};
  g.a = dg_row_major(a_data, DG_BF16, M, K);
  g.b = dg_row_major(b, DG_BF16, K, N);
  g.out = dg_row_major(expected, DG_F32, M, N);
  CHECK(dg_reference_grouped(&g) == DG_OK);
  g.out.data = out_data;
  dg_device *device = open_device("opencl");
  CHECK(dg_gemm_grouped(device, &g) == DG_OK && same());
  dg_device_close(device);
  CHECK(clean());
}

/* ---- failures ---- */

/* Calls whose failure cannot be made good, and leaves their object alive. */
static bool is_cleanup(const char *call) { return strncmp(call, "clRelease", 9) == 0; }

static bool is_loading(const char *call) {
  return strcmp(call, "clGetPlatformIDs") == 0 || strcmp(call, "clGetDeviceIDs") == 0;
}

/* Decoration, and what only says that memory is SVM. */
static bool is_optional(const char *call) {
  return strcmp(call, "clGetMemObjectInfo") == 0 || strcmp(call, "clGetDeviceInfo") == 0;
}

static const struct {
  int error;
  bool sticky, nothing;
} kinds[] = {{-4, false, false}, {-5, false, false}, {-59, false, true}, {-9999, true, false}};
enum { KINDS = 4 };

static void set_failure(int n) {
  fake->fail_at = n / KINDS;
  fake->fail_with = kinds[n % KINDS].error;
  fake->sticky = kinds[n % KINDS].sticky;
  fake->gives_nothing = kinds[n % KINDS].nothing;
}

static void check_failure(dg_status status) {
  const char *call = fake->failed_call;
  const bool launch = strstr(call, "NDRange") || strstr(call, "SetKernelArg");
  if (status == DG_OK) { /* a launch that the device refuses withholds the row alone */
    CHECK(is_cleanup(call) || is_optional(call) || is_loading(call) ||
          (launch && fake->fail_with == -5));
    return;
  }
  CHECK(dg_last_error()[0] != '\0');
  if (fake->fail_with == -4 && !is_loading(call)) CHECK(status == DG_ERROR_MEMORY);
  CHECK(status == DG_ERROR_MEMORY || status == DG_ERROR_DEVICE ||
        (launch && fake->fail_with == -5 && status == DG_ERROR_UNSUPPORTED));
}

/* Ends a case that leaves objects alive on purpose, without a search for leaks. */
static void leave(void) {
  CHECK(fake->misuse[0] == '\0');
  _exit(0);
}

/* Call number n of opening fails. One row to probe is enough. */
static void open_fails(int n) {
  dg_device *device;
  setenv("DETGEMM_KERNEL", "fma_1x1_*", 1);
  fake->execute = compute_nothing;
  set_failure(n);
  const dg_status status = dg_device_open("opencl", &device);
  if (fake->failed_call == NULL) _exit(2); /* nothing was tested: no search for leaks */
  CHECK((status == DG_OK) == (device != NULL));
  check_failure(status);
  dg_device_close(device);
  const bool sticky = fake->sticky, cleanup = is_cleanup(fake->failed_call);
  fake->fail_at = -1;
  if (sticky || cleanup) leave();
  CHECK(clean());
  if (is_loading(fake->failed_call)) return;
  dg_device_close(open_device("opencl")); /* and it works when the trouble is over */
  CHECK(clean());
}

/* Call number n of a product fails; mode as above. */
static void call_fails(int n) {
  setenv("DETGEMM_KERNEL", "fma_1x1_*", 1);
  dg_gemm_args g = make();
  fake->copies = true;
  dg_device *device = open_device("opencl");
  set_failure(n);
  const dg_status status = dg_gemm(device, &g);
  if (fake->failed_call == NULL) _exit(2);
  check_failure(status);
  const bool brought = strcmp(fake->failed_call, "clEnqueueUnmapMemObject") == 0 ||
                       strcmp(fake->failed_call, "clFinish") == 0;
  CHECK(status == DG_OK ? same() : brought || untouched());
  fake->fail_at = -1;
  if (is_cleanup(fake->failed_call) || fake->sticky) leave();
  memset(out_data, 0xa5, sizeof out_data);
  CHECK(dg_gemm(device, &g) == DG_OK && same());
  dg_device_close(device);
  CHECK(clean());
}

/* Runs cases 0, 1, ... until each of the interleaved sequences has ended. */
static void sweep(void (*body)(int)) {
  bool done[KINDS] = {false};
  int left = KINDS, n = 0;
  for (; left > 0; n++) {
    if (done[n % KINDS]) continue;
    done[n % KINDS] = in_child(body, n) == 2;
    left -= done[n % KINDS];
  }
  assert_true(n > 2 * KINDS);
}

/* A caller's queue, context and buffer: every call of a product and of attaching fails in turn. */
static void attached_fails(int n) {
  int error;
  void *id = NULL, *address = NULL;
  setenv("DETGEMM_KERNEL", "fma_1x1_*", 1);
  dg_gemm_args g = make();
  dg_device *device = open_device("opencl");
  CHECK(cl.clGetPlatformIDs(1, &id, NULL) == 0 &&
        cl.clGetDeviceIDs(id, 0xffffffffu, 1, &id, NULL) == 0);
  void *context = cl.clCreateContext(NULL, 1, &id, NULL, NULL, &error);
  g.stream = cl.clCreateCommandQueue(context, id, 0, &error);
  void *mem = cl.clCreateBuffer(context, 1, sizeof out_data, NULL, &error);
  set_failure(n);
  dg_status status = dg_opencl_attach(mem, &address);
  if (status == DG_OK && address) {
    g.out.data = address;
    status = dg_gemm(device, &g);
  }
  if (fake->failed_call == NULL) _exit(2);
  check_failure(status);
  fake->fail_at = -1;
  if (is_cleanup(fake->failed_call) || fake->sticky) leave();
  if (address == NULL) CHECK(dg_opencl_attach(mem, &address) == DG_OK);
  g.out.data = address;
  CHECK(dg_gemm(device, &g) == DG_OK);
  void *data =
      cl.clEnqueueMapBuffer(g.stream, mem, 1, 1, 0, sizeof out_data, 0, NULL, NULL, &error);
  CHECK(memcmp(data, expected, sizeof expected) == 0);
  CHECK(cl.clEnqueueUnmapMemObject(g.stream, mem, data, 0, NULL, NULL) == 0);
  CHECK(dg_opencl_detach(address) == DG_OK);
  CHECK(cl.clReleaseMemObject(mem) == 0 && cl.clReleaseCommandQueue(g.stream) == 0);
  CHECK(cl.clReleaseContext(context) == 0);
  dg_device_close(device);
  CHECK(clean());
}

/* ---- drivers that are not what they should be ---- */

static void refuses(const char *text) {
  dg_device *device;
  CHECK(dg_device_open("opencl", &device) == DG_ERROR_DEVICE && device == NULL);
  if (strstr(dg_last_error(), text) == NULL) report(__LINE__, text);
  CHECK(clean());
}

static void strange(int which) {
  enum { DENORM = 1, TO_NEAREST = 4, FMA = 32, OTHERS = 2 | 8 | 16 };
  static char long_log[2000];
  snprintf(long_log, sizeof long_log, "%01000d\nk.cl:9: error: no such thing\nmore\n", 0);
  dg_device *device;
  switch (which) {
    case 0: fake->platforms = 0; break;
    case 1: fake->devices = 0; break;
    case 2: fake->fail_call = "clGetPlatformIDs", fake->fail_with = -1001; break;
    case 3: fake->fail_call = "clGetDeviceIDs", fake->fail_with = -2; break;
    case 4: fake->config = TO_NEAREST | FMA | OTHERS; break;
    case 5: fake->config = DENORM | TO_NEAREST | OTHERS; break;
    case 6: fake->config = DENORM | FMA | OTHERS; break;
    case 7: fake->compiler = 0; break;
    case 8: fake->little_endian = 0; break;
    case 9: fake->version = "OpenCL 1.1 double"; break;
    case 10: fake->version = "3.0"; break;
    case 11: fake->version = NULL, fake->endless_texts = true; break;
    case 12: fake->build_log = long_log; break;
    case 13: fake->build_log = "x", fake->endless_texts = true; break;
    default: exit(2);
  }
  static const char *const texts[] = {"no OpenCL driver offers a device",
                                      "no OpenCL driver offers a device",
                                      "no OpenCL driver offers a device",
                                      "no OpenCL driver offers a device",
                                      "CL_FP_DENORM",
                                      "CL_FP_FMA",
                                      "CL_FP_ROUND_TO_NEAREST",
                                      "no compiler",
                                      "little-endian",
                                      "1.2 or later",
                                      "1.2 or later",
                                      "1.2 or later",
                                      "refused the kernels: k.cl:9: error: no such thing",
                                      "refused the kernels: xxx"};
  refuses(texts[which]);
  CHECK(strchr(dg_last_error(), '\n') == NULL);
  if (which == 5) { /* which a caller may take upon himself: the probe still judges */
    setenv("DETGEMM_OPENCL_ASSUME_FMA", "0", 1);
    refuses("CL_FP_FMA");
    setenv("DETGEMM_OPENCL_ASSUME_FMA", "1", 1);
    CHECK(dg_device_open("opencl", &device) == DG_OK);
    dg_device_close(device);
  }
}

/* More devices than there is room for, texts without an end, little block memory, and no number of
 * compute units that can be true. */
static void odd_but_usable(int which) {
  dg_gemm_args g = make();
  if (which == 0) fake->claimed = 100;
  if (which == 1) fake->endless_texts = true;
  if (which == 2) fake->units = 0;
  if (which == 3) fake->units = 0xffffffffu;
  if (which == 4) fake->local_bytes = UINT64_MAX;
  if (which == 5) fake->local_bytes = 1024;
  dg_device *device = NULL;
  const dg_status status = dg_device_open("opencl:0", &device);
  CHECK(status == DG_OK);
  const dg_status computed = dg_gemm(device, &g);
  CHECK(computed == DG_OK ? same() : which == 5 && computed == DG_ERROR_UNSUPPORTED);
  dg_device_close(device);
  CHECK(clean());
}

static void compute_wrongly(const char *symbol, const dg_grouped *g) {
  compute(symbol, g);
  *(char *)g->p.out.data ^= 1;
}

static void wrong_bits(int unused) {
  (void)unused;
  dg_kernel_info info;
  dg_gemm_args g = make();
  fake->execute = compute_wrongly;
  dg_device *device = open_device("opencl");
  for (int i = 0; dg_kernel_at(device, i, &info) == DG_OK; i++)
    CHECK(info.withheld && (strstr(info.withheld, "gave other bits than the reference in probe") ||
                            strcmp(info.withheld, "is for processors") == 0));
  CHECK(dg_gemm(device, &g) == DG_ERROR_UNSUPPORTED && untouched());
  CHECK_TEXT("gave other bits");
  dg_device_close(device);
  CHECK(clean());
}

static void forked(int unused) {
  (void)unused;
  int status;
  dg_gemm_args g = make();
  dg_device *device = open_device("opencl"), *second;
  const pid_t child = fork();
  if (child == 0) {
    CHECK(dg_gemm(device, &g) == DG_ERROR_DEVICE && untouched());
    CHECK_TEXT("forked");
    CHECK(dg_device_open("opencl", &second) == DG_ERROR_DEVICE && second == NULL);
    CHECK_TEXT("forked");
    CHECK(dg_device_count() == 1);
    dg_device_close(device);
    _exit(0); /* the double's objects are left alive */
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(dg_gemm(device, &g) == DG_OK && same());
  dg_device_close(device);
  CHECK(clean());
}

/* ---- the list ---- */

static void all(void (*body)(int), int first, int count) {
  for (int i = first; i < first + count; i++) assert_int_equal(in_child(body, i), 0);
}

#define TEST(name, run)               \
  static void test_##name(void **s) { \
    (void)s;                          \
    run;                              \
  }
TEST(opens_gpu, all(opens, 4, 1))
TEST(opens_processor, all(opens, 2, 1))
TEST(computes, all(computes, 0, 3))
TEST(overlapping, all(overlapping, 0, 2))
TEST(groups, all(groups, 0, 2))
TEST(strange, all(strange, 0, 14))
TEST(odd_but_usable, all(odd_but_usable, 0, 6))
TEST(wrong_bits, all(wrong_bits, 0, 1))
TEST(forked, all(forked, 0, 1))
TEST(call_fails, sweep(call_fails))
TEST(attached_fails, sweep(attached_fails))
TEST(open_fails, sweep(open_fails))

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_opens_gpu),      cmocka_unit_test(test_opens_processor),
      cmocka_unit_test(test_computes),       cmocka_unit_test(test_overlapping),
      cmocka_unit_test(test_groups),         cmocka_unit_test(test_strange),
      cmocka_unit_test(test_odd_but_usable), cmocka_unit_test(test_wrong_bits),
      cmocka_unit_test(test_forked),         cmocka_unit_test(test_call_fails),
      cmocka_unit_test(test_attached_fails), cmocka_unit_test(test_open_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
