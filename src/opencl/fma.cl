/* The fma kernels for OpenCL. The build expands this file to two texts, which the library carries.
 */
#include "../gpu/fma_grouped.inc"
#include "../gpu/fma_portable.inc"

/* One thread that computes a whole tile: compilers for GPUs take minutes for it. */
#ifdef DG_FOR_PROCESSORS
#define FMA_NAME dg_fma_8x16_alone
#define FMA_TILE FMA_8X16_ALONE
#include "../gpu/fma_gemm.inc"
#endif
