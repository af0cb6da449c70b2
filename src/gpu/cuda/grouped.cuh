/* Grouped products on the device: which tiles there are is known only here, from the offsets. */
#ifndef DETGEMM_GROUPED_CUH
#define DETGEMM_GROUPED_CUH

#include "../group_parts.inc"

/* Calls tile(part, m0, n0) for this block's share of the tiles of all groups. */
template <int BM, int BN, typename Tile>
static __device__ void dg_group_tiles(const dg_grouped &g, Tile tile) {
  const int64_t cols = (g.p.n + BN - 1) / BN;
  int64_t next = blockIdx.x, before = 0, first = dg_group_offset(&g, 0, 0);
  for (int64_t e = 0; e < g.groups; e++) {
    const int64_t last = dg_group_offset(&g, e + 1, first);
    const int64_t rows = ((g.split == DG_GROUPS_OF_M ? last - first : g.p.m) + BM - 1) / BM;
    for (; next < before + rows * cols; next += gridDim.x) {
      const int64_t i = next - before;
      tile(dg_group_part(&g, e, first, last), i % rows * BM, i / rows * BN);
    }
    before += rows * cols;
    first = last;
  }
}

#endif
