/* tc16 for many rows on Hopper: a persistent kernel, warp-specialised.
 *
 * One warp feeds a ring of shared-memory stages by TMA, straight from the strided operands (K-major
 * or MN-major by descriptor), and BM / 64 consumer warpgroups walk over them with wgmma. The k of a
 * tile ascend 16 at a time in one chain of accumulators that starts at the problem's start: that is
 * the tc16 order. Elements past an edge arrive as zeros, which change nothing in this order. The
 * blocks of a cluster share tiles by multicast, each loading its part of them. */
#include "../gpu.h"
#include "staging.cuh"
#include "tc16_wgmma.h"
#include "wgmma.cuh"

namespace {

constexpr int BK = 64; /* k of a slice: 128 bytes, the widest swizzle */

template <int BM_, int BN_, int STAGES_, int SLICES_>
struct shape {
  static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_, SLICES = SLICES_;
  static constexpr int consumers = BM / 64; /* warpgroups */
  static constexpr uint32_t a_bytes = BM * BK * 2, slice_bytes = (BM + BN) * BK * 2;
  static constexpr uint32_t stage_bytes = slice_bytes * SLICES;
};

/* The ring and where a thread is in it. full[] and empty[] are barriers' offsets. */
template <class S>
struct ring {
  uint32_t data, full, empty;
  int stage = 0;
  uint32_t parity = 0;

  DG_DEVICE uint32_t slice(int i) const {
    return data + (uint32_t)stage * S::stage_bytes + (uint32_t)i * S::slice_bytes;
  }
  DG_DEVICE uint32_t full_now() const { return full + 8 * (uint32_t)stage; }
  DG_DEVICE uint32_t empty_now() const { return empty + 8 * (uint32_t)stage; }
  DG_DEVICE void advance() {
    if (++stage == S::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/* The block's place in its cluster. */
struct place {
  uint32_t cm, cn, m, n; /* blocks along m and n, and which of them this is */
  DG_DEVICE explicit place(const dg_gpu_tuning &t)
      : cm((uint32_t)t.v[DG_WGMMA_CLUSTER_M]), cn((uint32_t)t.v[DG_WGMMA_CLUSTER_N]) {
    const uint32_t rank = dg_cluster_rank();
    m = rank % cm;
    n = rank / cm;
  }
  /* The blocks that read what this one loads: a cross. The i-th of cm + cn - 1. */
  DG_DEVICE uint32_t peers() const { return cm + cn - 1; }
  DG_DEVICE uint32_t peer(uint32_t i) const {
    if (i < cm) return i + n * cm;
    const uint32_t j = i - cm;
    return m + (j + (j >= n)) * cm;
  }
};

/* The tiles of a cluster: every clusters-th, in an order that keeps the working set square. */
template <class S>
struct schedule {
  const dg_gpu_tuning &t;
  const place &here;
  uint32_t tile, step, plane, total;
  int64_t z, m, n; /* the block's first element */

  DG_DEVICE schedule(const dg_problem &p, const dg_gpu_tuning &tuning, const place &where)
      : t(tuning), here(where) {
    const uint32_t size = here.cm * here.cn;
    tile = blockIdx.x / size;
    step = gridDim.x / size;
    plane = (uint32_t)t.v[DG_WGMMA_TILES_M] * (uint32_t)t.v[DG_WGMMA_TILES_N];
    total = plane * (uint32_t)p.batch;
  }
  DG_DEVICE bool next() {
    if (tile >= total) return false;
    const uint32_t tiles_m = (uint32_t)t.v[DG_WGMMA_TILES_M];
    const uint32_t group = (uint32_t)t.v[DG_WGMMA_GROUP];
    const uint32_t in_plane = tile % plane, band = group * (uint32_t)t.v[DG_WGMMA_TILES_N];
    const uint32_t first = in_plane / band * group, height = min(group, tiles_m - first);
    z = tile / plane;
    m = ((int64_t)(first + in_plane % band % height) * here.cm + here.m) * S::BM;
    n = ((int64_t)(in_plane % band / height) * here.cn + here.n) * S::BN;
    tile += step;
    return true;
  }
};

/* One operand's way into the stages. The `shares` blocks that need a tile load a part of it each
 * and send it to all of them. All that a slice does not change is computed once a tile: the one
 * thread that feeds the ring must keep up with the tensor cores. */
template <int EXTENT>
struct source {
  static constexpr uint32_t width = dg_wgmma_tile<EXTENT, true>::width;
  const CUtensorMap *map;
  bool mn_major, shared;
  uint16_t blocks; /* the blocks that get this one's part */
  uint32_t offset; /* of the part within the tile */
  int part;        /* first row (K-major) or line (MN-major) of the part */
  int x, y, z;

  DG_DEVICE source(const CUtensorMap *tensor, bool mn, uint32_t shares, uint32_t share,
                   uint16_t targets)
      : map(tensor), mn_major(mn), shared(shares > 1), blocks(targets) {
    part = (int)(share * ((mn ? BK : EXTENT) / shares));
    offset = (uint32_t)part * (mn ? width : BK) * 2;
  }
  DG_DEVICE void begin(int64_t first, int64_t product) {
    x = mn_major ? (int)first : 0;
    y = mn_major ? part : (int)first + part;
    z = (int)product;
  }
  DG_DEVICE void box(uint32_t to, uint32_t barrier, int at) const {
    if (shared) dg_tma_multicast(to, map, barrier, at, y, z, blocks);
    else dg_tma_load(to, map, barrier, at, y, z);
  }
  /* The next 64 k. */
  DG_DEVICE void load(uint32_t tile, uint32_t barrier) {
    const uint32_t to = tile + offset;
    if (!mn_major) {
      box(to, barrier, x);
      x += BK;
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < EXTENT / width; i++)
      box(to + i * (width * BK * 2), barrier, x + (int)(i * width));
    y += BK;
  }
};

template <class S>
DG_DEVICE void produce(const dg_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b,
                       const dg_gpu_tuning &t, const place &here, ring<S> r) {
  const int kind = t.v[DG_WGMMA_KIND],
            stages = (int)((p.k + BK * S::SLICES - 1) / (BK * S::SLICES));
  uint16_t row = 0, column = 0; /* the blocks that share this one's tile of A, of B */
  for (uint32_t i = 0; i < here.cn; i++) row |= (uint16_t)(1u << (here.m + i * here.cm));
  for (uint32_t i = 0; i < here.cm; i++) column |= (uint16_t)(1u << (i + here.n * here.cm));
  source<S::BM> a(map_a, kind & 2, here.cn, here.n, row);
  source<S::BN> b(map_b, kind & 4, here.cm, here.m, column);
  r.parity = 1; /* the stages are empty at first */
  schedule<S> work(p, t, here);
  dg_dependency_wait();
  while (work.next()) {
    a.begin(work.m, p.a.bs ? work.z : 0);
    b.begin(work.n, p.b.bs ? work.z : 0);
    for (int i = 0; i < stages; i++) {
      const uint32_t full = r.full_now();
      dg_barrier_wait(r.empty_now(), r.parity);
      dg_barrier_expect(full, S::stage_bytes);
#pragma unroll
      for (int slice = 0; slice < S::SLICES; slice++) {
        a.load(r.slice(slice), full);
        b.load(r.slice(slice) + S::a_bytes, full);
      }
      r.advance();
    }
  }
}

/* Tells everyone who writes into this block's stage that this warpgroup has read it. */
DG_DEVICE void release(uint32_t empty, const place &here) {
  const uint32_t thread = threadIdx.x % 128;
  if (here.cm * here.cn == 1) {
    if (thread == 0) dg_barrier_arrive(empty);
  } else if (thread < here.peers()) dg_barrier_arrive_at(empty, here.peer(thread));
}

/* The chain of one warpgroup over all k. A stage is released once the next one's instructions are
 * in flight. After stage `lead` the other warpgroup may begin. */
template <class S, bool F16, bool MN_A, bool MN_B>
DG_DEVICE void accumulate(int stages, int lead, int group, const place &here, ring<S> &r,
                          float (&acc)[S::BN / 2]) {
  using tile_a = dg_wgmma_tile<64, MN_A>;
  using tile_b = dg_wgmma_tile<S::BN, MN_B>;
  const auto issue = [&]() {
    dg_barrier_wait(r.full_now(), r.parity);
    dg_wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < S::SLICES; slice++) {
      const uint32_t at = r.slice(slice);
      const uint64_t a = tile_a::descriptor(at + (uint32_t)group * 64 * BK * 2);
      const uint64_t b = tile_b::descriptor(at + S::a_bytes);
#pragma unroll
      for (int step = 0; step < BK / 16; step++)
        dg_wgmma<F16, MN_A, MN_B>(acc, a + step * (tile_a::k16 >> 4),
                                  b + step * (tile_b::k16 >> 4));
    }
    dg_wgmma_commit();
  };
  issue();
  dg_wgmma_wait<0>(); /* without it ptxas sees accumulators defined in flight and serialises all */
  uint32_t before = r.empty_now();
  r.advance();
  for (int i = 1; i < stages; i++) {
    issue();
    if (i == lead) dg_named_arrive(1, 256);
    dg_wgmma_wait<1>();
    release(before, here);
    before = r.empty_now();
    r.advance();
  }
  dg_wgmma_wait<0>();
  release(before, here);
}

template <class S>
DG_DEVICE void consume(const dg_problem &p, const dg_gpu_tuning &t, const place &here, int group,
                       ring<S> r) {
  const int stages = (int)((p.k + BK * S::SLICES - 1) / (BK * S::SLICES));
  int lead = S::consumers == 2 && stages > 2 ? 2 : 0;
  const dg_staging staging(r.data + S::STAGES * S::stage_bytes +
                           threadIdx.x / 32 * DG_STAGING_BYTES);
  float acc[S::BN / 2];
  schedule<S> work(p, t, here);
  dg_dependency_wait();
  if (lead != 0 && group == 1) { /* so that one's epilogue runs beside the other's instructions */
    dg_named_wait(1, 256);
    lead = 0;
  }
  while (work.next()) {
    const int64_t m = work.m + threadIdx.x / 32 * 16;
    if (p.start.data == nullptr)
#pragma unroll
      for (int e = 0; e < S::BN / 2; e++) acc[e] = 0;
    else if (dg_staging_fits(p.start, work.n, p.n, S::BN))
      dg_load_start_staged(p, work.z, m, work.n, staging, acc);
    else dg_load_start(p, work.z, m, work.n, acc);
    switch (t.v[DG_WGMMA_KIND]) {
      case 0: accumulate<S, false, false, false>(stages, lead, group, here, r, acc); break;
      case 1: accumulate<S, true, false, false>(stages, lead, group, here, r, acc); break;
      case 2: accumulate<S, false, true, false>(stages, lead, group, here, r, acc); break;
      case 3: accumulate<S, true, true, false>(stages, lead, group, here, r, acc); break;
      case 4: accumulate<S, false, false, true>(stages, lead, group, here, r, acc); break;
      case 5: accumulate<S, true, false, true>(stages, lead, group, here, r, acc); break;
      case 6: accumulate<S, false, true, true>(stages, lead, group, here, r, acc); break;
      default: accumulate<S, true, true, true>(stages, lead, group, here, r, acc); break;
    }
    lead = 0;
    if (dg_staging_fits(p.out, work.n, p.n, S::BN)) {
      dg_add_bias(p, work.z, dg_spot(p, m, work.n), acc);
      dg_store_staged(p, work.z, m, work.n, staging, acc);
    } else dg_store(p, work.z, m, work.n, acc);
  }
}

template <class S>
DG_DEVICE void gemm(const dg_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b,
                    const dg_gpu_tuning &t) {
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t barriers[2 * S::STAGES];
  const place here(t);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0); /* known to be uniform by it */
  ring<S> r;
  r.data = (dg_shared(dynamic) + 1023) & ~1023u;
  r.full = dg_shared(barriers);
  r.empty = r.full + 8 * S::STAGES;
  if (threadIdx.x == 0) {
    dg_tma_prefetch(map_a);
    dg_tma_prefetch(map_b);
    for (int i = 0; i < S::STAGES; i++) {
      dg_barrier_init(r.full + 8 * i, 1);
      dg_barrier_init(r.empty + 8 * i, S::consumers * here.peers());
    }
    dg_barrier_init_fence();
  }
  dg_cluster_arrive();
  dg_cluster_wait();
  dg_dependents_launch();
  if (group == S::consumers) {
    if constexpr (S::consumers == 2) dg_registers_lower<56>();
    if (threadIdx.x < S::consumers * 128 + 32) {
      if (dg_elect()) produce<S>(p, map_a, map_b, t, here, r);
      __syncwarp();
    }
  } else {
    if constexpr (S::consumers == 2) dg_registers_raise<224>();
    consume<S>(p, t, here, group, r);
  }
  dg_cluster_arrive(); /* peers may still send to this block or arrive at its barriers */
  dg_cluster_wait();
}

}  // namespace

#define KERNEL(BM, BN, STAGES, SLICES)                                                     \
  extern "C" __global__ void __launch_bounds__(BM * 2 + 128, 1) dg_tc16_wgmma_##BM##x##BN( \
      const __grid_constant__ dg_problem p, const __grid_constant__ CUtensorMap a,         \
      const __grid_constant__ CUtensorMap b, const __grid_constant__ dg_gpu_tuning t) {    \
    gemm<shape<BM, BN, STAGES, SLICES>>(p, &a, &b, t);                                     \
  }
DG_TC16_WGMMA_TILES(KERNEL)
