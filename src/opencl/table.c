/* The rows of fma.cl. */
#include "../gpu/fma_rows.h"
#include "opencl.h"

DG_FMA_TILE(tile_128x128, 157000, 224000, FMA_128X128)
DG_FMA_TILE(tile_128x128_shallow, 170000, 240000, FMA_128X128_SHALLOW)
DG_FMA_TILE(tile_64x64, 72000, 125000, FMA_64X64)
DG_FMA_TILE(tile_16x64, 55000, 65000, FMA_16X64)
DG_FMA_STREAM(tile_stream_1x32_short, 12000, 15000, FMA_STREAM_1X32_SHORT)
DG_FMA_STREAM(tile_stream_8x32_short, 12000, 15000, FMA_STREAM_8X32_SHORT)
DG_FMA_STREAM(tile_stream_32x32_short, 32000, 38000, FMA_STREAM_32X32_SHORT)
DG_FMA_TILE(tile_8x16_alone, 50000, 50000, FMA_8X16_ALONE)

/* On a processor a work-item is best a whole tile: one thread, no barriers, and the compiler makes
 * vectors of the tile's rows. */
static double on_processors(const dg_problem *p, const dg_gpu_facts *facts) {
  return tile_8x16_alone_microseconds(p, facts) * 1e-6;
}

#define ROW(kernel) DG_FMA_ROW(#kernel, "opencl", tile_##kernel, NULL, 0, 999)

static const dg_gpu_kernel rows[] = {
    ROW(128x128),
    ROW(128x128_shallow),
    ROW(64x64),
    ROW(16x64),
    ROW(stream_1x32_short),
    ROW(stream_8x32_short),
    ROW(stream_32x32_short),
    {"fma_8x16_alone_opencl", "dg_fma_8x16_alone", NULL, DG_ORDER_FMA, DG_OPENCL_CPU, 999,
     tile_8x16_alone_fits, on_processors, tile_8x16_alone_prepare},
    DG_FMA_NAIVE_ROW("opencl", NULL, 0),
    DG_FMA_GROUPED_ROW("opencl", NULL, 0),
};
_Static_assert(sizeof rows / sizeof rows[0] <= DG_OPENCL_MAX_ROWS, "raise DG_OPENCL_MAX_ROWS");

const dg_gpu_kernel *dg_opencl_row(int index) {
  return index < (int)(sizeof rows / sizeof rows[0]) ? &rows[index] : NULL;
}
