/* What tc16_stream.c and tc16_stream.cu agree on. C and CUDA. */
#ifndef DETGEMM_TC16_STREAM_H
#define DETGEMM_TC16_STREAM_H

enum {
  DG_STREAM_M = 64,        /* rows of A a block takes: the instruction's M side */
  DG_STREAM_SLICE = 64,    /* k of a slice: 128 bytes, the widest swizzle */
  DG_STREAM_SLICES = 2,    /* slices of a stage */
  DG_STREAM_THREADS = 160, /* four warps that multiply, one that copies */
  DG_STREAM_STAGES = 16,   /* at most */
};

/* The tiles: columns of B a block takes. */
#define DG_STREAM_TILES(F) F(8) F(16) F(32) F(64) F(96) F(128) F(256)

/* dg_gpu_tuning.v: */
enum {
  DG_STREAM_KIND,  /* the sum of: 1 if F16, 2 if A is MN-major, 4 if B is */
  DG_STREAM_ROWS,  /* of A in a slice: M rounded up to 8 times the blocks of a cluster; MN: 64 */
  DG_STREAM_DEPTH, /* stages of the ring */
  DG_STREAM_AHEAD, /* slices of B to bring into L2 before the previous kernel is done */
};

#endif
