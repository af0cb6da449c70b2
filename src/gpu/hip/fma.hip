/* The fma kernels for AMD. */
#include "../fma_portable.inc"
