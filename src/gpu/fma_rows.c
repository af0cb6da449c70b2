/* What the planner knows of the fma kernels. */
#include "fma_rows.h"

#include <math.h>

#include "../num.h"
#include "fma_grouped.h"

static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

static int64_t tiles_of(const dg_fma_tile *tile, const dg_problem *p) {
  return ceil_div(p->m, tile->bm) * ceil_div(p->n, tile->bn) * p->batch;
}

bool dg_fma_fits(const dg_fma_tile *tile, const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p;
  return tile->shared_bytes <= facts->shared_bytes;
}

/* Rounds of as many tiles as fit on all multiprocessors, and a last one of fewer on each. */
double dg_fma_microseconds(const dg_fma_tile *tile, const dg_problem *p,
                           const dg_gpu_facts *facts) {
  const int64_t at_once = (int64_t)tile->blocks * facts->multiprocessors;
  const int64_t tiles = tiles_of(tile, p), rest = tiles % at_once;
  const int64_t on_each = ceil_div(rest, facts->multiprocessors);
  const int64_t more = tile->full - tile->alone, others = tile->blocks > 1 ? tile->blocks - 1 : 1;
  const int64_t last = rest ? tile->alone + more * (on_each - 1) / others : 0;
  const double strided = p->out.cs == 1 ? 0 : 0.5;
  return 3 + strided +
         1e-6 * (double)p->k * ((double)(tiles / at_once) * tile->full + (double)last);
}

/* Whether four elements along the unit stride always are one aligned vector. */
static bool vector(const dg_operand *x, int64_t other_stride) {
  const uintptr_t bytes = 4 * (uintptr_t)dg_dtype_bytes(x->dtype);
  return (uintptr_t)x->data % bytes == 0 && other_stride % 4 == 0 && x->bs % 4 == 0;
}

static int32_t read_of(const dg_operand *x, int64_t line, int64_t k, int lines) {
  const bool along = lines % 4 == 0 && k != 1 && magnitude(line) < magnitude(k);
  int32_t read = along ? DG_FMA_ALONG_LINES : 0;
  if ((along ? line : k) == 1 && vector(x, along ? k : line)) read |= DG_FMA_VECTOR;
  return read;
}

static int32_t flags_of(const dg_problem *p) {
  return (p->start.data ? DG_FMA_HAS_START : 0) | (p->bias.data ? DG_FMA_HAS_BIAS : 0) |
         (p->out.cs == 1 && vector(&p->out, p->out.rs) ? DG_FMA_OUT_VECTOR : 0);
}

/* Blocks go round where there are more tiles than a grid may have blocks. */
static void set_blocks(int64_t tiles, dg_gpu_launch *launch) {
  const int64_t most = INT32_MAX / 2;
  launch->grid[0] = (uint32_t)(tiles < most ? tiles : most);
  launch->grid[1] = launch->grid[2] = 1;
  launch->tuning.v[DG_FMA_BLOCKS] = (int32_t)launch->grid[0];
}

void dg_fma_prepare(const dg_fma_tile *tile, const dg_problem *p, dg_gpu_launch *launch) {
  set_blocks(tiles_of(tile, p), launch);
  launch->block = (uint32_t)tile->threads;
  launch->shared_bytes = (uint32_t)tile->shared_bytes;
  launch->tuning.v[DG_FMA_READ_A] = read_of(&p->a, p->a.rs, p->a.cs, tile->bm);
  launch->tuning.v[DG_FMA_READ_B] = read_of(&p->b, p->b.cs, p->b.rs, tile->bn);
  launch->tuning.v[DG_FMA_FLAGS] = flags_of(p);
}

/* Whether b comes in aligned vectors of eight 2-byte elements. A line that stands for many (stride
 * 0) is none: the kernel takes the smaller stride for the dense one. */
bool dg_fma_stream_fits(const dg_fma_tile *tile, const dg_problem *p, const dg_gpu_facts *facts) {
  const dg_operand *b = &p->b;
  const bool along_k = b->rs == 1 || p->k == 1;
  const int64_t other = along_k ? b->cs : b->rs;
  const bool repeated = other == 0 && (along_k ? p->n : p->k) > 1;
  return dg_fma_fits(tile, p, facts) && b->dtype != DG_F32 && (b->rs == 1 || b->cs == 1) &&
         (uintptr_t)b->data % 16 == 0 && other % 8 == 0 && !repeated && b->bs % 8 == 0;
}

bool dg_fma_naive_fits(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return true;
}

double dg_fma_naive_microseconds(const dg_problem *p, const dg_gpu_facts *facts) {
  (void)p, (void)facts;
  return HUGE_VAL;
}

void dg_fma_naive_prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) {
  const int64_t rows = ceil_div(p->m * p->batch, 256), most = INT64_MAX / 2;
  (void)facts;
  set_blocks(rows > most / p->n ? most : ceil_div(p->m * p->batch * p->n, 256), launch);
  launch->block = 256;
  launch->tuning.v[DG_FMA_FLAGS] = flags_of(p);
}

/* How many tiles there are is known on the device only. */
void dg_fma_grouped_prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch) {
  set_blocks(4 * (int64_t)facts->multiprocessors, launch);
  launch->block = FMA_GROUPED_THREADS;
  launch->shared_bytes = 4 * FMA_GROUPED_FLOATS;
  launch->tuning.v[DG_FMA_FLAGS] = flags_of(p);
}
