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

constexpr int SLICE = DG_STREAM_SLICE, SLICES = DG_STREAM_SLICES;

/* Where a block works, and its ring. */
template <int N>
struct place {
  int64_t m, n, z; /* the first element */
  uint32_t peers, rank;
  int slices, depth;
  uint32_t rows, a_bytes, slice_bytes, data, full, empty;

  DG_DEVICE place(const dg_problem &p, const dg_gpu_tuning &t, uint32_t memory)
      : peers(dg_cluster_blocks()), rank(dg_cluster_rank()) {
    const int64_t columns = (p.n + N - 1) / N, bands = (p.m + DG_STREAM_M - 1) / DG_STREAM_M;
    const int64_t tiles = (columns + peers - 1) / peers * peers;
    n = blockIdx.x % tiles * N;
    m = blockIdx.x / tiles % bands * DG_STREAM_M;
    z = blockIdx.x / tiles / bands;
    slices = (int)((p.k + SLICE - 1) / SLICE);
    depth = t.v[DG_STREAM_DEPTH];
    rows = (uint32_t)t.v[DG_STREAM_ROWS];
    a_bytes = rows * SLICE * 2;
    slice_bytes = a_bytes + N * SLICE * 2;
    full = memory;
    empty = memory + 8 * DG_STREAM_STAGES;
    data = (empty + 8 * DG_STREAM_STAGES + 1023) & ~1023u;
  }
  DG_DEVICE uint32_t stage(int slot) const { return data + slot * SLICES * slice_bytes; }
};

/* A slice of B, handed box by box to load(offset, x, y). */
template <int N, class Load>
DG_DEVICE void each_box(bool mn_major, int n, int k, Load load) {
  constexpr int width = dg_wgmma_tile<N, true>::width;
  if (!mn_major) load(0, k, n);
  else
    for (int i = 0; i < N / width; i++) load(i * width * SLICE * 2, n + i * width, k);
}

/* This block's share of a slice of A, sent to all blocks of the cluster. */
template <int N>
DG_DEVICE void load_a(const place<N> &here, const CUtensorMap *map, bool mn_major, int k, int z,
                      uint32_t to, uint32_t barrier) {
  const int share = (mn_major ? SLICE : here.rows) / here.peers, first = share * here.rank;
  const int m = (int)here.m, x = mn_major ? m : k, y = (mn_major ? k : m) + first;
  to += first * SLICE * 2;
  if (here.peers == 1) dg_tma_load(to, map, barrier, x, y, z);
  else dg_tma_multicast(to, map, barrier, x, y, z, (uint16_t)((1u << here.peers) - 1));
}

template <int N>
DG_DEVICE void produce(const dg_problem &p, const place<N> &here, const dg_gpu_tuning &t,
                       const CUtensorMap *map_a, const CUtensorMap *map_b) {
  const bool mn_a = t.v[DG_STREAM_KIND] & 2, mn_b = t.v[DG_STREAM_KIND] & 4;
  const int za = p.a.bs ? (int)here.z : 0, zb = p.b.bs ? (int)here.z : 0, n = (int)here.n;
  for (int i = 0; i < min(t.v[DG_STREAM_AHEAD], here.slices); i++)
    each_box<N>(mn_b, n, i * SLICE,
                [&](uint32_t, int x, int y) { dg_tma_prefetch_box(map_b, x, y, zb); });
  dg_dependency_wait();
  uint32_t parity = 1; /* the stages are empty at first */
  for (int i = 0, slot = 0; i < here.slices; i += SLICES) {
    const uint32_t full = here.full + 8 * slot;
    dg_barrier_wait(here.empty + 8 * slot, parity);
    dg_barrier_expect(full, SLICES * here.slice_bytes);
#pragma unroll
    for (int s = 0; s < SLICES; s++) {
      const uint32_t to = here.stage(slot) + s * here.slice_bytes;
      const int k = (i + s) * SLICE;
      each_box<N>(mn_b, n, k, [&](uint32_t offset, int x, int y) {
        dg_tma_load(to + here.a_bytes + offset, map_b, full, x, y, zb);
      });
      load_a(here, map_a, mn_a, k, za, to, full);
    }
    if (++slot == here.depth) {
      slot = 0;
      parity ^= 1;
    }
  }
}

/* The chain over all k, at least one slice. A stage is released once the next one's instructions
 * are in flight. */
template <int N, bool F16, bool MN_A, bool MN_B>
DG_DEVICE void accumulate(const place<N> &here, float (&acc)[N / 2]) {
  using tile_a = dg_wgmma_tile<DG_STREAM_M, MN_A>;
  using tile_b = dg_wgmma_tile<N, MN_B>;
  const uint32_t lane = threadIdx.x % 32;
  uint32_t before = 0, parity = 0;
  int i = 0, slot = 0;
  dg_wgmma_settle(acc);
  do {
    dg_barrier_wait(here.full + 8 * slot, parity);
    dg_wgmma_fence();
#pragma unroll
    for (int s = 0; s < SLICES; s++) {
      const uint32_t at = here.stage(slot) + s * here.slice_bytes;
      const uint64_t a = tile_a::descriptor(at), b = tile_b::descriptor(at + here.a_bytes);
#pragma unroll
      for (int step = 0; step < SLICE / 16; step++)
        dg_wgmma<F16, MN_A, MN_B>(acc, a + step * (tile_a::k16 >> 4),
                                  b + step * (tile_b::k16 >> 4));
    }
    dg_wgmma_commit();
    dg_wgmma_wait<1>();
    if (i > 0 && lane < here.peers) dg_barrier_arrive_at(before, lane);
    before = here.empty + 8 * slot;
    if (++slot == here.depth) {
      slot = 0;
      parity ^= 1;
    }
    i += SLICES;
  } while (i < here.slices);
  dg_wgmma_wait<0>();
  dg_wgmma_settle(acc);
}

template <int N>
DG_DEVICE void consume(const dg_problem &p, const place<N> &here, const dg_gpu_tuning &t) {
  const int64_t m = here.m + threadIdx.x / 32 * 16;
  float acc[N / 2];
  dg_dependency_wait();
  dg_load_start(p, here.z, m, here.n, acc);
  switch (t.v[DG_STREAM_KIND]) {
    case 0: accumulate<N, false, false, false>(here, acc); break;
    case 1: accumulate<N, true, false, false>(here, acc); break;
    case 2: accumulate<N, false, true, false>(here, acc); break;
    case 3: accumulate<N, true, true, false>(here, acc); break;
    case 4: accumulate<N, false, false, true>(here, acc); break;
    case 5: accumulate<N, true, false, true>(here, acc); break;
    case 6: accumulate<N, false, true, true>(here, acc); break;
    default: accumulate<N, true, true, true>(here, acc); break;
  }
  if (m < p.m) dg_store(p, here.z, m, here.n, acc);
}

template <int N>
DG_DEVICE void gemm(const dg_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b,
                    const dg_gpu_tuning &t) {
  extern __shared__ uint8_t dynamic[];
  const place<N> here(p, t, dg_shared(dynamic));
  if (threadIdx.x == 0) {
    dg_tma_prefetch(map_a);
    dg_tma_prefetch(map_b);
    for (int i = 0; i < here.depth; i++) {
      dg_barrier_init(here.full + 8 * i, 1);
      dg_barrier_init(here.empty + 8 * i, 4 * here.peers);
    }
    dg_barrier_init_fence();
  }
  dg_cluster_arrive();
  dg_cluster_wait();
  dg_dependents_launch();
  if (threadIdx.x < 128) consume(p, here, t);
  else if (threadIdx.x == 128) produce(p, here, t, map_a, map_b);
  __syncwarp();
  dg_cluster_arrive(); /* peers may still send to this block or arrive at its barriers */
  dg_cluster_wait();
}

}  // namespace

#define KERNEL(N)                                                                           \
  extern "C" __global__ void __launch_bounds__(DG_STREAM_THREADS, N > 128 ? 1 : 2)          \
      dg_tc16_stream_##N(                                                                   \
          const __grid_constant__ dg_problem p, const __grid_constant__ CUtensorMap a,      \
          const __grid_constant__ CUtensorMap b, const __grid_constant__ dg_gpu_tuning t) { \
    gemm<N>(p, &a, &b, t);                                                                  \
  }
DG_STREAM_TILES(KERNEL)
