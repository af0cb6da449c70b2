/* The rows of tc16_stream.cu. */
#include "tc16_stream.h"

#include <math.h>

#include "cuda.h"

static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

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

static double blocks(const dg_problem *p, int n) {
  return (double)ceil_div(p->n, n) * (double)ceil_div(p->m, DG_STREAM_M) * (double)p->batch;
}

/* Lines of B along n must be one box wide, 64 at most. More than 16 rows of A have not been
 * compared with the reference on a GPU since the clusters went, so they are left to the other
 * kernels. */
static bool fits(const dg_problem *p, int n) {
  const int64_t limit = (int64_t)1 << 30; /* coordinates and block numbers are 32 bits */
  return p->k > 0 && p->k < limit && p->m <= 16 && p->n < limit && p->batch < limit &&
         blocks(p, n) < (double)limit && k_major_a(p) &&
         (k_major_b(p) || (n <= 64 && mappable(&p->b, p->k, p->b.rs, p->b.cs, p->batch)));
}

static int rows_of(const dg_problem *p) { return (int)least(DG_STREAM_M, ceil_div(p->m, 8) * 8); }

/* The largest of: the chains of a multiprocessor; what it takes in; what the L2 gives to all; what
 * memory gives, less where some multiprocessors have more blocks than others. Measured on an H200:
 * a step of 64 x n x 16 takes 16 + n / 4 or n / 2 cycles. */
static double microseconds(const dg_problem *p, const dg_gpu_facts *facts, int n) {
  const double sms = facts->multiprocessors, count = blocks(p, n), k = (double)p->k;
  const double each = count / (count > 2 * sms ? 2 * sms : sms);
  const double uneven = fmin(ceil(each) / each - 1, 2);
  const double rounds = count < sms ? 1 : count / sms, bytes = 2 * k * (rows_of(p) + n);
  const double chain = rounds * k / 16 * (n < 64 ? 16 + n / 4.0 : n / 2.0) / 1750;
  const double memory = 2 * k * (double)(p->m + p->n) * (double)p->batch / 4.2e6;
  return 4 + fmax(fmax(chain, rounds * bytes / 80e3),
                  fmax(count * bytes / 10e6, memory * (1 + 0.12 * uneven)));
}

/* A map of lines along k, `rows` by a slice a box; folded: by all slices of a stage. */
static dg_gpu_map k_major_map(const dg_operand *x, const dg_problem *p, int64_t extent,
                              int64_t pitch, int rows, int slices, bool folded) {
  dg_gpu_map map = {
      .rank = 3,
      .dims = {(uint64_t)p->k, (uint64_t)extent, x->bs ? (uint64_t)p->batch : 1},
      .strides = {extent == 1 ? 16 : (uint64_t)pitch * 2, x->bs ? (uint64_t)x->bs * 2 : 16},
      .box = {DG_STREAM_SLICE, (uint32_t)rows, 1},
      .swizzle_bytes = 128,
      .promotion_bytes = 256};
  if (folded) {
    map.dims[0] = DG_STREAM_SLICE;
    map.dims[2] = (uint64_t)p->k / DG_STREAM_SLICE;
    map.strides[1] = DG_STREAM_SLICE * 2;
    map.box[2] = (uint32_t)slices;
  }
  return map;
}

static dg_gpu_map n_major_map(const dg_operand *x, const dg_problem *p, int n, int slices) {
  return (dg_gpu_map){
      .rank = 3,
      .dims = {(uint64_t)p->n, (uint64_t)p->k, x->bs ? (uint64_t)p->batch : 1},
      .strides = {p->k == 1 ? 16 : (uint64_t)x->rs * 2, x->bs ? (uint64_t)x->bs * 2 : 16},
      .box = {(uint32_t)n, (uint32_t)(DG_STREAM_SLICE * slices), 1},
      .swizzle_bytes = n * 2,
      .promotion_bytes = 256};
}

/* Two blocks share a multiprocessor, unless there are few: then the ring may be deeper. */
static int depth_of(const dg_problem *p, const dg_gpu_facts *facts, int n, int stage) {
  const int bytes = 2 * blocks(p, n) <= facts->multiprocessors ? 200 << 10 : 100 << 10;
  return (int)least(DG_STREAM_STAGES, bytes / stage);
}

static void prepare(const dg_problem *p, const dg_gpu_facts *facts, int n, int slices,
                    dg_gpu_launch *launch) {
  const bool mn_b = !k_major_b(p), whole = p->k % DG_STREAM_SLICE == 0;
  const bool fold_a = whole && p->a.bs == 0, fold_b = whole && p->b.bs == 0 && !mn_b;
  const int rows = rows_of(p);
  const int stage = (rows + n) * DG_STREAM_SLICE * 2 * slices;
  const int depth = depth_of(p, facts, n, stage);

  launch->grid[0] = (uint32_t)blocks(p, n);
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = DG_STREAM_THREADS;
  /* barriers, alignment; the last slice of A is read as if it had 64 rows */
  launch->shared_bytes = (uint32_t)(depth * stage + 2048 + (64 - rows) * DG_STREAM_SLICE * 2);
  launch->overlap = true;
  launch->map_count = 2;
  launch->maps[0] = k_major_map(&p->a, p, p->m, p->a.rs, rows, slices, fold_a);
  launch->maps[1] = mn_b ? n_major_map(&p->b, p, n, slices)
                         : k_major_map(&p->b, p, p->n, p->b.cs, n, slices, fold_b);
  launch->tuning.v[DG_STREAM_KIND] = (p->a.dtype == DG_F16) + 2 * mn_b;
  launch->tuning.v[DG_STREAM_ROWS] = rows;
  launch->tuning.v[DG_STREAM_DEPTH] = depth;
  launch->tuning.v[DG_STREAM_FOLD_A] = fold_a;
  launch->tuning.v[DG_STREAM_FOLD_B] = fold_b;
}

#define FUNCTIONS(N, SLICES)                                                                       \
  static bool fits_##N(const dg_problem *p, const dg_gpu_facts *facts) {                           \
    (void)facts;                                                                                   \
    return fits(p, N);                                                                             \
  }                                                                                                \
  static double microseconds_##N(const dg_problem *p, const dg_gpu_facts *facts) {                 \
    return microseconds(p, facts, N);                                                              \
  }                                                                                                \
  static void prepare_##N(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) { \
    prepare(p, facts, N, SLICES, launch);                                                          \
  }
DG_STREAM_TILES(FUNCTIONS)

#define ROW(N, SLICES)        \
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
