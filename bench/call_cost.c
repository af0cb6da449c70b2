/* What a dg_gemm on a GPU costs the calling thread: which driver calls it makes, and its time with
 * the driver and with a driver whose calls of a product return at once (the library's own share).
 *
 *   call_cost [DEVICE]        by default cuda:0; on a double of the driver without the first time
 *
 * It reaches into the library, so that the driver's functions can be exchanged under an open
 * device. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../src/gpu/driver.h"

/* The functions that a product may call. */
typedef enum call { CURRENT, PUSH, POP, LOOK_UP, ENCODE, LAUNCH, CALLS } call;
static const char *const names[CALLS] = {"current", "push", "pop", "look-up", "encode", "launch"};

static dg_gpu_driver real;
static int counts[CALLS];
static void *fixed_context;

static int count_current(void **c) {
  counts[CURRENT]++;
  return real.context_get(c);
}
static int count_push(void *c) {
  counts[PUSH]++;
  return real.context_push(c);
}
static int count_pop(void **c) {
  counts[POP]++;
  return real.context_pop(c);
}
static int count_look_up(unsigned n, const int *attributes, void **values, void *pointer) {
  counts[LOOK_UP]++;
  return real.pointer_get(n, attributes, values, pointer);
}
static int count_encode(dg_gpu_tensor_map *map, int type, uint32_t rank, void *base,
                        const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                        const uint32_t *steps, int interleave, int swizzle, int promotion,
                        int fill) {
  counts[ENCODE]++;
  return real.encode_map(map, type, rank, base, dims, strides, box, steps, interleave, swizzle,
                         promotion, fill);
}
static int count_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, void *stream, void **parameters,
                        void **extra) {
  counts[LAUNCH]++;
  return real.launch(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
static int count_launch_config(const dg_gpu_config *config, void *f, void **parameters,
                               void **extra) {
  counts[LAUNCH]++;
  return real.launch_config(config, f, parameters, extra);
}

static int same_context(void **c) {
  *c = fixed_context;
  return 0;
}
static int encode_nothing(dg_gpu_tensor_map *map, int type, uint32_t rank, void *base,
                          const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                          const uint32_t *steps, int interleave, int swizzle, int promotion,
                          int fill) {
  (void)map, (void)type, (void)rank, (void)base, (void)dims, (void)strides, (void)box;
  (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
  return 0;
}
static int launch_nothing(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void *stream, void **parameters,
                          void **extra) {
  (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
  (void)shared, (void)stream, (void)parameters, (void)extra;
  return 0;
}
static int launch_config_nothing(const dg_gpu_config *config, void *f, void **parameters,
                                 void **extra) {
  (void)config, (void)f, (void)parameters, (void)extra;
  return 0;
}

static const dg_gpu_driver *counting(dg_gpu_driver *table) {
  *table = real;
  table->context_get = count_current;
  table->context_push = count_push;
  table->context_pop = count_pop;
  if (real.pointer_get) table->pointer_get = count_look_up;
  if (real.encode_map) table->encode_map = count_encode;
  table->launch = count_launch;
  if (real.launch_config) table->launch_config = count_launch_config;
  return table;
}

/* Look-ups stay: they are made once per pointer. */
static const dg_gpu_driver *idle(dg_gpu_driver *table) {
  *table = real;
  table->context_get = same_context;
  if (real.encode_map) table->encode_map = encode_nothing;
  table->launch = launch_nothing;
  if (real.launch_config) table->launch_config = launch_config_nothing;
  return table;
}

static void must(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, dg_last_error());
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { WEIGHTS = 4, BATCH = 64, ROUNDS = 200 };

typedef struct rotation {
  dg_device *device;
  dg_gemm_args args;
  char *b;
  size_t b_bytes;
  int count; /* weights to rotate over */
} rotation;

static void call_some(rotation *r, int calls) {
  for (int i = 0; i < calls; i++) {
    r->args.b.data = r->b + (size_t)(i % r->count) * r->b_bytes;
    must(dg_gemm(r->device, &r->args) == DG_OK, "dg_gemm");
  }
}

/* The least time of a call over rounds of few enough that the driver's queue takes them. */
static double least(rotation *r, int rounds, void *read_back) {
  double best = 1e9;
  for (int i = 0; i < rounds; i++) {
    uint32_t word;
    const double begin = now();
    call_some(r, BATCH);
    const double each = (now() - begin) / BATCH;
    if (each < best) best = each;
    if (read_back) must(real.copy_out(&word, read_back, sizeof word) == 0, "waiting");
  }
  return best;
}

static void measure(dg_device *device, dg_order order, int64_t m, int64_t n, int64_t k,
                    bool is_double) {
  dg_gpu_state *state = device->state;
  dg_gpu_driver *table = &state->platform->driver, exchanged;
  rotation r = {.device = device, .args = dg_gemm_args_init(), .b_bytes = (size_t)(n * k) * 2};
  dg_kernel_info kernel;
  void *a = NULL, *b = NULL, *out = NULL;
  must(table->alloc(&a, (size_t)(m * k) * 2) == 0 && table->alloc(&b, WEIGHTS * r.b_bytes) == 0 &&
           table->alloc(&out, (size_t)(m * n) * 2) == 0,
       "memory");
  r.b = b;
  r.args.order = order;
  r.args.a = dg_row_major(a, DG_BF16, m, k);
  r.args.b = dg_transposed(dg_row_major(b, DG_BF16, n, k));
  r.args.out = dg_row_major(out, DG_BF16, m, n);
  must(dg_gemm_kernel(device, &r.args, &kernel) == DG_OK, "choosing");
  printf("%-4s %5lld x %5lld x %5lld  %-22s", order == DG_ORDER_FMA ? "fma" : "tc16", (long long)m,
         (long long)n, (long long)k, kernel.name);
  r.count = WEIGHTS;
  call_some(&r, 2 * WEIGHTS);
  memset(counts, 0, sizeof counts);
  *table = *counting(&exchanged);
  call_some(&r, WEIGHTS);
  *table = real;
  if (is_double) printf("  %8s", "-");
  else printf("  %8.2f", 1e6 * least(&r, ROUNDS / 4, out));
  *table = *idle(&exchanged); /* last: what the library remembers of this shape is void then */
  printf("  %8.2f", 1e6 * least(&r, ROUNDS, NULL));
  r.count = 1;
  printf("  %8.2f ", 1e6 * least(&r, ROUNDS, NULL));
  *table = real;
  for (int i = 0; i < CALLS; i++)
    if (counts[i]) printf(" %s %.3g", names[i], (double)counts[i] / WEIGHTS);
  printf("\n");
  table->release(a);
  table->release(b);
  table->release(out);
}

static void compute_nothing(const void *launch) { (void)launch; }

/* A double of the driver (tests/fake_driver.h) would compute every product. */
static bool quieten_double(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  void (*hook)(void (*)(const void *)) = NULL;
  void *symbol = library ? dlsym(library, "fake_driver_execute") : NULL;
  if (symbol == NULL) return false;
  memcpy(&hook, &symbol, sizeof symbol);
  hook(compute_nothing);
  return true;
}

int main(int argc, char **argv) {
  dg_device *device;
  bool pushed;
  must(dg_device_open(argc > 1 ? argv[1] : "cuda:0", &device) == DG_OK, "opening");
  dg_gpu_state *state = device->state;
  const bool is_double = quieten_double();
  real = state->platform->driver;
  fixed_context = state->context;
  printf(
      "%s\nmicroseconds of a call: all; the library's own, the driver returning at once, with %d "
      "weights in turn and with one; driver calls\n",
      dg_device_description(device), WEIGHTS);
  must(dg_gpu_enter(state, &pushed) == 0, "the context");
  static const int64_t rows[] = {1, 16, 128, 1024};
  for (dg_order order = DG_ORDER_FMA; order <= DG_ORDER_TC16; order++)
    for (int i = 0; i < 4; i++) measure(device, order, rows[i], 1024, 1024, is_double);
  dg_gpu_leave(state, pushed);
  dg_device_close(device);
}
