/* The tile of the fma kernel for grouped products. C and CUDA. */
#ifndef DETGEMM_FMA_GROUPED_H
#define DETGEMM_FMA_GROUPED_H

enum { DG_FMA_GROUPED_BM = 64, DG_FMA_GROUPED_BN = 64, DG_FMA_GROUPED_THREADS = 256 };

#endif
