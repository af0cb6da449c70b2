/* The promises of the header, one by one: every argument that can be wrong, and everything that may
 * not change a bit. */
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* After the headers that it needs. */
#include <cmocka.h>

#include "inputs.h"
#include "simple.h"
#include "support.h"
#include "verify.h"

enum { BATCH = 2, M = 3, N = 5, K = 20 };

/* A valid product that uses every argument. */
typedef struct sample {
  uint16_t a[BATCH * M * K], b[BATCH * K * N], bias[BATCH * N];
  float start[BATCH * M * N], out[BATCH * M * N];
  dg_gemm_args args;
} sample;

static dg_device *cpu;

static void fill(void *data, int64_t count, dg_dtype dtype, input_class which, uint64_t seed) {
  input_state state = {.random = seed};
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = input_next(&state, which, dtype);
    const uint16_t half = (uint16_t)bits;
    if (dtype == DG_F32) memcpy((char *)data + 4 * i, &bits, 4);
    else memcpy((char *)data + 2 * i, &half, 2);
  }
}

static void make_sample(sample *s) {
  fill(s->a, BATCH * M * K, DG_BF16, INPUT_PLAIN, 1);
  fill(s->b, BATCH * K * N, DG_BF16, INPUT_PLAIN, 2);
  fill(s->bias, BATCH * N, DG_BF16, INPUT_PLAIN, 3);
  fill(s->start, BATCH * M * N, DG_F32, INPUT_PLAIN, 4);
  memset(s->out, 0xa5, sizeof s->out);
  s->args = dg_gemm_args_init();
  s->args.order = DG_ORDER_TC16;
  s->args.a = dg_row_major(s->a, DG_BF16, M, K);
  s->args.b = dg_row_major(s->b, DG_BF16, K, N);
  s->args.out = dg_row_major(s->out, DG_F32, M, N);
  s->args.start = dg_row_major(s->start, DG_F32, M, N);
  s->args.bias = dg_row_major(s->bias, DG_BF16, 1, N);
  s->args.batch = BATCH;
}

static void assert_untouched(const sample *s) {
  const unsigned char *bytes = (const unsigned char *)s->out;
  for (size_t i = 0; i < sizeof s->out; i++) assert_int_equal(bytes[i], 0xa5);
}

/* The three functions that take args agree: that status, a sentence with that text, no write. */
static void expect_error(const sample *s, dg_status status, const char *text) {
  dg_kernel_info info;
  for (int i = 0; i < 3; i++) {
    const dg_status got = i == 0   ? dg_gemm(cpu, &s->args)
                          : i == 1 ? dg_gemm_kernel(cpu, &s->args, &info)
                                   : dg_reference(&s->args);
    if (got != status || strstr(dg_last_error(), text) == NULL)
      print_error("status %d, \"%s\"; expected %d, \"%s\"\n", got, dg_last_error(), status, text);
    assert_int_equal(got, status);
    assert_non_null(strstr(dg_last_error(), text));
    assert_untouched(s);
  }
}

/* One field of the arguments set to one wrong value. */
typedef struct mistake {
  size_t offset, size;
  int64_t value;
  const char *text;
} mistake;
#define FIELD(field) offsetof(dg_gemm_args, field), sizeof(((dg_gemm_args *)0)->field)

static const mistake mistakes[] = {
    {FIELD(size), 0, "args.size is 0"},
    {FIELD(size), sizeof(dg_gemm_args) - 8, "args.size is"}, /* built against an older header */
    {FIELD(size), sizeof(dg_gemm_args) + 8, "args.size is"}, /* or a newer one */
    {FIELD(size), -1, "args.size is"},
    {FIELD(order), 0, "order is 0"},
    {FIELD(order), 3, "order is 3"},
    {FIELD(order), -1, "order is -1"},
    {FIELD(batch), -1, "batch is -1"},
    {FIELD(batch), INT64_MIN, "batch is -9223372036854775808"},
    {FIELD(batch), INT64_MAX, "address space"},
    {FIELD(a.dtype), 0, "a.dtype is 0"},
    {FIELD(a.dtype), 4, "a.dtype is 4"},
    {FIELD(a.dtype), DG_F32, "a.dtype is F32; the tc16 order"},
    {FIELD(a.dtype), DG_F16, "a is F16 and b is BF16"},
    {FIELD(b.dtype), -1, "b.dtype is -1"},
    {FIELD(b.dtype), DG_F32, "b.dtype is F32; the tc16 order"},
    {FIELD(out.dtype), 99, "out.dtype is 99"},
    {FIELD(start.dtype), DG_BF16, "start.dtype is BF16"},
    {FIELD(start.dtype), 7, "start.dtype is"},
    {FIELD(bias.dtype), 5, "bias.dtype is 5"},
    {FIELD(a.rows), M + 1, "a is 4 x 20; it must be [M,K]"},
    {FIELD(a.rows), -1, "a is -1 x 20"},
    {FIELD(a.cols), K - 1, "b is 20 x 5; it must be [K,N]"},
    {FIELD(a.cols), INT64_MIN, "a is 3 x -9223372036854775808"},
    {FIELD(a.cols), INT64_MAX, "address space"},
    {FIELD(b.rows), K + 1, "b is 21 x 5"},
    {FIELD(b.rows), -5, "b is -5 x 5"},
    {FIELD(b.cols), N - 1, "b is 20 x 4"},
    {FIELD(b.cols), -1, "b is 20 x -1"},
    {FIELD(out.rows), M - 1, "a is 3 x 20; it must be [M,K] = 2 x 20"},
    {FIELD(out.rows), -3, "out is -3 x 5"},
    {FIELD(out.cols), N + 1, "b is 20 x 5; it must be [K,N] = 20 x 6"},
    {FIELD(out.cols), INT64_MAX, "out of 2 x 3 x 9223372036854775807"},
    {FIELD(start.rows), M + 1, "start is 4 x 5; it must be [M,N]"},
    {FIELD(start.cols), 0, "start is 3 x 0"},
    {FIELD(bias.rows), M, "bias is 3 x 5; it must be [1,N]"},
    {FIELD(bias.rows), 0, "bias is 0 x 5"},
    {FIELD(bias.cols), 1, "bias is 1 x 1"},
    {FIELD(a.data), 0, "a.data is NULL"},
    {FIELD(b.data), 0, "b.data is NULL"},
    {FIELD(out.data), 0, "out.data is NULL"},
    {FIELD(a.data), -2, "a of 2 x 3 x 20 elements"}, /* the last bytes of the address space */
    {FIELD(out.data), -8, "out of 2 x 3 x 5 elements"},
    {FIELD(a.row_stride), INT64_MAX, "a of"},
    {FIELD(a.row_stride), INT64_MIN, "a of"},
    {FIELD(a.col_stride), INT64_C(1) << 59, "a of"},
    {FIELD(a.batch_stride), INT64_C(1) << 62, "a of"},
    {FIELD(a.batch_stride), -(INT64_C(1) << 61), "a of"},
    {FIELD(b.row_stride), INT64_C(1) << 58, "b of"},
    {FIELD(b.col_stride), INT64_MIN, "b of"},
    {FIELD(start.col_stride), INT64_MAX, "start of"},
    {FIELD(bias.col_stride), INT64_MAX / 3, "bias of"},
    {FIELD(bias.batch_stride), INT64_MIN, "bias of"},
    {FIELD(out.row_stride), INT64_MAX, "out of"},
    {FIELD(out.col_stride), INT64_MIN, "out of"},
    {FIELD(out.batch_stride), INT64_MAX, "out of"},
    {FIELD(out.row_stride), 0, "out has strides"},
    {FIELD(out.col_stride), 0, "out has strides"},
    {FIELD(out.batch_stride), 0, "out has strides"},
    {FIELD(out.row_stride), N - 1, "out has strides"},
    {FIELD(out.row_stride), -1, "out has strides"},
    {FIELD(out.batch_stride), M *N - 1, "out has strides"},
    {FIELD(out.batch_stride), 1, "out has strides"},
};

static void wrong_arguments(void **unused) {
  (void)unused;
  for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
    const mistake *x = &mistakes[i];
    sample s;
    make_sample(&s);
    const int32_t narrow = (int32_t)x->value;
    memcpy((char *)&s.args + x->offset, x->size == 8 ? (const void *)&x->value : &narrow, x->size);
    expect_error(&s, DG_ERROR_ARGUMENT, x->text);
  }
}

static void nulls(void **unused) {
  (void)unused;
  dg_device *device = cpu;
  dg_kernel_info info;
  sample s;
  make_sample(&s);
  assert_int_equal(dg_gemm(NULL, &s.args), DG_ERROR_ARGUMENT);
  assert_non_null(strstr(dg_last_error(), "device is NULL"));
  assert_int_equal(dg_gemm(cpu, NULL), DG_ERROR_ARGUMENT);
  assert_non_null(strstr(dg_last_error(), "args is NULL"));
  assert_int_equal(dg_reference(NULL), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_gemm_kernel(cpu, &s.args, NULL), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_gemm_kernel(NULL, &s.args, &info), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_kernel_at(cpu, 0, NULL), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_kernel_at(NULL, 0, &info), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_kernel_count(NULL), 0);
  assert_int_equal(dg_device_open(NULL, &device), DG_ERROR_ARGUMENT);
  assert_null(device);
  assert_int_equal(dg_device_open("cpu", NULL), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_device_set_threads(NULL, 1), DG_ERROR_ARGUMENT);
  assert_string_equal(dg_device_name(NULL), "");
  assert_string_equal(dg_device_description(NULL), "");
  dg_device_close(NULL);
  assert_untouched(&s);
}

static void device_names(void **unused) {
  (void)unused;
  static const struct {
    const char *name;
    dg_status status;
  } names[] = {{"cpu", DG_OK},
               {"cpu:0", DG_OK},
               {"cpu:1", DG_ERROR_ARGUMENT},
               {"cpu:", DG_ERROR_ARGUMENT},
               {"cpu:-0", DG_ERROR_ARGUMENT},
               {"cpu: 0", DG_ERROR_ARGUMENT},
               {"cpu:0x", DG_ERROR_ARGUMENT},
               {"cpu:0:0", DG_ERROR_ARGUMENT},
               {"cpu:99999999999999999999", DG_ERROR_ARGUMENT},
               {"CPU", DG_ERROR_ARGUMENT},
               {" cpu", DG_ERROR_ARGUMENT},
               {"cpux", DG_ERROR_ARGUMENT},
               {"", DG_ERROR_ARGUMENT},
               {":", DG_ERROR_ARGUMENT},
               {"%s%n", DG_ERROR_ARGUMENT},
               {"a\nb\033\377", DG_ERROR_ARGUMENT},
               {"cuda:9999", DG_ERROR_DEVICE},
               {"musa:9999", DG_ERROR_DEVICE},
               {"hip:9999", DG_ERROR_DEVICE},
               {"opencl:9999", DG_ERROR_DEVICE}};
  char endless[4096];
  dg_device *device;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const dg_status status = dg_device_open(names[i].name, &device);
    if (status != names[i].status) print_error("\"%s\": %s\n", names[i].name, dg_last_error());
    assert_int_equal(status, names[i].status);
    assert_int_equal(device != NULL, status == DG_OK);
    if (device) assert_string_equal(dg_device_name(device), "cpu");
    for (const char *c = dg_last_error(); *c; c++) assert_in_range(*c, ' ', '~');
    dg_device_close(device);
  }
  memset(endless, 'x', sizeof endless - 1);
  endless[sizeof endless - 1] = '\0';
  assert_int_equal(dg_device_open(endless, &device), DG_ERROR_ARGUMENT);
  assert_true(strlen(dg_last_error()) < 512);
  assert_true(dg_device_count() >= 1);
  assert_string_equal(dg_device_name_at(0), "cpu");
  assert_null(dg_device_name_at(-1));
  assert_null(dg_device_name_at(dg_device_count()));
  assert_null(dg_device_name_at(INT32_MAX));
  assert_null(dg_device_name_at(INT32_MIN));
}

static void environment(void **unused) {
  (void)unused;
  static const struct {
    const char *variable, *value;
    dg_status status;
  } all[] = {{"DETGEMM_KERNEL", "nothing*", DG_ERROR_ARGUMENT},
             {"DETGEMM_KERNEL", "", DG_OK},
             {"DETGEMM_KERNEL", "*generic", DG_OK},
             {"DETGEMM_KERNEL", "[", DG_ERROR_ARGUMENT},
             {"DETGEMM_CPU", "pentium", DG_ERROR_ARGUMENT},
             {"DETGEMM_CPU", "AVX2", DG_ERROR_ARGUMENT},
             {"DETGEMM_CPU", "generic", DG_OK},
             {"DETGEMM_CPU", "", DG_OK}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    dg_device *device;
    setenv(all[i].variable, all[i].value, 1);
    const dg_status status = dg_device_open("cpu", &device);
    unsetenv(all[i].variable);
    assert_int_equal(status, all[i].status);
    assert_int_equal(device != NULL, status == DG_OK);
    if (status != DG_OK) assert_non_null(strstr(dg_last_error(), all[i].variable));
    dg_device_close(device);
  }
}

/* With the kernels of one order withheld, the other order is an error, never taken instead. */
static void never_another_order(void **unused) {
  (void)unused;
  dg_device *device;
  dg_kernel_info info;
  sample s;
  make_sample(&s);
  setenv("DETGEMM_KERNEL", "fma_*", 1);
  assert_int_equal(dg_device_open("cpu", &device), DG_OK);
  unsetenv("DETGEMM_KERNEL");
  assert_int_equal(dg_gemm(device, &s.args), DG_ERROR_UNSUPPORTED);
  assert_non_null(strstr(dg_last_error(), "tc16"));
  assert_int_equal(dg_gemm_kernel(device, &s.args, &info), DG_ERROR_UNSUPPORTED);
  assert_untouched(&s);
  s.args.order = DG_ORDER_FMA;
  assert_int_equal(dg_gemm_kernel(device, &s.args, &info), DG_OK);
  assert_int_equal(info.order, DG_ORDER_FMA);
  dg_device_close(device);
}

static void kernels_are_listed(void **unused) {
  (void)unused;
  dg_kernel_info info;
  const int count = dg_kernel_count(cpu);
  assert_true(count >= 2);
  for (int i = 0; i < count; i++) {
    assert_int_equal(dg_kernel_at(cpu, i, &info), DG_OK);
    const char *prefix = info.order == DG_ORDER_FMA ? "fma_" : "tc16_";
    assert_int_equal(strncmp(info.name, prefix, strlen(prefix)), 0);
  }
  assert_int_equal(dg_kernel_at(cpu, count, &info), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_kernel_at(cpu, -1, &info), DG_ERROR_ARGUMENT);
  sample s;
  make_sample(&s);
  assert_int_equal(dg_gemm_kernel(cpu, &s.args, &info), DG_OK);
  assert_untouched(&s);
  assert_int_equal(info.order, DG_ORDER_TC16);
  assert_null(info.withheld);
}

static void versions(void **unused) {
  (void)unused;
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", DG_VERSION_MAJOR, DG_VERSION_MINOR,
           DG_VERSION_PATCH);
  assert_string_equal(dg_version(), version);
  assert_int_equal(dg_abi(), DG_ABI);
  const dg_status all[] = {DG_OK, DG_ERROR_ARGUMENT, DG_ERROR_UNSUPPORTED, DG_ERROR_MEMORY,
                           DG_ERROR_DEVICE};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(all[i], i); /* pinned */
    assert_string_not_equal(dg_status_string(all[i]), "unknown status");
  }
  assert_string_equal(dg_status_string((dg_status)77), "unknown status");
}

static void *error_of_another_thread(void *result) {
  *(bool *)result = dg_last_error()[0] == '\0';
  dg_device_set_threads(NULL, 0);
  *(bool *)result &= strstr(dg_last_error(), "device is NULL") != NULL;
  return NULL;
}

static void errors_are_per_thread(void **unused) {
  (void)unused;
  pthread_t thread;
  bool separate = false;
  assert_int_equal(dg_device_set_threads(cpu, -1), DG_ERROR_ARGUMENT);
  assert_int_equal(pthread_create(&thread, NULL, error_of_another_thread, &separate), 0);
  pthread_join(thread, NULL);
  assert_true(separate);
  assert_non_null(strstr(dg_last_error(), "threads is -1"));
  assert_int_equal(dg_device_set_threads(cpu, 65537), DG_ERROR_ARGUMENT);
  assert_int_equal(dg_device_set_threads(cpu, 65536), DG_OK);
  assert_int_equal(dg_device_set_threads(cpu, 0), DG_OK);
}

/* Where the output may and may not lie. One buffer, offsets in floats. */
static void overlaps(void **unused) {
  (void)unused;
  enum { ROOM = 400 };
  float buffer[ROOM];
  dg_gemm_args args = dg_gemm_args_init();
  args.order = DG_ORDER_FMA;
  args.a = dg_row_major(buffer + 100, DG_F32, 4, 6);
  args.b = dg_row_major(buffer + 200, DG_F32, 6, 5);
  args.start = dg_row_major(buffer + 300, DG_F32, 4, 5);
  args.bias = dg_row_major(buffer + 350, DG_F32, 1, 5);
  static const struct {
    int offset;
    const char *clash; /* NULL: none */
  } places[] = {{0, NULL},   {80, NULL},     {81, "a"},     {100, "a"},     {123, "a"},
                {124, NULL}, {180, NULL},    {181, "b"},    {229, "b"},     {230, NULL},
                {280, NULL}, {281, "start"}, {300, NULL},   {301, "start"}, {319, "start"},
                {320, NULL}, {331, "bias"},  {354, "bias"}, {355, NULL}};
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    memset(buffer, 0, sizeof buffer);
    args.out = dg_row_major(buffer + places[i].offset, DG_F32, 4, 5);
    const dg_status status = dg_gemm(cpu, &args);
    assert_int_equal(status, places[i].clash ? DG_ERROR_ARGUMENT : DG_OK);
    assert_int_equal(dg_reference(&args), status);
    if (places[i].clash) assert_non_null(strstr(dg_last_error(), places[i].clash));
  }
  /* Side by side in one buffer of rows of 20: A in columns 0 to 5, the output in 6 to 10. */
  args.a = dg_row_major(buffer, DG_F32, 4, 6);
  args.start.data = NULL;
  args.out = dg_row_major(buffer + 6, DG_F32, 4, 5);
  args.a.row_stride = args.out.row_stride = 20;
  assert_int_equal(dg_gemm(cpu, &args), DG_OK);
  args.out.data = buffer + 5;
  assert_int_equal(dg_gemm(cpu, &args), DG_ERROR_ARGUMENT);
}

/* Products without rows, columns, sums or members. */
static void empty_products(void **unused) {
  (void)unused;
  sample s;
  make_sample(&s);
  s.args.batch = 0;
  assert_int_equal(dg_gemm(cpu, &s.args), DG_OK);
  assert_untouched(&s);
  dg_gemm_args args = dg_gemm_args_init();
  args.order = DG_ORDER_FMA;
  const int64_t shapes[][3] = {{0, 5, 7}, {5, 0, 7}, {0, 0, 0}, {0, 0, 3}, {0, 4, 0}};
  for (int i = 0; i < 5; i++) {
    args.a = dg_row_major(NULL, DG_BF16, shapes[i][0], shapes[i][2]);
    args.b = dg_row_major(NULL, DG_BF16, shapes[i][2], shapes[i][1]);
    args.out = dg_row_major(NULL, DG_BF16, shapes[i][0], shapes[i][1]);
    if (shapes[i][2] && shapes[i][0]) args.a.data = s.a;
    if (shapes[i][2] && shapes[i][1]) args.b.data = s.b;
    assert_int_equal(dg_gemm(cpu, &args), DG_OK);
    assert_int_equal(dg_reference(&args), DG_OK);
  }
}

/* Any strides and addresses where there is no element; a broadcast K past all counting. */
static void no_elements_any_strides(void **unused) {
  (void)unused;
  static const int64_t hostile[] = {INT64_MAX, INT64_MIN, INT64_MAX / 3};
  float out[4] = {1, 2, 3, 4};
  uint16_t one = 0x3f80;
  for (int i = 0; i < 3; i++) {
    dg_gemm_args args = dg_gemm_args_init();
    const int64_t h = hostile[i];
    args.order = DG_ORDER_FMA;
    args.batch = 2;
    args.a = (dg_view){i ? NULL : (void *)(uintptr_t)-1, 2, 0, h, h, h, DG_BF16};
    args.b = (dg_view){i ? NULL : (void *)(uintptr_t)-1, 0, 1, h, h, h, DG_BF16};
    args.out = dg_row_major(out, DG_F32, 2, 1);
    assert_int_equal(dg_gemm(cpu, &args), DG_OK);
    assert_int_equal(dg_reference(&args), DG_OK);
    for (int j = 0; j < 4; j++) assert_true(out[j] == 0);
    args.batch = 1;
    args.a = (dg_view){&one, 1, INT64_MAX - i, 0, 0, 0, DG_BF16};
    args.b = (dg_view){&one, INT64_MAX - i, 1, 0, 0, 0, DG_BF16};
    args.out = dg_row_major(out, DG_F32, 1, 1);
    assert_int_equal(dg_gemm(cpu, &args), DG_ERROR_ARGUMENT);
    assert_non_null(strstr(dg_last_error(), "K is 92233720368547758"));
  }
}

/* K = 0: the start value, NaN made canonical, -0 kept, then the bias. */
static void empty_sums(void **unused) {
  (void)unused;
  const uint32_t start[] = {0xffc01234u, 0x80000000u, 0x3f800000u, 0x00000001u, 0xff800000u};
  const uint32_t want[] = {0x7fc00000u, 0x80000000u, 0x3f800000u, 0x00000001u, 0xff800000u};
  const uint16_t bias[] = {0x3f80, 0x8000, 0x3f80, 0x0000, 0x7f80}; /* 1, -0, 1, 0, inf */
  const uint32_t with_bias[] = {0x7fc00000u, 0x80000000u, 0x40000000u, 0x00000001u, 0x7fc00000u};
  uint32_t out[5];
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    dg_gemm_args args = dg_gemm_args_init();
    args.order = (dg_order)order;
    args.a = dg_row_major(NULL, DG_BF16, 1, 0);
    args.b = dg_row_major(NULL, DG_BF16, 0, 5);
    args.out = dg_row_major(out, DG_F32, 1, 5);
    memset(out, 0xa5, sizeof out);
    assert_int_equal(dg_gemm(cpu, &args), DG_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(out[i], 0);
    args.start = dg_row_major(start, DG_F32, 1, 5);
    assert_int_equal(dg_gemm(cpu, &args), DG_OK);
    assert_memory_equal(out, want, sizeof out);
    args.bias = dg_row_major(bias, DG_BF16, 1, 5);
    assert_int_equal(dg_gemm(cpu, &args), DG_OK);
    assert_memory_equal(out, with_bias, sizeof out);
  }
}

/* 1 * 1 + bias in each type of bias; the sum is rounded once. */
static void bias_types(void **unused) {
  (void)unused;
  const uint16_t one = 0x3f80, half_bf16 = 0x3f00, half_f16 = 0x3800;
  const float half = 0.5F, tie = 0x1p-8F + 0x1p-20F;
  const struct {
    const void *bias;
    dg_dtype dtype;
    uint16_t want;
  } all[] = {{&half_bf16, DG_BF16, 0x3fc0},
             {&half_f16, DG_F16, 0x3fc0},
             {&half, DG_F32, 0x3fc0},
             {&tie, DG_F32, 0x3f81}}; /* rounding the bias to BF16 first would give the tie, 1.0 */
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++)
    for (int i = 0; i < 4; i++) {
      uint16_t out = 0;
      dg_gemm_args args = dg_gemm_args_init();
      args.order = (dg_order)order;
      args.a = args.b = dg_row_major(&one, DG_BF16, 1, 1);
      args.out = dg_row_major(&out, DG_BF16, 1, 1);
      args.bias = dg_row_major(all[i].bias, all[i].dtype, 1, 1);
      assert_int_equal(dg_gemm(cpu, &args), DG_OK);
      assert_int_equal(out, all[i].want);
    }
}

/* ---- what may not change a bit ---- */

enum { LINES = 37, COLUMNS = 70, DEPTH = 83 };

/* One product, big enough for several tiles, and its bits by the reference. */
typedef struct whole {
  uint16_t a[LINES * DEPTH], b[DEPTH * COLUMNS];
  uint32_t start[LINES * COLUMNS], want[LINES * COLUMNS], got[LINES * COLUMNS];
  dg_gemm_args args;
} whole;

static void make_whole(whole *w, dg_order order, input_class which) {
  fill(w->a, LINES * DEPTH, DG_BF16, which, 11);
  fill(w->b, DEPTH * COLUMNS, DG_BF16, which, 12);
  fill(w->start, LINES * COLUMNS, DG_F32, which, 13);
  w->args = dg_gemm_args_init();
  w->args.order = order;
  w->args.a = dg_row_major(w->a, DG_BF16, LINES, DEPTH);
  w->args.b = dg_row_major(w->b, DG_BF16, DEPTH, COLUMNS);
  w->args.start = dg_row_major(w->start, DG_F32, LINES, COLUMNS);
  w->args.out = dg_row_major(w->want, DG_F32, LINES, COLUMNS);
  assert_int_equal(dg_reference(&w->args), DG_OK);
  w->args.out.data = w->got;
}

/* Runs body for every kernel, and for the device's own choice, with every input class. */
static void for_all(void (*body)(const subject *s, whole *w)) {
  subject list[MAX_SUBJECTS];
  whole *w = malloc(sizeof *w);
  int count = subjects_open("cpu", NULL, list);
  assert_non_null(w);
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++)
    for (int which = 0; which < INPUTS; which++) {
      make_whole(w, (dg_order)order, (input_class)which);
      const subject chosen = {.name = "chosen", .device = cpu, .order = (dg_order)order};
      body(&chosen, w);
      for (int i = 0; i < count; i++)
        if ((int)list[i].order == order) body(&list[i], w);
    }
  subjects_close(list, count);
  free(w);
}

/* Part of the whole: rows i.. of A by columns j.. of B, k from..to, into got at the same place. */
static dg_gemm_args part(whole *w, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  dg_gemm_args args = w->args;
  args.a.data = w->a + i * DEPTH;
  args.b.data = w->b + j;
  args.start.data = w->start + i * COLUMNS + j;
  args.out.data = w->got + i * COLUMNS + j;
  args.a.rows = args.out.rows = args.start.rows = rows;
  args.b.cols = args.out.cols = args.start.cols = columns;
  return args;
}

/* A kernel may be made for some shapes only; refusing is allowed to a forced kernel alone. */
static bool computed(const subject *s, const dg_gemm_args *args) {
  const dg_status status = subject_run(s, args);
  if (status == DG_ERROR_UNSUPPORTED && strcmp(s->name, "chosen") != 0) return false;
  if (status != DG_OK) print_error("%s: %s\n", s->name, dg_last_error());
  assert_int_equal(status, DG_OK);
  return true;
}

static void assert_whole(const subject *s, const whole *w) {
  if (memcmp(w->got, w->want, sizeof w->got) != 0) print_error("%s differs\n", s->name);
  assert_memory_equal(w->got, w->want, sizeof w->got);
}

static void every_row_alone(const subject *s, whole *w) {
  memset(w->got, 0xa5, sizeof w->got);
  for (int64_t i = 0; i < LINES; i++) {
    const dg_gemm_args args = part(w, i, 1, 0, COLUMNS);
    if (!computed(s, &args)) return;
  }
  assert_whole(s, w);
}

static void every_column_alone(const subject *s, whole *w) {
  memset(w->got, 0xa5, sizeof w->got);
  for (int64_t j = 0; j < COLUMNS; j++) {
    const dg_gemm_args args = part(w, 0, LINES, j, 1);
    if (!computed(s, &args)) return;
  }
  assert_whole(s, w);
}

/* Every number of rows up to all: the first M rows, then the last M. */
static void every_m(const subject *s, whole *w) {
  for (int64_t m = 1; m <= LINES; m++) {
    memset(w->got, 0xa5, sizeof w->got);
    const dg_gemm_args last = part(w, LINES - m, m, 0, COLUMNS);
    const dg_gemm_args first = part(w, 0, m, 0, COLUMNS);
    if (!computed(s, &last)) continue;
    if (!computed(s, &first)) continue;
    assert_memory_equal(w->got, w->want, sizeof w->got[0] * (size_t)(m * COLUMNS));
    assert_memory_equal(w->got + (LINES - m) * COLUMNS, w->want + (LINES - m) * COLUMNS,
                        sizeof w->got[0] * (size_t)(m * COLUMNS));
  }
}

static void every_cut(const subject *s, whole *w) {
  const int64_t step = w->args.order == DG_ORDER_TC16 ? 16 : 1;
  for (int64_t cut = 0; cut <= DEPTH; cut += step) {
    dg_gemm_args low = w->args, high = w->args;
    low.a.cols = low.b.rows = cut;
    high.a.cols = high.b.rows = DEPTH - cut;
    high.a.data = w->a + cut;
    high.b.data = w->b + cut * COLUMNS;
    high.start = high.out; /* in place */
    memset(w->got, 0xa5, sizeof w->got);
    if (!computed(s, &low) || !computed(s, &high)) return;
    assert_whole(s, w);
  }
}

static void every_hostile_environment(const subject *s, whole *w) {
  for (int i = 0; hostile_set(i); i++) {
    hostile_reset();
    memset(w->got, 0xa5, sizeof w->got);
    hostile_set(i);
    const int mode = fegetround();
    const dg_status status = subject_run(s, &w->args);
    const int mode_after = fegetround();
    hostile_reset();
    assert_int_equal(mode, mode_after);
    if (status == DG_ERROR_UNSUPPORTED && strcmp(s->name, "chosen") != 0) continue;
    assert_int_equal(status, DG_OK);
    assert_whole(s, w);
  }
}

#define INVARIANCE(name)                                  \
  static void name##_gives_the_same_bits(void **unused) { \
    (void)unused;                                         \
    for_all(name);                                        \
  }
INVARIANCE(every_row_alone)
INVARIANCE(every_column_alone)
INVARIANCE(every_m)
INVARIANCE(every_cut)
INVARIANCE(every_hostile_environment)

/* Every kernel, on a product that is worth several threads; the workers too compute in the orders'
 * floating-point environment, whatever the caller's is. */
static void every_thread_count_gives_the_same_bits(void **unused) {
  (void)unused;
  static const int counts[] = {1, 2, 3, 4, 5, 16, 1000};
  static uint32_t got[SIMPLE_M * SIMPLE_N];
  subject list[MAX_SUBJECTS];
  simple *s = malloc(sizeof *s);
  assert_non_null(s);
  simple_make(s, 3);
  const int count = subjects_open("cpu", NULL, list);
  for (int i = 0; i < count; i++)
    for (int n = 0; n < 7; n++) {
      memset(got, 0xa5, sizeof got);
      dg_device_set_threads(list[i].device, counts[n]);
      hostile_set(n);
      const dg_status status = simple_run(s, list[i].device, list[i].order, got);
      hostile_reset();
      if (status == DG_ERROR_UNSUPPORTED) continue; /* made for other shapes */
      assert_int_equal(status, DG_OK);
      assert_memory_equal(got, s->want[list[i].order - DG_ORDER_FMA], sizeof got);
    }
  subjects_close(list, count);
  free(s);
}

/* The reference promises the same independence of the caller's environment. */
static void reference_in_hostile_environments(void **unused) {
  (void)unused;
  whole *w = malloc(sizeof *w);
  assert_non_null(w);
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++)
    for (int i = 0; hostile_set(i); i++) {
      hostile_reset();
      make_whole(w, (dg_order)order, INPUT_TINY);
      hostile_set(i);
      const dg_status status = dg_reference(&w->args);
      hostile_reset();
      assert_int_equal(status, DG_OK);
      assert_memory_equal(w->got, w->want, sizeof w->got);
    }
  free(w);
}

/* A caller that traps floating-point exceptions is not hit by those of the product, and finds its
 * own flags and traps as they were. */
static void traps_of_the_caller(void **unused) {
  (void)unused;
#ifdef FE_ALL_EXCEPT
  whole *w = malloc(sizeof *w);
  assert_non_null(w);
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    make_whole(w, (dg_order)order, INPUT_RAW);
    feclearexcept(FE_ALL_EXCEPT);
    const int before = feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    const int enabled = fegetexcept();
    const dg_status status = dg_gemm(cpu, &w->args);
    const int after = fegetexcept(), raised = fetestexcept(FE_ALL_EXCEPT);
    fedisableexcept(FE_ALL_EXCEPT);
    assert_true(before >= 0);
    assert_int_equal(status, DG_OK);
    assert_int_equal(enabled, after);
    assert_int_equal(raised, 0);
    assert_whole(&(subject){.name = "chosen"}, w);
  }
  free(w);
#endif
}

/* One B for every member of the batch, one A for every member, members in backward sequence. */
static void batches_share_and_turn(void **unused) {
  (void)unused;
  enum { Z = 3, R = 7, D = 33, C = 9 };
  uint16_t a[Z * R * D], b[D * C];
  float out[Z * R * C], want[Z * R * C];
  fill(a, Z * R * D, DG_BF16, INPUT_WIDE, 5);
  fill(b, D * C, DG_BF16, INPUT_WIDE, 6);
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    dg_gemm_args args = dg_gemm_args_init();
    args.order = (dg_order)order;
    args.b = dg_row_major(b, DG_BF16, D, C);
    args.b.batch_stride = 0;
    for (int z = 0; z < Z; z++) { /* one at a time, last member first */
      args.a = dg_row_major(a + (Z - 1 - z) * R * D, DG_BF16, R, D);
      args.out = dg_row_major(want + z * R * C, DG_F32, R, C);
      assert_int_equal(dg_reference(&args), DG_OK);
    }
    args.batch = Z;
    args.a.data = a + (Z - 1) * R * D;
    args.a.batch_stride = -R * D;
    args.out = dg_row_major(out, DG_F32, R, C);
    memset(out, 0xa5, sizeof out);
    assert_int_equal(dg_gemm(cpu, &args), DG_OK);
    assert_memory_equal(out, want, sizeof out);
  }
}

/* Rows and columns more than 2^31 elements apart, up and down, in memory that is mostly not there.
 */
static void far_strides(void **unused) {
  (void)unused;
  enum { SIZE = 3 };
  const int64_t far = (INT64_C(1) << 31) + 12345, half = 2 * far + 4 * SIZE, bytes = 4 * half;
  char *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) skip();
  uint16_t near[3][SIZE * SIZE], want[SIZE * SIZE];
  fill(near, 3 * SIZE * SIZE, DG_BF16, INPUT_PLAIN, 7);
  dg_gemm_args args = dg_gemm_args_init();
  args.a = dg_row_major(near[0], DG_BF16, SIZE, SIZE);
  args.b = dg_row_major(near[1], DG_BF16, SIZE, SIZE);
  args.out = dg_row_major(want, DG_BF16, SIZE, SIZE);
  for (int order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++) {
    args.order = (dg_order)order;
    args.a.data = near[0], args.b.data = near[1], args.out.data = want;
    args.a.row_stride = args.out.row_stride = args.b.row_stride = SIZE;
    args.b.col_stride = 1;
    assert_int_equal(dg_reference(&args), DG_OK);
    /* a: rows far apart; b: columns far apart, from the far end; out: rows far apart */
    uint16_t *const a = (uint16_t *)(void *)memory, *const c = a + SIZE, *const b = a + half;
    for (int i = 0; i < SIZE; i++)
      for (int j = 0; j < SIZE; j++) {
        a[i * far + j] = near[0][i * SIZE + j];
        b[(SIZE - 1 - j) * far + i] = near[1][i * SIZE + j];
      }
    args.a.data = a, args.a.row_stride = far;
    args.b.data = b + (SIZE - 1) * far, args.b.row_stride = 1, args.b.col_stride = -far;
    args.out.data = c, args.out.row_stride = far;
    assert_int_equal(dg_gemm(cpu, &args), DG_OK);
    for (int i = 0; i < SIZE; i++)
      assert_memory_equal(c + i * far, want + i * SIZE, sizeof want[0] * SIZE);
  }
  munmap(memory, (size_t)bytes);
}

static int open_cpu(void **unused) {
  (void)unused;
  return dg_device_open("cpu", &cpu) != DG_OK;
}

static int close_cpu(void **unused) {
  (void)unused;
  dg_device_close(cpu);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(nulls),
      cmocka_unit_test(device_names),
      cmocka_unit_test(environment),
      cmocka_unit_test(never_another_order),
      cmocka_unit_test(kernels_are_listed),
      cmocka_unit_test(versions),
      cmocka_unit_test(errors_are_per_thread),
      cmocka_unit_test(overlaps),
      cmocka_unit_test(empty_products),
      cmocka_unit_test(no_elements_any_strides),
      cmocka_unit_test(empty_sums),
      cmocka_unit_test(bias_types),
      cmocka_unit_test(every_row_alone_gives_the_same_bits),
      cmocka_unit_test(every_column_alone_gives_the_same_bits),
      cmocka_unit_test(every_m_gives_the_same_bits),
      cmocka_unit_test(every_cut_gives_the_same_bits),
      cmocka_unit_test(every_thread_count_gives_the_same_bits),
      cmocka_unit_test(every_hostile_environment_gives_the_same_bits),
      cmocka_unit_test(reference_in_hostile_environments),
      cmocka_unit_test(traps_of_the_caller),
      cmocka_unit_test(batches_share_and_turn),
      cmocka_unit_test(far_strides),
  };
  return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
