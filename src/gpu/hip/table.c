/* The rows of fma.hip. */
#include "../fma_rows.h"
#include "hip.h"

DG_FMA_TILE(tile_128x128, 157000, 224000, FMA_128X128)
DG_FMA_TILE(tile_128x128_shallow, 170000, 240000, FMA_128X128_SHALLOW)
DG_FMA_TILE(tile_64x64, 72000, 125000, FMA_64X64)
DG_FMA_TILE(tile_16x64, 55000, 65000, FMA_16X64)
DG_FMA_STREAM(tile_stream_1x32_short, 12000, 15000, FMA_STREAM_1X32_SHORT)
DG_FMA_STREAM(tile_stream_8x32_short, 12000, 15000, FMA_STREAM_8X32_SHORT)
DG_FMA_STREAM(tile_stream_32x32_short, 32000, 38000, FMA_STREAM_32X32_SHORT)

#define ROW(kernel) DG_FMA_ROW(#kernel, "gfx9", tile_##kernel, dg_hip_fma_image, 90, 999)

static const dg_gpu_kernel rows[] = {
    ROW(128x128),
    ROW(128x128_shallow),
    ROW(64x64),
    ROW(16x64),
    ROW(stream_1x32_short),
    ROW(stream_8x32_short),
    ROW(stream_32x32_short),
    DG_FMA_NAIVE_ROW("gfx9", dg_hip_fma_image, 90),
    DG_FMA_GROUPED_ROW("gfx9", dg_hip_fma_image, 90),
};
_Static_assert(sizeof rows / sizeof rows[0] <= DG_GPU_MAX_ROWS, "raise DG_GPU_MAX_ROWS");

const dg_gpu_kernel *dg_hip_row(int index) {
  return index < (int)(sizeof rows / sizeof rows[0]) ? &rows[index] : NULL;
}
