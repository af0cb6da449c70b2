/* The rows of tc16_stream.cu. */
#include "tc16_stream.h"

#include <stdlib.h>

#include "cuda.h"

static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

static double most(double x, double y) { return x > y ? x : y; }

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

/* What the copy engine takes: one dense dimension, everything else in multiples of 16 bytes. */
static bool mappable(const dg_operand *x, int64_t lines, int64_t pitch, int64_t stride,
                     int64_t batch) {
  const int64_t limit = (int64_t)1 << 38; /* of strides, in elements */
  return stride == 1 && (uintptr_t)x->data % 16 == 0 &&
         (lines == 1 || (pitch > 0 && pitch % 8 == 0 && pitch < limit)) &&
         (batch == 1 || (x->bs >= 0 && x->bs % 8 == 0 && x->bs < limit));
}

static bool along_k(const dg_operand *x, int64_t lines, int64_t pitch, int64_t stride, int64_t k,
                    int64_t batch) {
  return mappable(x, lines, pitch, k == 1 ? 1 : stride, batch);
}

static bool k_major_a(const dg_problem *p) {
  return along_k(&p->a, p->m, p->a.rs, p->a.cs, p->k, p->batch);
}
static bool k_major_b(const dg_problem *p) {
  return along_k(&p->b, p->n, p->b.cs, p->b.rs, p->k, p->batch);
}

static double blocks(const dg_problem *p, int n, int cluster) {
  return (double)ceil_div(ceil_div(p->n, n), cluster) * cluster *
         (double)ceil_div(p->m, DG_STREAM_M) * (double)p->batch;
}

static bool fits(const dg_problem *p, int n) {
  const int64_t limit = (int64_t)1 << 30;
  return p->k > 0 && p->k < limit && p->m < limit && p->n < limit && p->batch < limit &&
         blocks(p, n, 8) < (double)limit &&
         (k_major_a(p) || mappable(&p->a, p->k, p->a.cs, p->a.rs, p->batch)) &&
         (k_major_b(p) || (n >= 16 && mappable(&p->b, p->k, p->b.rs, p->b.cs, p->batch)));
}

static int option(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

static int cluster_of(const dg_problem *p, int n) {
  const int c = p->m <= 16 ? 1 : p->m <= 32 ? 2 : 4;
  (void)n;
  return option("DETGEMM_C", c);
}

/* The largest of: the chains of a multiprocessor; what it takes in; what the L2 gives to all; what
 * memory gives. Measured on an H200: a step of 64 x n x 16 takes 16 + n / 4 or n / 2 cycles. */
static double microseconds(const dg_problem *p, const dg_gpu_facts *facts, int n) {
  const double sms = facts->multiprocessors, count = blocks(p, n, 1), k = (double)p->k;
  const double rounds = count < sms ? 1 : count / sms;
  const double rows = (double)least(DG_STREAM_M, ceil_div(p->m, 8) * 8);
  const double chain = rounds * k / 16 * (n < 64 ? 16 + n / 4.0 : n / 2.0) / 1750;
  const double one = rounds * 2 * k * (rows + n) / 70e3;
  const double all = count * 2 * k * (rows / cluster_of(p, n) + n) / 5.5e6;
  const double memory = 2 * k * (double)(p->m + p->n) * (double)p->batch / 4.2e6;
  return 2 + most(most(chain, one), most(all, memory));
}

static dg_gpu_map map_of(const dg_operand *x, bool mn_major, int64_t k, int64_t extent, int64_t is,
                         int64_t ks, int64_t batch, uint32_t line, uint32_t lines) {
  const int64_t pitch = mn_major ? ks : is, count = mn_major ? k : extent;
  return (dg_gpu_map){
      .base = x->data,
      .rank = 3,
      .dims = {(uint64_t)(mn_major ? extent : k), (uint64_t)count,
               (uint64_t)(x->bs == 0 ? 1 : batch)},
      .strides = {(uint64_t)(count == 1 ? 16 : pitch * 2), (uint64_t)(x->bs == 0 ? 16 : x->bs * 2)},
      .box = {line, lines, 1},
      .swizzle_bytes = (int)line * 2,
      .promotion_bytes = 256};
}

static void prepare(const dg_problem *p, int n, dg_gpu_launch *launch) {
  const bool mn_a = !k_major_a(p), mn_b = !k_major_b(p);
  const int cluster = cluster_of(p, n);
  const int rows = mn_a ? 64 : (int)least(64, ceil_div(p->m, 8 * cluster) * 8 * cluster);
  const int width = n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : 16;
  const int stage = (rows + n) * DG_STREAM_SLICE * 2 * DG_STREAM_SLICES;
  const int room = option("DETGEMM_BYTES", n > 128 ? 200 : 100) * 1024;
  const int depth = (int)least(DG_STREAM_STAGES, room / stage);

  launch->grid[0] = (uint32_t)blocks(p, n, cluster);
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = DG_STREAM_THREADS;
  launch->cluster = (uint32_t)cluster;
  /* barriers, alignment; the last tile of A is read as if it had 64 rows */
  launch->shared_bytes = (uint32_t)(depth * stage + 2048 + (64 - rows) * DG_STREAM_SLICE * 2);
  launch->overlap = option("DETGEMM_PDL", 1);
  launch->map_count = 2;
  launch->maps[0] =
      map_of(&p->a, mn_a, p->k, p->m, p->a.rs, p->a.cs, p->batch, 64, (uint32_t)(rows / cluster));
  launch->maps[1] = map_of(&p->b, mn_b, p->k, p->n, p->b.cs, p->b.rs, p->batch,
                           mn_b ? (uint32_t)width : 64, mn_b ? 64 : (uint32_t)n);
  launch->tuning.v[DG_STREAM_KIND] = (p->a.dtype == DG_F16) + 2 * mn_a + 4 * mn_b;
  launch->tuning.v[DG_STREAM_ROWS] = rows;
  launch->tuning.v[DG_STREAM_DEPTH] = depth;
  launch->tuning.v[DG_STREAM_AHEAD] = option("DETGEMM_AHEAD", 16);
}

#define FUNCTIONS(N)                                                                               \
  static bool fits_##N(const dg_problem *p, const dg_gpu_facts *facts) {                           \
    (void)facts;                                                                                   \
    return fits(p, N);                                                                             \
  }                                                                                                \
  static double microseconds_##N(const dg_problem *p, const dg_gpu_facts *facts) {                 \
    return microseconds(p, facts, N);                                                              \
  }                                                                                                \
  static void prepare_##N(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) { \
    (void)facts;                                                                                   \
    prepare(p, N, launch);                                                                         \
  }
DG_STREAM_TILES(FUNCTIONS)

#define ROW(N)                \
  {"tc16_stream" #N "_sm90a", \
   "dg_tc16_stream_" #N,      \
   dg_cuda_tc16_stream_image, \
   DG_ORDER_TC16,             \
   90,                        \
   90,                        \
   fits_##N,                  \
   microseconds_##N,          \
   prepare_##N},
const dg_gpu_kernel dg_cuda_tc16_stream_rows[] = {DG_STREAM_TILES(ROW)};
const int dg_cuda_tc16_stream_count =
    sizeof dg_cuda_tc16_stream_rows / sizeof dg_cuda_tc16_stream_rows[0];
