/* The rows of tc16_wgmma.cu: what they take, what they cost and how they are launched. */
#include "tc16_wgmma.h"

#include <math.h>

#include "cuda.h"

enum { BK = 64, STAGING = 2048 /* of a consumer warp: DG_STAGING_BYTES in staging.cuh */ };

typedef struct tile {
  int bm, bn, stages, slices;
} tile;

/* How the operands are read: contiguous along k, or along m or n. */
typedef struct operand_map {
  bool fits, mn_major;
  int64_t pitch; /* elements from one line to the next */
} operand_map;

/* TMA wants lines of unit stride, 16-byte multiples between them and at the start. */
static operand_map map_of(const dg_operand *x, int64_t extent, int64_t extent_stride, int64_t k,
                          int64_t k_stride) {
  operand_map map = {false, false, 8};
  map.mn_major = !(k_stride == 1 || k == 1);
  if (map.mn_major && !(extent_stride == 1 || extent == 1)) return map;
  const int64_t lines = map.mn_major ? k : extent, length = map.mn_major ? extent : k;
  if (lines > 1) map.pitch = map.mn_major ? k_stride : extent_stride;
  const int64_t limit = (int64_t)1 << 38; /* elements */
  map.fits = ((uintptr_t)x->data | (uintptr_t)map.pitch * 2 | (uintptr_t)x->bs * 2) % 16 == 0 &&
             (lines == 1 || map.pitch >= length) && map.pitch < limit && x->bs >= 0 &&
             x->bs < limit;
  return map;
}

static operand_map map_a(const dg_problem *p) {
  return map_of(&p->a, p->m, p->a.rs, p->k, p->a.cs);
}

static operand_map map_b(const dg_problem *p) {
  return map_of(&p->b, p->n, p->b.cs, p->k, p->b.rs);
}

static int64_t quotient_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

static bool fits(const dg_problem *p, const dg_gpu_facts *facts) {
  const int64_t limit = INT32_MAX - 4096; /* coordinates and tile numbers are 32 bits */
  (void)facts;
  return p->k > 0 && p->k < limit && p->m < limit && p->n < limit && p->batch < limit &&
         (double)quotient_up(p->m, 64) * (double)quotient_up(p->n, 32) * (double)p->batch <
             (double)limit / 16 &&
         map_a(p).fits && map_b(p).fits;
}

/* How the tiles of a problem are laid over the device. */
typedef struct layout {
  int cluster_m, cluster_n;
  int64_t tiles_m, tiles_n; /* of clusters */
  int64_t clusters;         /* that run at once */
} layout;

/* Two blocks that share their tile of B read it once from the L2. Measured: that pays where B is
 * streamed from memory for two tiles of rows, and over many waves; elsewhere waiting for one
 * another costs more. Four blocks find no place on some of the SMs. */
static layout layout_of(const tile *t, const dg_problem *p, const dg_gpu_facts *facts) {
  layout l = {1, 1, quotient_up(p->m, t->bm), quotient_up(p->n, t->bn), 0};
  const double tiles = (double)l.tiles_m * (double)l.tiles_n * (double)p->batch;
  if (l.tiles_m % 2 == 0 && (l.tiles_m == 2 || tiles > 2 * facts->multiprocessors)) l.cluster_m = 2;
  l.tiles_m /= l.cluster_m;
  l.clusters = facts->multiprocessors / l.cluster_m;
  return l;
}

/* The time of two things done at once: the longer one, and more where they are alike. */
static double hindered(double x, double y) { return sqrt(sqrt(x * x * x * x + y * y * y * y)); }

/* An SM multiplies 2048 pairs a cycle and takes in 64 bytes, at the clock it keeps under load. On
 * an H200: within 10 % of what was
 * measured, in microseconds. */
static double cost(const tile *t, const dg_problem *p, const dg_gpu_facts *facts) {
  const double macs = 2048 * 1600.0, sm_bytes = 112e3, memory_bytes = 3.7e6;
  const layout l = layout_of(t, p, facts);
  const double tiles = (double)l.tiles_m * (double)l.tiles_n * (double)p->batch;
  const double waves = ceil(tiles / (double)l.clusters);
  const double slices = (double)quotient_up(p->k, BK * t->slices) * t->slices;
  const double area = (double)t->bm * t->bn;
  const double compute = area * BK / macs, intake = (t->bm + t->bn) * BK * 2 / sm_bytes;
  const double tile_time = slices * hindered(compute, intake) + area / 40000;
  const double inputs = 2.0 * (double)p->k * (double)(p->m + p->n);
  const double output = (p->out.dtype == DG_F32 ? 4.0 : 2.0) * (double)p->m * (double)p->n;
  const double multiply = waves * tile_time;
  const double move = (inputs + output) * (double)p->batch / memory_bytes;
  return 2.3 + hindered(multiply, move);
}

static void fill_map(dg_gpu_map *map, const dg_operand *x, operand_map how, int64_t extent,
                     int64_t k, int64_t batch, uint32_t width, uint32_t rows, uint32_t lines) {
  map->rank = 3;
  map->dims[0] = (uint64_t)(how.mn_major ? extent : k);
  map->dims[1] = (uint64_t)(how.mn_major ? k : extent);
  map->dims[2] = x->bs ? (uint64_t)batch : 1;
  map->strides[0] = (uint64_t)how.pitch * 2;
  map->strides[1] = x->bs ? (uint64_t)x->bs * 2 : 16;
  map->box[0] = how.mn_major ? width : BK;
  map->box[1] = how.mn_major ? lines : rows;
  map->box[2] = 1;
  map->swizzle_bytes = (int)map->box[0] * 2;
  map->promotion_bytes = 256;
}

/* The atom of an MN-major tile, as dg_wgmma_tile in wgmma.cuh has it. */
static uint32_t width_of(int extent) { return extent % 64 == 0 ? 64 : extent % 32 == 0 ? 32 : 16; }

static void prepare(const tile *t, const dg_problem *p, const dg_gpu_facts *facts,
                    dg_gpu_launch *launch) {
  layout l = layout_of(t, p, facts);
  int64_t group = (int64_t)sqrt((double)l.clusters * t->bn * l.cluster_n / t->bm / l.cluster_m);
  const int64_t tiles = l.tiles_m * l.tiles_n * p->batch;
  const operand_map a = map_a(p), b = map_b(p);
  launch->cluster = (uint32_t)(l.cluster_m * l.cluster_n);
  launch->grid[0] = (uint32_t)(tiles < l.clusters ? tiles : l.clusters) * launch->cluster;
  launch->grid[1] = launch->grid[2] = 1;
  launch->block = (uint32_t)t->bm * 2 + 128;
  launch->shared_bytes =
      (uint32_t)((t->bm + t->bn) * BK * 2 * t->slices * t->stages + t->bm / 16 * STAGING + 1024);
  launch->overlap = true;
  launch->map_count = 2;
  fill_map(&launch->maps[0], &p->a, a, p->m, p->k, p->batch, 64, (uint32_t)(t->bm / l.cluster_n),
           (uint32_t)(BK / l.cluster_n));
  fill_map(&launch->maps[1], &p->b, b, p->n, p->k, p->batch, width_of(t->bn),
           (uint32_t)(t->bn / l.cluster_m), (uint32_t)(BK / l.cluster_m));
  int32_t *v_ = launch->tuning.v;
  v_[DG_WGMMA_KIND] = (p->a.dtype == DG_F16) + 2 * a.mn_major + 4 * b.mn_major;
  v_[DG_WGMMA_CLUSTER_M] = l.cluster_m;
  v_[DG_WGMMA_CLUSTER_N] = l.cluster_n;
  v_[DG_WGMMA_TILES_M] = (int32_t)l.tiles_m;
  v_[DG_WGMMA_TILES_N] = (int32_t)l.tiles_n;
  v_[DG_WGMMA_GROUP] = (int32_t)(group < 1 ? 1 : group);
}

#define FUNCTIONS(BM, BN, STAGES, SLICES)                                          \
  static const tile tile_##BM##x##BN = {BM, BN, STAGES, SLICES};                   \
  static double cost_##BM##x##BN(const dg_problem *p, const dg_gpu_facts *facts) { \
    return cost(&tile_##BM##x##BN, p, facts);                                      \
  }                                                                                \
  static void prepare_##BM##x##BN(const dg_problem *p, const dg_gpu_facts *facts,  \
                                  dg_gpu_launch *launch) {                         \
    prepare(&tile_##BM##x##BN, p, facts, launch);                                  \
  }
DG_TC16_WGMMA_TILES(FUNCTIONS)

#define ROW(BM, BN, STAGES, SLICES) \
  {"tc16_" #BM "x" #BN "_sm90a",    \
   "dg_tc16_wgmma_" #BM "x" #BN,    \
   dg_cuda_tc16_wgmma_image,        \
   DG_ORDER_TC16,                   \
   90,                              \
   90,                              \
   fits,                            \
   cost_##BM##x##BN,                \
   prepare_##BM##x##BN},
const dg_gpu_kernel dg_cuda_tc16_wgmma_rows[] = {DG_TC16_WGMMA_TILES(ROW)};
const int dg_cuda_tc16_wgmma_count = sizeof dg_cuda_tc16_wgmma_rows / sizeof(dg_gpu_kernel);
