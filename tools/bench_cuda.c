/* Times products on an NVIDIA GPU in CUDA graphs of back-to-back calls, with cuBLAS beside them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cublas.h"
#include "bench_table.h"
#include "cuda_driver.h"

enum { REPLAYS = 7, MIN_CALLS = 8, HOST_CALLS = 200 };
static const int64_t ROTATED_BYTES = 400000000, BLOCK_BYTES = 64000002;
static const double GRAPH_SECONDS = 0.05; /* one replay takes about that at most */

typedef struct cuda_state {
  cuda_driver *cuda;
  void *stream, *begin, *end;
  cublas *peer;
  void *block; /* random data on the device, copied into the operands */
} cuda_state;

/* The operands of one row on the device: count copies of b. */
typedef struct operands {
  char *a, *b, *out, *start;
  int count;
  int64_t b_bytes;
  bool wide; /* FP32 */
} operands;

/* One call of turn i. */
typedef bool call_function(bench_engine *engine, const bench_row *row, const operands *o, int i);

static dg_gemm_args args_of(bench_engine *engine, const bench_row *row, const operands *o, int i) {
  const cuda_state *s = engine->state;
  dg_gemm_args g = bench_args(row, o->a, o->b + o->b_bytes * (i % o->count), o->out);
  g.stream = s->stream;
  if (row->start) g.start = dg_row_major(o->start, DG_F32, g.out.rows, g.out.cols);
  return g;
}

static bool call_ours(bench_engine *engine, const bench_row *row, const operands *o, int i) {
  const dg_gemm_args g = args_of(engine, row, o, i);
  if (dg_gemm(engine->device, &g) == DG_OK) return true;
  complain("%s", dg_last_error());
  return false;
}

static bool call_peer(bench_engine *engine, const bench_row *row, const operands *o, int i) {
  const cuda_state *s = engine->state;
  return cublas_product(s->peer, row, o->wide, o->a, o->b + o->b_bytes * (i % o->count), o->out);
}

/* ---- time ---- */

static bool mark(const cuda_state *s, void *event) {
  return cuda_check(s->cuda, s->cuda->cuEventRecord(event, s->stream), "cuEventRecord");
}

static bool elapsed(const cuda_state *s, double *seconds) {
  float milliseconds = 0;
  const bool good =
      mark(s, s->end) &&
      cuda_check(s->cuda, s->cuda->cuEventSynchronize(s->end), "the timed calls") &&
      cuda_check(s->cuda, s->cuda->cuEventElapsedTime(&milliseconds, s->begin, s->end),
                 "cuEventElapsedTime");
  *seconds = (double)milliseconds * 1e-3;
  return good;
}

static bool replay(const cuda_state *s, void *graph, double *seconds) {
  return mark(s, s->begin) &&
         cuda_check(s->cuda, s->cuda->cuGraphLaunch(graph, s->stream), "cuGraphLaunch") &&
         elapsed(s, seconds);
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

/* A graph of calls, warmed up. Outside the graph come first one call, in which cuBLAS loads its
 * kernels, which a capture forbids, and one whose time says how many calls a graph should have. */
typedef struct timed {
  void *graph;
  int calls;
  double one; /* seconds of one call outside the graph */
  double times[REPLAYS];
} timed;

static bool timed_make(bench_engine *engine, const bench_row *row, const operands *o,
                       call_function *call, timed *t) {
  const cuda_state *s = engine->state;
  double warm;
  if (!call(engine, row, o, 0) || !mark(s, s->begin) || !call(engine, row, o, 1) ||
      !elapsed(s, &t->one))
    return false;
  t->calls = o->count > MIN_CALLS ? o->count : MIN_CALLS;
  if (t->one * t->calls > GRAPH_SECONDS) t->calls = 1 + (int)(GRAPH_SECONDS / t->one);
  return record(engine, row, o, t->calls, call, &t->graph) && replay(s, t->graph, &warm) &&
         replay(s, t->graph, &warm);
}

static double timed_median(timed *t) { return bench_median(t->times, REPLAYS) / t->calls; }

/* ---- data ---- */

static char *allocate(bench_engine *engine, int64_t bytes) {
  return engine->memory->platform->alloc(engine->memory, (size_t)bytes);
}

static void release(bench_engine *engine, void *data) {
  if (data) engine->memory->platform->release(engine->memory, data);
}

/* The block, FP32 or BF16: random numbers, of no round length, so that its copies do not fall on
 * the same places of rows. */
static bool make_block(bench_engine *engine, bool wide) {
  cuda_state *s = engine->state;
  const int64_t count = BLOCK_BYTES / (wide ? 4 : 2);
  uint16_t *narrow = malloc((size_t)count * 2);
  float *widened = wide ? malloc((size_t)count * 4) : NULL;
  if (s->block == NULL) s->block = allocate(engine, BLOCK_BYTES);
  bool good = narrow && (!wide || widened) && s->block;
  if (good) {
    bench_fill(narrow, count);
    if (wide) bench_widen(widened, narrow, count);
    good = engine->memory->platform->to_device(engine->memory, s->block,
                                               wide ? (const void *)widened : narrow,
                                               (size_t)count * (wide ? 4 : 2));
  }
  free(narrow);
  free(widened);
  return good;
}

/* Fills device memory from the block. */
static bool spread(bench_engine *engine, char *to, int64_t bytes) {
  const cuda_state *s = engine->state;
  const cuda_pointer from = (cuda_pointer)(uintptr_t)s->block;
  for (int64_t done = 0, now; done < bytes; done += now) {
    now = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES / 4 * 4;
    if (!cuda_check(s->cuda,
                    s->cuda->cuMemcpyDtoDAsync_v2((cuda_pointer)(uintptr_t)to + (size_t)done, from,
                                                  (size_t)now, s->stream),
                    "cuMemcpyDtoDAsync"))
      return false;
  }
  return true;
}

static bool operands_make(bench_engine *engine, const bench_row *row, bool wide, operands *o) {
  const bench_product p = bench_product_of(row);
  const int64_t bytes = wide ? 4 : 2, a_bytes = p.rows * p.sums * bytes;
  const int64_t out_bytes = p.rows * p.cols * 4;
  *o = (operands){.count = bench_rotation(row, ROTATED_BYTES), .wide = wide};
  o->b_bytes = p.cols * p.sums * bytes;
  o->a = allocate(engine, a_bytes);
  o->b = allocate(engine, o->b_bytes * o->count);
  o->out = allocate(engine, out_bytes);
  if (row->start) o->start = allocate(engine, out_bytes);
  return o->a && o->b && o->out && (!row->start || o->start) && make_block(engine, wide) &&
         spread(engine, o->a, a_bytes) && spread(engine, o->b, o->b_bytes * o->count) &&
         (!row->start || spread(engine, o->start, out_bytes));
}

static void operands_free(bench_engine *engine, const operands *o) {
  release(engine, o->a);
  release(engine, o->b);
  release(engine, o->out);
  release(engine, o->start);
}

/* ---- a row ---- */

/* What a call costs the calling thread. The calls are few enough to fit the driver's queue, so that
 * nothing waits for the device. */
static bool measure_host(bench_engine *engine, bench_row *row, const operands *o, double one) {
  const cuda_state *s = engine->state;
  if (one * HOST_CALLS > GRAPH_SECONDS) return true;
  const double begin_time = now();
  for (int i = 0; i < HOST_CALLS; i++)
    if (!call_ours(engine, row, o, i)) return false;
  row->host_seconds = (now() - begin_time) / HOST_CALLS;
  return cuda_check(s->cuda, s->cuda->cuStreamSynchronize(s->stream), "the calls");
}

static void name_kernel(bench_engine *engine, bench_row *row, const operands *o) {
  const dg_gemm_args g = args_of(engine, row, o, 0);
  dg_kernel_info kernel;
  if (dg_gemm_kernel(engine->device, &g, &kernel) == DG_OK)
    snprintf(row->kernel, sizeof row->kernel, "%s", kernel.name);
}

/* Replays of ours and of the peer take turns, so that both see the same clocks. */
static bool replay_both(const cuda_state *s, bench_row *row, timed *ours, timed *theirs) {
  for (int i = 0; i < REPLAYS; i++)
    if ((ours->graph && !replay(s, ours->graph, &ours->times[i])) ||
        (theirs->graph && !replay(s, theirs->graph, &theirs->times[i])))
      return false;
  if (ours->graph) row->seconds = timed_median(ours);
  if (theirs->graph) row->peer_seconds = timed_median(theirs);
  return true;
}

static bool measure(bench_engine *engine, bench_row *row, bool with_ours) {
  const cuda_state *s = engine->state;
  const bool peer = s->peer && !row->start, wide = row->order == DG_ORDER_FMA;
  operands o = {0}, peers = {0};
  timed ours = {0}, theirs = {0};
  bool good = operands_make(engine, row, false, &o);
  if (good && with_ours) {
    good = timed_make(engine, row, &o, call_ours, &ours) && measure_host(engine, row, &o, ours.one);
    name_kernel(engine, row, &o);
  }
  if (good && peer) {
    if (wide) good = operands_make(engine, row, true, &peers);
    good = good && timed_make(engine, row, wide ? &peers : &o, call_peer, &theirs);
  }
  good = good && replay_both(s, row, &ours, &theirs);
  if (ours.graph) s->cuda->cuGraphExecDestroy(ours.graph);
  if (theirs.graph) s->cuda->cuGraphExecDestroy(theirs.graph);
  operands_free(engine, &o);
  operands_free(engine, &peers);
  return good;
}

static bool cuda_measure(bench_engine *engine, bench_row *row) {
  return measure(engine, row, true);
}

/* ---- the machine ---- */

/* A device-to-device copy: bytes read and written per second. */
static double copy_bandwidth(bench_engine *engine) {
  const cuda_state *s = engine->state;
  const size_t bytes = (size_t)1 << 30;
  char *data = allocate(engine, 2 * (int64_t)bytes);
  const cuda_pointer from = (cuda_pointer)(uintptr_t)data;
  double seconds = 0;
  bool good = data != NULL;
  for (int i = 0; good && i < 12; i++) { /* two to warm up */
    if (i == 2) good = mark(s, s->begin);
    good = good && s->cuda->cuMemcpyDtoDAsync_v2(from + bytes, from, bytes, s->stream) == 0;
  }
  good = good && elapsed(s, &seconds);
  release(engine, data);
  return good && seconds > 0 ? 10.0 * 2.0 * (double)bytes / seconds : 0;
}

/* FLOP/s of a large product: the peer's where there is one, else ours. */
static double sustained_rate(bench_engine *engine, dg_order order) {
  const cuda_state *s = engine->state;
  bench_row row = {.order = order, .op = BOP_FORWARD, .m = 8192, .n = 8192, .k = 8192};
  if (!measure(engine, &row, s->peer == NULL)) return 0;
  return row_flops(&row) / (s->peer ? row.peer_seconds : row.seconds);
}

static void cuda_close(bench_engine *engine) {
  cuda_state *s = engine->state;
  cublas_close(s->peer);
  release(engine, s->block);
  if (s->begin) s->cuda->cuEventDestroy_v2(s->begin);
  if (s->end) s->cuda->cuEventDestroy_v2(s->end);
  if (s->stream) s->cuda->cuStreamDestroy_v2(s->stream);
  free(s);
}

bool bench_cuda_open(bench_engine *engine, const char *peer, unsigned orders) {
  const unsigned non_blocking = 1;
  cuda_state *s = calloc(1, sizeof *s);
  if (s == NULL) return complain("no memory") == EXIT_GOOD;
  s->cuda = cuda_of(engine->memory);
  engine->state = s;
  engine->measure = cuda_measure;
  engine->close = cuda_close;
  if (!cuda_check(s->cuda, s->cuda->cuStreamCreate(&s->stream, non_blocking), "cuStreamCreate") ||
      !cuda_check(s->cuda, s->cuda->cuEventCreate(&s->begin, 0), "cuEventCreate") ||
      !cuda_check(s->cuda, s->cuda->cuEventCreate(&s->end, 0), "cuEventCreate"))
    return false;
  if (strcmp(peer, "cublas") == 0) s->peer = cublas_open(engine->memory, s->stream);
  if (s->peer) engine->peer = "cuBLAS";
  engine->bandwidth = copy_bandwidth(engine);
  if (orders >> DG_ORDER_FMA & 1) engine->peak = sustained_rate(engine, DG_ORDER_FMA);
  if (orders >> DG_ORDER_TC16 & 1) engine->tensor = sustained_rate(engine, DG_ORDER_TC16);
  return true;
}
