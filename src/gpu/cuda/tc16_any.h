/* The tile of the tc16 kernel for any layout. C and CUDA. */
#ifndef DETGEMM_TC16_ANY_H
#define DETGEMM_TC16_ANY_H

enum { DG_ANY_BM = 64, DG_ANY_BN = 64, DG_ANY_BK = 32, DG_ANY_THREADS = 128 };

#endif
