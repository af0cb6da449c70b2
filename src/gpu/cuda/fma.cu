/* The fma kernels for NVIDIA. */
#define FMA_NAME dg_fma_128x128
#define FMA_TILE FMA_128X128
#include "../fma_gemm.inc"
#define FMA_NAME dg_fma_64x64
#define FMA_TILE FMA_64X64
#include "../fma_gemm.inc"
#define FMA_NAME dg_fma_16x64
#define FMA_TILE FMA_16X64
#include "../fma_gemm.inc"
#define FMA_NAME dg_fma_stream_1x32
#define FMA_TILE FMA_STREAM_1X32
#include "../fma_stream.inc"
#define FMA_NAME dg_fma_stream_8x32
#define FMA_TILE FMA_STREAM_8X32
#include "../fma_stream.inc"
#define FMA_NAME dg_fma_stream_16x32
#define FMA_TILE FMA_STREAM_16X32
#include "../fma_stream.inc"
#define FMA_NAME dg_fma_stream_32x32
#define FMA_TILE FMA_STREAM_32X32
#include "../fma_stream.inc"
#define FMA_NAME dg_fma_stream_64x32
#define FMA_TILE FMA_STREAM_64X32
#include "../fma_naive.inc"
#include "../fma_stream.inc"
