/* The tiles of the fma kernels, as lists of numbers for the kernels and for the planner. */
#ifndef DETGEMM_FMA_TILES_H
#define DETGEMM_FMA_TILES_H

/* fma_gemm.inc: BM and BN, the part of the output a block computes; BK, the depth of a panel in
 * block memory; TM and TN, the part of the tile one thread computes; BLOCKS, how many blocks a
 * multiprocessor should hold, which bounds the registers. */
#define FMA_128X128 128, 128, 16, 8, 8, 2
#define FMA_64X64 64, 64, 16, 8, 4, 4
/* in 28 KiB of block memory, which every device has */
#define FMA_128X128_SHALLOW 128, 128, 8, 8, 8, 2
#define FMA_16X64 16, 64, 16, 4, 4, 4
/* one thread a block, for processors */
#define FMA_8X16_ALONE 8, 16, 64, 8, 16, 1

/* fma_stream.inc: BM, BN, BK and TM as above (TN is 1); STAGES, panels of b on their way or in use;
 * LOADERS, threads beside the computing ones; BLOCKS. */
#define FMA_STREAM_1X32 1, 32, 128, 1, 6, 64, 3
#define FMA_STREAM_8X32 8, 32, 128, 2, 6, 128, 2
#define FMA_STREAM_16X32 16, 32, 128, 4, 5, 128, 2
#define FMA_STREAM_32X32 32, 32, 64, 8, 6, 64, 2
#define FMA_STREAM_64X32 64, 32, 64, 16, 6, 128, 1
/* in 28 KiB */
#define FMA_STREAM_1X32_SHORT 1, 32, 64, 1, 4, 64, 3
#define FMA_STREAM_8X32_SHORT 8, 32, 64, 2, 3, 128, 2
#define FMA_STREAM_32X32_SHORT 32, 32, 32, 8, 3, 64, 2

/* One number of a list. */
#define FMA_GET(get, ...) get(__VA_ARGS__)
#define FMA_GET_BM(bm, bn, bk, tm, tn, blocks) (bm)
#define FMA_GET_BN(bm, bn, bk, tm, tn, blocks) (bn)
#define FMA_GET_BK(bm, bn, bk, tm, tn, blocks) (bk)
#define FMA_GET_TM(bm, bn, bk, tm, tn, blocks) (tm)
#define FMA_GET_TN(bm, bn, bk, tm, tn, blocks) (tn)
#define FMA_GET_BLOCKS(bm, bn, bk, tm, tn, blocks) (blocks)
#define FMA_GET_THREADS(bm, bn, bk, tm, tn, blocks) (((bm) / (tm)) * ((bn) / (tn)))
#define FMA_GET_SHARED(bm, bn, bk, tm, tn, blocks) (8 * (bk) * (FMA_PITCH(bm) + FMA_PITCH(bn)))

#define FMA_STREAM_BM(bm, bn, bk, tm, stages, loaders, blocks) (bm)
#define FMA_STREAM_BN(bm, bn, bk, tm, stages, loaders, blocks) (bn)
#define FMA_STREAM_BK(bm, bn, bk, tm, stages, loaders, blocks) (bk)
#define FMA_STREAM_TM(bm, bn, bk, tm, stages, loaders, blocks) (tm)
#define FMA_STREAM_STAGES(bm, bn, bk, tm, stages, loaders, blocks) (stages)
#define FMA_STREAM_LOADERS(bm, bn, bk, tm, stages, loaders, blocks) (loaders)
#define FMA_STREAM_THREADS(bm, bn, bk, tm, stages, loaders, blocks) ((bm) / (tm) * (bn) + (loaders))
#define FMA_STREAM_BLOCKS(bm, bn, bk, tm, stages, loaders, blocks) (blocks)
#define FMA_STREAM_STAGE_BYTES(bm, bn, bk, tm, stages, loaders, blocks) ((bn) * (2 * (bk) + 16))
#define FMA_STREAM_SHARED(bm, bn, bk, tm, stages, loaders, blocks) \
  (8 * (bk) * ((bm) == 1 ? 1 : (bm) + 4) + (stages) * (bn) * (2 * (bk) + 16))

/* Numbers from one row of a panel to the next: short rows get a gap against bank conflicts, longer
 * ones are permuted (fma_slot). */
#define FMA_PITCH(lines) ((lines) % 32 ? (lines) + 4 : (lines))

#endif
