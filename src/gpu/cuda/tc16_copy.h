/* What tc16_copy.c and tc16_copy.cu agree on. C and CUDA. */
#ifndef DETGEMM_TC16_COPY_H
#define DETGEMM_TC16_COPY_H

/* The tiles: BM, BN, stages of the ring, 64-wide slices of k a stage, warps that copy,
 * slices that a warp loads before it stores them; microseconds a k takes on an H200. A
 * warpgroup multiplies 64 rows of the BM. */
#define DG_TC16_COPY_TILES(F)    \
  F(128, 128, 6, 1, 8, 1, 0.024) \
  F(64, 64, 3, 4, 8, 1, 0.0138)  \
  F(64, 32, 4, 4, 8, 2, 0.010)

#define DG_TC16_COPY_THREADS(BM, WARPS) ((BM)*2 + 32 * (WARPS))

/* dg_gpu_tuning.v: */
enum {
  DG_TC16_COPY_KIND, /* the sum of: 1 if F16, 2 if A is MN-major, 4 if B is */
};

#endif
