/* The fma kernels for OpenCL. The build expands this file to one text, which the library carries.
 */
#include "../gpu/fma_grouped.inc"
#include "../gpu/fma_portable.inc"
#define FMA_NAME dg_fma_8x16_alone
#define FMA_TILE FMA_8X16_ALONE
#include "../gpu/fma_gemm.inc"
