/* Grouped products on the device: which tiles there are is known only here, from the offsets. */
#ifndef DETGEMM_GROUPED_CUH
#define DETGEMM_GROUPED_CUH

#include "../gpu.h"
#include "detgemm.h"

/* An offset kept inside the matrix and not below the one before it, so that no group reaches
 * outside. */
static __device__ int64_t dg_group_offset(const dg_grouped &g, int64_t i, int64_t least) {
  const int64_t rows = g.split == DG_SPLIT_M ? g.p.m : g.p.k;
  if (g.offsets == nullptr) return i == 0 ? 0 : rows; /* one group of all rows */
  const int64_t x = g.offset_bytes == 8 ? static_cast<const int64_t *>(g.offsets)[i]
                                        : static_cast<const int32_t *>(g.offsets)[i];
  return min(max(x, least), rows);
}

static __device__ void dg_move(dg_operand &x, int64_t elements) {
  if (x.data) x.data = static_cast<char *>(x.data) + (x.dtype == DG_F32 ? 4 : 2) * elements;
}

/* The product of one group, whose rows are first to last - 1. */
static __device__ dg_problem dg_group_part(const dg_grouped &g, int64_t group, int64_t first,
                                           int64_t last) {
  dg_problem p = g.p;
  dg_move(p.bias, group * p.bias.bs);
  if (g.split == DG_SPLIT_M) {
    p.m = last - first;
    dg_move(p.a, first * p.a.rs);
    dg_move(p.b, group * p.b.bs);
    dg_move(p.out, first * p.out.rs);
    dg_move(p.start, first * p.start.rs);
  } else {
    p.k = last - first;
    dg_move(p.a, first * p.a.cs);
    dg_move(p.b, first * p.b.rs);
    dg_move(p.out, group * p.out.bs);
    dg_move(p.start, group * p.start.bs);
  }
  return p;
}

/* Calls tile(part, m0, n0) for this block's share of the tiles of all groups. */
template <int BM, int BN, typename Tile>
static __device__ void dg_group_tiles(const dg_grouped &g, Tile tile) {
  const int64_t cols = (g.p.n + BN - 1) / BN;
  int64_t next = blockIdx.x, before = 0, first = dg_group_offset(g, 0, 0);
  for (int64_t e = 0; e < g.groups; e++) {
    const int64_t last = dg_group_offset(g, e + 1, first);
    const int64_t rows = ((g.split == DG_SPLIT_M ? last - first : g.p.m) + BM - 1) / BM;
    for (; next < before + rows * cols; next += gridDim.x) {
      const int64_t i = next - before;
      tile(dg_group_part(g, e, first, last), i % rows * BM, i / rows * BN);
    }
    before += rows * cols;
    first = last;
  }
}

#endif
