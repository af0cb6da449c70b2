/* The fma kernel for grouped products. */
#include "../fma_grouped.inc"
