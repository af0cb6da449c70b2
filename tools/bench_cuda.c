/* Times products on an NVIDIA GPU in CUDA graphs of back-to-back calls, with cuBLAS beside them. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cuda_driver.h"

enum { REPLAYS = 7, MIN_CALLS = 8, WORKSPACE = 64 << 20, R_32F = 0, R_16BF = 14, COMPUTE_32F = 68 };
static const int64_t ROTATED_BYTES = 400000000;

/* cuBLAS: all return a cublasStatus_t. */
#define CUBLAS_FUNCTIONS(F)                                                               \
  F(cublasCreate_v2, (void **))                                                           \
  F(cublasDestroy_v2, (void *))                                                           \
  F(cublasSetStream_v2, (void *, void *))                                                 \
  F(cublasSetWorkspace_v2, (void *, void *, size_t))                                      \
  F(cublasGemmEx, (void *, int, int, int, int, int, const void *, const void *, int, int, \
                   const void *, int, int, const void *, void *, int, int, int, int))

typedef struct cuda_state {
  cuda_driver *cuda;
  void *stream, *library, *handle, *workspace;
#define CUBLAS_FIELD(name, parameters) int(*name) parameters;
  CUBLAS_FUNCTIONS(CUBLAS_FIELD)
#undef CUBLAS_FIELD
} cuda_state;

/* The operands of one row on the device: count copies of b. */
typedef struct operands {
  char *a, *b, *out;
  int count;
  int64_t b_bytes;
} operands;

/* What a graph is recorded from: one call of turn i. */
typedef bool call_function(bench_engine *engine, const bench_row *row, const operands *o, int i);

static bool call_ours(bench_engine *engine, const bench_row *row, const operands *o, int i) {
  const cuda_state *s = engine->state;
  dg_gemm_args g = bench_args(row, o->a, o->b + o->b_bytes * (i % o->count), o->out);
  g.stream = s->stream;
  if (dg_gemm(engine->device, &g) == DG_OK) return true;
  complain("%s", dg_last_error());
  return false;
}

/* Row-major C = A B is column-major C^T = B^T A^T. BF16 for tc16, true FP32 for fma. */
static bool call_peer(bench_engine *engine, const bench_row *row, const operands *o, int i) {
  const cuda_state *s = engine->state;
  const bench_product p = bench_product_of(row);
  const int m = (int)p.rows, n = (int)p.cols, k = (int)p.sums;
  const int type = row->order == DG_ORDER_FMA ? R_32F : R_16BF;
  const float one = 1, zero = 0;
  const int status =
      s->cublasGemmEx(s->handle, p.b_transposed, p.a_transposed, n, m, k, &one,
                      o->b + o->b_bytes * (i % o->count), type, p.b_transposed ? k : n, o->a, type,
                      p.a_transposed ? m : k, &zero, o->out, type, n, COMPUTE_32F, -1);
  if (status == 0) return true;
  complain("cublasGemmEx failed with status %d", status);
  return false;
}

static bool record(bench_engine *engine, const bench_row *row, const operands *o, int calls,
                   call_function *call, void **graph) {
  const cuda_state *s = engine->state;
  const cuda_driver *cuda = s->cuda;
  const int relaxed = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */
  if (!cuda_check(cuda, cuda->cuStreamBeginCapture_v2(s->stream, relaxed), "cuStreamBeginCapture"))
    return false;
  bool good = true;
  for (int i = 0; good && i < calls; i++) good = call(engine, row, o, i);
  void *captured = NULL;
  const int status = cuda->cuStreamEndCapture(s->stream, &captured);
  good =
      good && cuda_check(cuda, status, "cuStreamEndCapture") &&
      cuda_check(cuda, cuda->cuGraphInstantiateWithFlags(graph, captured, 0), "cuGraphInstantiate");
  if (captured) cuda->cuGraphDestroy(captured);
  return good;
}

static bool replay(const cuda_state *s, void *graph, void *begin, void *end, double *seconds) {
  const cuda_driver *cuda = s->cuda;
  float milliseconds = 0;
  const bool good =
      cuda_check(cuda, cuda->cuEventRecord(begin, s->stream), "cuEventRecord") &&
      cuda_check(cuda, cuda->cuGraphLaunch(graph, s->stream), "cuGraphLaunch") &&
      cuda_check(cuda, cuda->cuEventRecord(end, s->stream), "cuEventRecord") &&
      cuda_check(cuda, cuda->cuEventSynchronize(end), "the timed calls") &&
      cuda_check(cuda, cuda->cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
  *seconds = (double)milliseconds * 1e-3;
  return good;
}

static bool time_graph(bench_engine *engine, void *graph, int calls, double *seconds) {
  const cuda_state *s = engine->state;
  const cuda_driver *cuda = s->cuda;
  void *begin = NULL, *end = NULL;
  double times[REPLAYS], warm;
  bool good = cuda_check(cuda, cuda->cuEventCreate(&begin, 0), "cuEventCreate") &&
              cuda_check(cuda, cuda->cuEventCreate(&end, 0), "cuEventCreate") &&
              replay(s, graph, begin, end, &warm) && replay(s, graph, begin, end, &warm);
  for (int i = 0; good && i < REPLAYS; i++) good = replay(s, graph, begin, end, &times[i]);
  if (good) *seconds = bench_median(times, REPLAYS) / calls;
  if (begin) cuda->cuEventDestroy_v2(begin);
  if (end) cuda->cuEventDestroy_v2(end);
  return good;
}

/* One call outside the graph first: cuBLAS loads its kernels then, which a capture forbids. */
static bool time_calls(bench_engine *engine, const bench_row *row, const operands *o,
                       call_function *call, double *seconds) {
  const cuda_state *s = engine->state;
  const int calls = o->count > MIN_CALLS ? o->count : MIN_CALLS;
  void *graph = NULL;
  const bool good =
      call(engine, row, o, 0) &&
      cuda_check(s->cuda, s->cuda->cuStreamSynchronize(s->stream), "the first call") &&
      record(engine, row, o, calls, call, &graph) && time_graph(engine, graph, calls, seconds);
  if (graph) s->cuda->cuGraphExecDestroy(graph);
  return good;
}

/* Random BF16 numbers on the device, as FP32 if wide; copies follow one another. */
static char *make_data(device_memory *memory, int64_t count, bool wide, int copies) {
  const size_t bytes = (size_t)count * (wide ? 4 : 2);
  uint16_t *narrow = malloc((size_t)count * 2 + 1);
  float *widened = wide ? malloc(bytes + 1) : NULL;
  char *data = NULL;
  if (narrow && (!wide || widened)) {
    bench_fill(narrow, count);
    if (wide) bench_widen(widened, narrow, count);
    data = memory->platform->alloc(memory, bytes * (size_t)copies);
  }
  const void *from = wide ? (const void *)widened : narrow;
  for (int i = 0; data && i < copies; i++)
    if (!memory->platform->to_device(memory, data + bytes * (size_t)i, from, bytes)) {
      memory->platform->release(memory, data);
      data = NULL;
    }
  free(narrow);
  free(widened);
  return data;
}

static void name_kernel(const bench_engine *engine, bench_row *row, const operands *o) {
  const dg_gemm_args g = bench_args(row, o->a, o->b, o->out);
  dg_kernel_info kernel;
  if (dg_gemm_kernel(engine->device, &g, &kernel) == DG_OK)
    snprintf(row->kernel, sizeof row->kernel, "%s", kernel.name);
}

static bool measure_with(bench_engine *engine, bench_row *row, bool wide, call_function *call,
                         double *seconds) {
  const bench_product p = bench_product_of(row);
  device_memory *memory = engine->memory;
  operands o = {.count = bench_rotation(row, ROTATED_BYTES)};
  o.b_bytes = p.cols * p.sums * (wide ? 4 : 2);
  o.a = make_data(memory, p.rows * p.sums, wide, 1);
  o.b = make_data(memory, p.cols * p.sums, wide, o.count);
  o.out = memory->platform->alloc(memory, (size_t)(p.rows * p.cols) * 4);
  if (o.a && o.b && o.out && call == call_ours) name_kernel(engine, row, &o);
  const bool good = o.a && o.b && o.out && time_calls(engine, row, &o, call, seconds);
  memory->platform->release(memory, o.a);
  memory->platform->release(memory, o.b);
  memory->platform->release(memory, o.out);
  return good;
}

static bool cuda_measure(bench_engine *engine, bench_row *row) {
  return measure_with(engine, row, false, call_ours, &row->seconds) &&
         (engine->peer == NULL ||
          measure_with(engine, row, row->order == DG_ORDER_FMA, call_peer, &row->peer_seconds));
}

static bool load_cublas(cuda_state *s) {
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
  for (int i = 0; s->library == NULL && i < 3; i++) s->library = dlopen(names[i], RTLD_NOW);
  if (s->library == NULL) return false;
  void *symbol;
#define CUBLAS_LOAD(name, parameters) \
  symbol = dlsym(s->library, #name);  \
  if (symbol == NULL) return false;   \
  memcpy(&s->name, &symbol, sizeof symbol);
  CUBLAS_FUNCTIONS(CUBLAS_LOAD)
#undef CUBLAS_LOAD
  return true;
}

/* cuBLAS keeps FP32 products in FP32 by default (no TF32) in COMPUTE_32F. */
static void open_cublas(bench_engine *engine, cuda_state *s) {
  if (!load_cublas(s) || s->cublasCreate_v2(&s->handle) != 0) {
    complain(
        "no usable cuBLAS here (is libcublas.so.13 or .12 in LD_LIBRARY_PATH?): no ratios to it");
    return;
  }
  s->workspace = engine->memory->platform->alloc(engine->memory, WORKSPACE);
  if (s->workspace && s->cublasSetStream_v2(s->handle, s->stream) == 0 &&
      s->cublasSetWorkspace_v2(s->handle, s->workspace, WORKSPACE) == 0)
    engine->peer = "cuBLAS";
}

/* A device-to-device copy: bytes read and written per second. */
static double copy_bandwidth(bench_engine *engine) {
  const cuda_state *s = engine->state;
  const cuda_driver *cuda = s->cuda;
  const size_t bytes = (size_t)1 << 30;
  char *data = engine->memory->platform->alloc(engine->memory, 2 * bytes);
  void *begin = NULL, *end = NULL;
  float milliseconds = 0;
  if (data == NULL) return 0;
  const cuda_pointer from = (cuda_pointer)(uintptr_t)data;
  bool good = cuda->cuEventCreate(&begin, 0) == 0 && cuda->cuEventCreate(&end, 0) == 0;
  for (int i = 0; good && i < 12; i++) { /* two to warm up */
    if (i == 2) good = cuda->cuEventRecord(begin, s->stream) == 0;
    good = good && cuda->cuMemcpyDtoDAsync_v2(from + bytes, from, bytes, s->stream) == 0;
  }
  good = good && cuda->cuEventRecord(end, s->stream) == 0 && cuda->cuEventSynchronize(end) == 0 &&
         cuda->cuEventElapsedTime(&milliseconds, begin, end) == 0;
  if (begin) cuda->cuEventDestroy_v2(begin);
  if (end) cuda->cuEventDestroy_v2(end);
  engine->memory->platform->release(engine->memory, data);
  return good && milliseconds > 0 ? 10.0 * 2.0 * (double)bytes / ((double)milliseconds * 1e-3) : 0;
}

static void cuda_close(bench_engine *engine) {
  cuda_state *s = engine->state;
  if (s->handle) s->cublasDestroy_v2(s->handle);
  if (s->workspace) engine->memory->platform->release(engine->memory, s->workspace);
  if (s->stream) s->cuda->cuStreamDestroy_v2(s->stream);
  free(s);
}

bool bench_cuda_open(bench_engine *engine, const char *peer) {
  const unsigned non_blocking = 1;
  cuda_state *s = calloc(1, sizeof *s);
  if (s == NULL) return complain("no memory") == EXIT_GOOD;
  s->cuda = cuda_of(engine->memory);
  engine->state = s;
  engine->measure = cuda_measure;
  engine->close = cuda_close;
  if (!cuda_check(s->cuda, s->cuda->cuStreamCreate(&s->stream, non_blocking), "cuStreamCreate"))
    return false;
  if (strcmp(peer, "cublas") == 0) open_cublas(engine, s);
  engine->bandwidth = copy_bandwidth(engine);
  return true;
}
