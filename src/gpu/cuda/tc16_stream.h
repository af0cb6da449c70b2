/* What tc16_stream.c and tc16_stream.cu agree on. C and CUDA. */
#ifndef DETGEMM_TC16_STREAM_H
#define DETGEMM_TC16_STREAM_H

enum {
  DG_STREAM_M = 64,        /* rows of A a block takes: the instruction's M side */
  DG_STREAM_SLICE = 64,    /* k of a slice: 128 bytes, the widest swizzle */
  DG_STREAM_THREADS = 160, /* four warps that multiply, one that copies */
  DG_STREAM_STAGES = 16,   /* at most */
};

/* The tiles: columns of B a block takes, slices of a stage. */
#define DG_STREAM_TILES(F) \
  F(16, 4)                 \
  F(32, 2)                 \
  F(64, 2)                 \
  F(96, 2)

/* dg_gpu_tuning.v: */
enum {
  DG_STREAM_KIND,   /* the sum of: 1 if F16, 2 if B is MN-major */
  DG_STREAM_ROWS,   /* of A in a slice: M rounded up to 8, at most 64 */
  DG_STREAM_DEPTH,  /* stages of the ring */
  DG_STREAM_FOLD_A, /* the slices of a stage are one box: the map's third dimension is k / 64 */
  DG_STREAM_FOLD_B, /* likewise; where B is MN-major a box is as many k as a stage anyway */
};

#endif
