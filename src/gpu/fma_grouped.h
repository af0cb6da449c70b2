/* The tile of the fma kernel for grouped products, for the kernel and for its row: a square, so
 * that both operands are fetched alike. */
#ifndef DETGEMM_FMA_GROUPED_H
#define DETGEMM_FMA_GROUPED_H

enum {
  FMA_GROUPED_SIDE = 64,
  FMA_GROUPED_BK = 16,
  FMA_GROUPED_THREADS = 256,
  FMA_GROUPED_PITCH = FMA_GROUPED_SIDE + 4,
  FMA_GROUPED_FLOATS = 2 * FMA_GROUPED_BK * FMA_GROUPED_PITCH
};

#endif
