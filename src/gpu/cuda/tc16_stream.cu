/* tc16 for few rows of A on Hopper: B is streamed once from memory.
 *
 * A block computes 64 x N outputs over all of K: one warp keeps the copy engine busy with a ring of
 * stages, four warps run one chain of wgmma, 16 k a step in ascending order. Rows of A past M may
 * be whatever lies in shared memory: they reach only rows of the result that are not written. The
 * blocks of a cluster have the same A; each fetches a share of it and sends it to all. Two blocks
 * share a multiprocessor, and the next kernel's blocks fetch their B into L2 while this one ends.
 */
#include "../gpu.h"
#include "epilogue.cuh"
#include "tc16_stream.h"
#include "wgmma.cuh"

namespace {

constexpr int SLICE = DG_STREAM_SLICE;
constexpr uint32_t LINE = SLICE * 2; /* bytes */

/* Where a block works, and its ring. A stage has the slices of A, then those of B. */
template <int N, int SLICES>
struct place {
  int64_t m, n, z; /* the first element */
  uint32_t rows, stage_bytes, data, full, empty;
  int stages, depth;

  DG_DEVICE place(const dg_problem &p, const dg_gpu_tuning &t, uint32_t memory) {
    const int64_t tiles = (p.n + N - 1) / N, bands = (p.m + DG_STREAM_M - 1) / DG_STREAM_M;
    n = blockIdx.x % tiles * N;
    m = blockIdx.x / tiles % bands * DG_STREAM_M;
    z = blockIdx.x / tiles / bands;
    stages = (int)((p.k + SLICE * SLICES - 1) / (SLICE * SLICES));
    depth = t.v[DG_STREAM_DEPTH];
    rows = (uint32_t)t.v[DG_STREAM_ROWS];
    stage_bytes = (rows + N) * LINE * SLICES;
    full = memory;
    empty = memory + 8 * DG_STREAM_STAGES;
    data = (empty + 8 * DG_STREAM_STAGES + 1023) & ~1023u;
  }
};

/* The boxes of one operand, stage after stage. */
struct boxes {
  const CUtensorMap *map;
  int count, x, y, z, dx, dy, dz; /* of a stage; where the next one is; from box to box */

  DG_DEVICE boxes(const CUtensorMap *map_, bool mn_major, bool folded, int slices, int first,
                  int z_)
      : map(map_),
        count(folded || mn_major ? 1 : slices),
        x(mn_major ? first : 0),
        y(mn_major ? 0 : first),
        z(folded ? 0 : z_),
        dx(mn_major || folded ? 0 : SLICE),
        dy(mn_major ? SLICE * slices : 0),
        dz(folded ? slices : 0) {}

  DG_DEVICE void advance() {
    x += dx;
    y += dy;
    z += dz;
  }
};

template <int N, int SLICES>
DG_DEVICE void produce(const dg_problem &p, const place<N, SLICES> &here, const dg_gpu_tuning &t,
                       const CUtensorMap *map_a, const CUtensorMap *map_b) {
  const bool mn_b = t.v[DG_STREAM_KIND] & 2;
  boxes a(map_a, false, t.v[DG_STREAM_FOLD_A], SLICES, (int)here.m, p.a.bs ? (int)here.z : 0);
  boxes b(map_b, mn_b, t.v[DG_STREAM_FOLD_B], SLICES, (int)here.n, p.b.bs ? (int)here.z : 0);
  dg_dependency_wait();
  uint32_t parity = 1; /* the stages are empty at first */
  uint32_t full = here.full, empty = here.empty, to = here.data;
  const uint32_t end = here.full + 8 * here.depth;
#pragma unroll 1
  for (int i = here.stages; i > 0; i--) {
    dg_barrier_wait(empty, parity);
    dg_barrier_expect(full, here.stage_bytes);
    uint32_t at = to + here.rows * LINE * SLICES;
#pragma unroll 1
    for (int j = 0; j < b.count; j++, b.advance(), at += N * LINE)
      dg_tma_load(at, b.map, full, b.x, b.y, b.z);
    at = to;
#pragma unroll 1
    for (int j = 0; j < a.count; j++, a.advance(), at += here.rows * LINE)
      dg_tma_load(at, a.map, full, a.x, a.y, a.z);
    full += 8;
    empty += 8;
    to += here.stage_bytes;
    if (full == end) {
      full = here.full;
      empty = here.empty;
      to = here.data;
      parity ^= 1;
    }
  }
}

/* The chain over all k, at least one stage. A stage is released once the next one's instructions
 * are in flight. */
template <int N, int SLICES, bool F16, bool MN_B>
DG_DEVICE void accumulate(const place<N, SLICES> &here, float (&acc)[N / 2]) {
  using tile_a = dg_wgmma_tile<DG_STREAM_M, false>;
  using tile_b = dg_wgmma_tile<N, MN_B>;
  const uint32_t lane = threadIdx.x % 32;
  uint32_t before = 0, parity = 0, full = here.full, empty = here.empty, to = here.data;
  const uint32_t end = here.full + 8 * here.depth;
  int left = here.stages;
  dg_wgmma_settle(acc);
  do {
    dg_barrier_wait(full, parity);
    dg_wgmma_fence();
#pragma unroll
    for (int s = 0; s < SLICES; s++) {
      const uint64_t a = tile_a::descriptor(to + s * here.rows * LINE);
      const uint64_t b = tile_b::descriptor(to + (SLICES * here.rows + s * N) * LINE);
#pragma unroll
      for (int step = 0; step < SLICE / 16; step++)
        dg_wgmma<F16, false, MN_B>(acc, a + step * (tile_a::k16 >> 4),
                                   b + step * (tile_b::k16 >> 4));
    }
    dg_wgmma_commit();
    dg_wgmma_wait<1>();
    if (before && lane == 0) dg_barrier_arrive(before);
    before = empty;
    full += 8;
    empty += 8;
    to += here.stage_bytes;
    if (full == end) {
      full = here.full;
      empty = here.empty;
      to = here.data;
      parity ^= 1;
    }
  } while (--left > 0);
  dg_wgmma_wait<0>();
  dg_wgmma_settle(acc);
}

template <int N, int SLICES>
DG_DEVICE void consume(const dg_problem &p, const place<N, SLICES> &here, int warp, int kind) {
  const int64_t m = here.m + warp * 16;
  float acc[N / 2];
  dg_dependency_wait();
  dg_load_start(p, here.z, m, here.n, acc);
  switch (kind) { /* 2 and 3 only where the lines of B are one box wide */
    case 0: accumulate<N, SLICES, false, false>(here, acc); break;
    case 1: accumulate<N, SLICES, true, false>(here, acc); break;
    case 2: accumulate<N, SLICES, false, N <= 64>(here, acc); break;
    default: accumulate<N, SLICES, true, N <= 64>(here, acc); break;
  }
  if (m < p.m) dg_store(p, here.z, m, here.n, acc);
}

template <int N, int SLICES>
DG_DEVICE void gemm(const dg_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b,
                    const dg_gpu_tuning &t) {
  extern __shared__ uint8_t dynamic[];
  const place<N, SLICES> here(p, t, dg_shared(dynamic));
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0); /* tells ptxas that it is uniform */
  if (warp == 0 && dg_elect()) {
    dg_tma_prefetch(map_a);
    dg_tma_prefetch(map_b);
    for (int i = 0; i < here.depth; i++) {
      dg_barrier_init(here.full + 8 * i, 1);
      dg_barrier_init(here.empty + 8 * i, 4);
    }
    dg_barrier_init_fence();
  }
  __syncthreads();
  dg_dependents_launch();
  if (warp < 4) consume(p, here, warp, t.v[DG_STREAM_KIND]);
  else if (dg_elect()) produce(p, here, t, map_a, map_b);
}

}  // namespace

#define KERNEL(N, SLICES)                                                                \
  extern "C" __global__ void __launch_bounds__(DG_STREAM_THREADS, 2) dg_tc16_stream_##N( \
      const __grid_constant__ dg_problem p, const __grid_constant__ CUtensorMap a,       \
      const __grid_constant__ CUtensorMap b, const __grid_constant__ dg_gpu_tuning t) {  \
    gemm<N, SLICES>(p, &a, &b, t);                                                       \
  }
DG_STREAM_TILES(KERNEL)
