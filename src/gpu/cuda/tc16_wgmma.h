/* What tc16_wgmma.c and tc16_wgmma.cu agree on. C and CUDA. */
#ifndef DETGEMM_TC16_WGMMA_H
#define DETGEMM_TC16_WGMMA_H

/* The tiles: BM, BN, stages of the pipeline, 64-wide slices of k a stage. A consumer warpgroup
 * computes 64 rows of the BM. */
#define DG_TC16_WGMMA_TILES(F) \
  F(128, 256, 4, 1)            \
  F(128, 192, 5, 1)            \
  F(128, 128, 6, 1)            \
  F(128, 96, 7, 1)             \
  F(128, 64, 8, 1)             \
  F(64, 64, 6, 2)              \
  F(64, 32, 8, 2)

/* dg_gpu_tuning.v: */
enum {
  DG_WGMMA_KIND,      /* the sum of: 1 if F16, 2 if A is MN-major, 4 if B is */
  DG_WGMMA_CLUSTER_M, /* blocks of a cluster along m; they share tiles of B */
  DG_WGMMA_CLUSTER_N, /* blocks of a cluster along n; they share tiles of A */
  DG_WGMMA_TILES_M,   /* cluster tiles along m */
  DG_WGMMA_TILES_N,   /* cluster tiles along n */
  DG_WGMMA_GROUP,     /* cluster tiles along m that are walked before the next n */
};

#endif
