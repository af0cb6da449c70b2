/* The fma kernels for Moore Threads. */
#include <musa_runtime.h>

#include "../fma_grouped.inc"
#include "../fma_portable.inc"
#define FMA_NAME dg_fma_stream_1x32
#define FMA_TILE FMA_STREAM_1X32
#include "../fma_stream.inc"
#define FMA_NAME dg_fma_stream_8x32
#define FMA_TILE FMA_STREAM_8X32
#include "../fma_stream.inc"
