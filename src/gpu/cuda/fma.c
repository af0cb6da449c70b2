/* The rows of fma.cu. */
#include "../fma_rows.h"

#include "cuda.h"

DG_FMA_TILE(tile_128x128, 157000, 224000, FMA_128X128)
DG_FMA_TILE(tile_64x64, 72000, 125000, FMA_64X64)
DG_FMA_TILE(tile_16x64, 55000, 65000, FMA_16X64)
DG_FMA_STREAM(tile_stream_1x32, 9000, 11300, FMA_STREAM_1X32)
DG_FMA_STREAM(tile_stream_8x32, 9200, 11000, FMA_STREAM_8X32)
DG_FMA_STREAM(tile_stream_16x32, 16000, 20500, FMA_STREAM_16X32)
DG_FMA_STREAM(tile_stream_32x32, 29000, 34000, FMA_STREAM_32X32)
DG_FMA_STREAM(tile_stream_64x32, 36000, 36000, FMA_STREAM_64X32)

#define ROW(kernel) DG_FMA_ROW(#kernel, "sm80", tile_##kernel, dg_cuda_fma_image, 80, 999)

const dg_gpu_kernel dg_cuda_fma_rows[] = {
    ROW(128x128),      ROW(64x64),        ROW(16x64),
    ROW(stream_1x32),  ROW(stream_8x32),  ROW(stream_16x32),
    ROW(stream_32x32), ROW(stream_64x32), DG_FMA_NAIVE_ROW("sm80", dg_cuda_fma_image, 80),
};
const int dg_cuda_fma_count = sizeof dg_cuda_fma_rows / sizeof dg_cuda_fma_rows[0];
