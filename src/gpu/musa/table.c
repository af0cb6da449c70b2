/* The rows of fma.mu. What a tile may use of block memory differs: 28 KiB on mp_21, 72 on mp_22,
 * 192 on mp_31. The tensor units are not used: their order of summation is not public. */
#include "../fma_rows.h"
#include "musa.h"

DG_FMA_TILE(tile_128x128, 157000, 224000, FMA_128X128)
DG_FMA_TILE(tile_128x128_shallow, 170000, 240000, FMA_128X128_SHALLOW)
DG_FMA_TILE(tile_64x64, 72000, 125000, FMA_64X64)
DG_FMA_TILE(tile_16x64, 55000, 65000, FMA_16X64)
DG_FMA_STREAM(tile_stream_1x32_short, 12000, 15000, FMA_STREAM_1X32_SHORT)
DG_FMA_STREAM(tile_stream_8x32_short, 12000, 15000, FMA_STREAM_8X32_SHORT)
DG_FMA_STREAM(tile_stream_32x32_short, 32000, 38000, FMA_STREAM_32X32_SHORT)
DG_FMA_STREAM(tile_stream_1x32, 9000, 11300, FMA_STREAM_1X32)
DG_FMA_STREAM(tile_stream_8x32, 9200, 11000, FMA_STREAM_8X32)

#define ROW(kernel, suffix, arch_min, arch_max) \
  DG_FMA_ROW(#kernel, suffix, tile_##kernel, dg_musa_fma_image, arch_min, arch_max)

static const dg_gpu_kernel rows[] = {
    ROW(128x128, "mp22", 22, 999),
    ROW(128x128_shallow, "mp21", 21, 21),
    ROW(64x64, "mp21", 21, 999),
    ROW(16x64, "mp21", 21, 999),
    ROW(stream_1x32_short, "mp21", 21, 30),
    ROW(stream_8x32_short, "mp21", 21, 30),
    ROW(stream_32x32_short, "mp21", 21, 999),
    ROW(stream_1x32, "mp31", 31, 999),
    ROW(stream_8x32, "mp31", 31, 999),
    DG_FMA_NAIVE_ROW("mp21", dg_musa_fma_image, 21),
    DG_FMA_GROUPED_ROW("mp21", dg_musa_fma_image, 21),
};
_Static_assert(sizeof rows / sizeof rows[0] <= DG_GPU_MAX_ROWS, "raise DG_GPU_MAX_ROWS");

const dg_gpu_kernel *dg_musa_row(int index) {
  return index < (int)(sizeof rows / sizeof rows[0]) ? &rows[index] : NULL;
}
