/* The rows of the fma kernels (fma_gemm.inc) for every GPU platform: a platform lists the tiles it
 * has instantiated, and the planner's functions of each are made here. */
#ifndef DETGEMM_FMA_ROWS_H
#define DETGEMM_FMA_ROWS_H

#include "fma_tiles.h"
#include "gpu.h"

/* What counts of a list in fma_tiles.h. */
typedef struct dg_fma_tile {
  int bm, bn, blocks, threads, shared_bytes;
  int alone, full; /* picoseconds a tile takes for one k, alone on a multiprocessor and with all
                      `blocks` there, on an H200 */
} dg_fma_tile;

bool dg_fma_fits(const dg_fma_tile *tile, const dg_problem *p, const dg_gpu_facts *facts);
double dg_fma_microseconds(const dg_fma_tile *tile, const dg_problem *p, const dg_gpu_facts *facts);
void dg_fma_prepare(const dg_fma_tile *tile, const dg_problem *p, dg_gpu_launch *launch);

/* The kernels of fma_stream.inc. */
bool dg_fma_stream_fits(const dg_fma_tile *tile, const dg_problem *p, const dg_gpu_facts *facts);

/* fma_naive.inc: fits everything, and costs so much that it runs only where it is asked for. */
bool dg_fma_naive_fits(const dg_problem *p, const dg_gpu_facts *facts);
double dg_fma_naive_microseconds(const dg_problem *p, const dg_gpu_facts *facts);
void dg_fma_naive_prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch);

/* fma_grouped.inc */
void dg_fma_grouped_prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch);

/* Defines the planner's functions for one tile of fma_gemm.inc or fma_stream.inc. */
#define DG_FMA_FUNCTIONS(name, kind)                                                             \
  static bool name##_fits(const dg_problem *p, const dg_gpu_facts *facts) {                      \
    return kind##_fits(&name, p, facts);                                                         \
  }                                                                                              \
  static double name##_microseconds(const dg_problem *p, const dg_gpu_facts *facts) {            \
    return dg_fma_microseconds(&name, p, facts);                                                 \
  }                                                                                              \
  static void name##_prepare(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *l) { \
    (void)facts;                                                                                 \
    dg_fma_prepare(&name, p, l);                                                                 \
  }

#define DG_FMA_TILE(name, alone, full, ...)                               \
  static const dg_fma_tile name = {FMA_GET(FMA_GET_BM, __VA_ARGS__),      \
                                   FMA_GET(FMA_GET_BN, __VA_ARGS__),      \
                                   FMA_GET(FMA_GET_BLOCKS, __VA_ARGS__),  \
                                   FMA_GET(FMA_GET_THREADS, __VA_ARGS__), \
                                   FMA_GET(FMA_GET_SHARED, __VA_ARGS__),  \
                                   alone,                                 \
                                   full};                                 \
  DG_FMA_FUNCTIONS(name, dg_fma)

#define DG_FMA_STREAM(name, alone, full, ...)                                \
  static const dg_fma_tile name = {FMA_GET(FMA_STREAM_BM, __VA_ARGS__),      \
                                   FMA_GET(FMA_STREAM_BN, __VA_ARGS__),      \
                                   FMA_GET(FMA_STREAM_BLOCKS, __VA_ARGS__),  \
                                   FMA_GET(FMA_STREAM_THREADS, __VA_ARGS__), \
                                   FMA_GET(FMA_STREAM_SHARED, __VA_ARGS__),  \
                                   alone,                                    \
                                   full};                                    \
  DG_FMA_FUNCTIONS(name, dg_fma_stream)

/* A row: the kernel's name without its order, the platform's suffix, the tile, the image, the
 * architectures. */
#define DG_FMA_ROW(kernel, suffix, tile, image, arch_min, arch_max)                      \
  {                                                                                      \
    "fma_" kernel "_" suffix, "dg_fma_" kernel, image, DG_ORDER_FMA, arch_min, arch_max, \
        tile##_fits, tile##_microseconds, tile##_prepare                                 \
  }
#define DG_FMA_NAIVE_ROW(suffix, image, arch_min)                                             \
  {                                                                                           \
    "fma_1x1_" suffix, "dg_fma_naive", image, DG_ORDER_FMA, arch_min, 999, dg_fma_naive_fits, \
        dg_fma_naive_microseconds, dg_fma_naive_prepare                                       \
  }
#define DG_FMA_GROUPED_ROW(suffix, image, arch_min)                              \
  {                                                                              \
    "fma_grouped_" suffix, "dg_fma_grouped", image, DG_ORDER_FMA, arch_min, 999, \
        dg_gpu_fits_grouped, dg_gpu_only_forced, dg_fma_grouped_prepare          \
  }

#endif
