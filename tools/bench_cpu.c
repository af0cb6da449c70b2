/* Times products on the CPU, with OpenBLAS beside them. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum {
  MIN_SAMPLES = 5,
  MAX_SAMPLES = 50,
  SMALL = 64,
  ROW_MAJOR = 101,
  PLAIN = 111,
  TRANSPOSED = 112
};
static const int64_t ROTATED_BYTES = 256 << 20;

typedef void sgemm_function(int, int, int, int, int, int, float, const float *, int, const float *,
                            int, float, float *, int);

typedef struct cpu_state {
  void *library;
  sgemm_function *sgemm;
  void (*set_threads)(int);
} cpu_state;

/* The operands of one row; the FP32 ones are the peer's. */
typedef struct operands {
  uint16_t *a, *b, *out;
  float *wide_a, *wide_b, *wide_out;
  int count; /* copies of b */
  int64_t b_elements;
} operands;

static void *allocate(int64_t count, size_t size) {
  void *data = NULL;
  return posix_memalign(&data, 64, (size_t)count * size + 64) == 0 ? data : NULL;
}

static void free_operands(operands *o) {
  void *all[] = {o->a, o->b, o->out, o->wide_a, o->wide_b, o->wide_out};
  for (int i = 0; i < 6; i++) free(all[i]);
}

static bool make_operands(operands *o, const bench_row *row, bool peer) {
  const bench_product p = bench_product_of(row);
  const int64_t a = p.rows * p.sums, c = p.rows * p.cols;
  memset(o, 0, sizeof *o);
  o->count = p.rows <= SMALL ? bench_rotation(row, ROTATED_BYTES) : 1;
  o->b_elements = p.cols * p.sums;
  const int64_t b = o->b_elements * o->count;
  o->a = allocate(a, 2);
  o->b = allocate(b, 2);
  o->out = allocate(c, 2);
  if (peer) {
    o->wide_a = allocate(a, 4);
    o->wide_b = allocate(b, 4);
    o->wide_out = allocate(c, 4);
  }
  if (!o->a || !o->b || !o->out || (peer && (!o->wide_a || !o->wide_b || !o->wide_out))) {
    complain("no memory to time %" PRId64 " x %" PRId64 " x %" PRId64, row->m, row->n, row->k);
    return false;
  }
  bench_fill(o->a, a);
  bench_fill(o->b, b);
  if (peer) {
    bench_widen(o->wide_a, o->a, a);
    bench_widen(o->wide_b, o->b, b);
  }
  return true;
}

static bool call_ours(bench_engine *engine, const bench_row *row, const operands *o, int turn) {
  const dg_gemm_args g = bench_args(row, o->a, o->b + o->b_elements * (turn % o->count), o->out);
  if (dg_gemm(engine->device, &g) == DG_OK) return true;
  complain("%s", dg_last_error());
  return false;
}

static void call_peer(const cpu_state *s, const bench_row *row, const operands *o, int turn) {
  const bench_product p = bench_product_of(row);
  const int m = (int)p.rows, n = (int)p.cols, k = (int)p.sums;
  s->sgemm(ROW_MAJOR, p.a_transposed ? TRANSPOSED : PLAIN, p.b_transposed ? TRANSPOSED : PLAIN, m,
           n, k, 1, o->wide_a, p.a_transposed ? m : k,
           o->wide_b + o->b_elements * (turn % o->count), p.b_transposed ? k : n, 0, o->wide_out,
           n);
}

/* Samples of ours and the peer's alternate, so that both see the same machine. A sample is as many
 * calls as take a millisecond. */
static bool take_samples(bench_engine *engine, bench_row *row, const operands *o) {
  const cpu_state *s = engine->state;
  const bool peer = o->wide_a != NULL;
  double ours[MAX_SAMPLES], theirs[MAX_SAMPLES];
  const double first = now();
  if (!call_ours(engine, row, o, 0)) return false;
  const double estimate = now() - first;
  if (peer) call_peer(s, row, o, 0);
  const int calls = estimate > 1e-3 ? 1 : (int)(1e-3 / (estimate + 1e-7)) + 1;
  int count = 0, turn = 1;
  for (const double begin = now();
       count < MIN_SAMPLES || (count < MAX_SAMPLES && now() - begin < 0.5); count++) {
    const double t0 = now();
    for (int i = 0; i < calls; i++)
      if (!call_ours(engine, row, o, turn + i)) return false;
    const double t1 = now();
    for (int i = 0; peer && i < calls; i++) call_peer(s, row, o, turn + i);
    const double t2 = now();
    ours[count] = (t1 - t0) / calls;
    theirs[count] = (t2 - t1) / calls;
    turn += calls;
  }
  row->seconds = bench_median(ours, count);
  if (peer) row->peer_seconds = bench_median(theirs, count);
  return true;
}

static bool cpu_measure(bench_engine *engine, bench_row *row) {
  const cpu_state *s = engine->state;
  operands o;
  dg_kernel_info kernel;
  const bool peer =
      s->sgemm != NULL && row->m <= INT32_MAX && row->n <= INT32_MAX && row->k <= INT32_MAX;
  bool good =
      dg_device_set_threads(engine->device, row->threads) == DG_OK && make_operands(&o, row, peer);
  if (!good) return false;
  if (s->set_threads) s->set_threads(row->threads);
  const dg_gemm_args g = bench_args(row, o.a, o.b, o.out);
  if (dg_gemm_kernel(engine->device, &g, &kernel) != DG_OK) {
    complain("%s", dg_last_error());
    good = false;
  }
  if (good) snprintf(row->kernel, sizeof row->kernel, "%s", kernel.name);
  good = good && take_samples(engine, row, &o);
  free_operands(&o);
  return good;
}

/* The address of a function, which ISO C does not let a void pointer be. */
static bool find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static void open_openblas(bench_engine *engine, cpu_state *s) {
  s->library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (s->library == NULL) s->library = dlopen("libopenblas.so", RTLD_NOW | RTLD_LOCAL);
  if (s->library == NULL || !find(s->library, "cblas_sgemm", &s->sgemm) ||
      !find(s->library, "openblas_set_num_threads", &s->set_threads)) {
    complain("no OpenBLAS here (apt-get install libopenblas0): no ratios to it");
    s->sgemm = NULL;
    return;
  }
  engine->peer = "OpenBLAS sgemm";
}

static void cpu_close(bench_engine *engine) {
  free(engine->state); /* OpenBLAS has threads: it stays loaded */
}

bool bench_cpu_open(bench_engine *engine, const char *peer, int threads) {
  cpu_state *s = calloc(1, sizeof *s);
  if (s == NULL) return complain("no memory") == EXIT_GOOD;
  engine->state = s;
  engine->measure = cpu_measure;
  engine->close = cpu_close;
  if (strcmp(peer, "openblas") == 0) open_openblas(engine, s);
  engine->peak = measure_fma_peak(threads);
  engine->bandwidth = measure_bandwidth(threads);
  return true;
}
