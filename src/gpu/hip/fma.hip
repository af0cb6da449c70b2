/* The fma kernels for AMD. */
#include "../fma_grouped.inc"
#include "../fma_portable.inc"
