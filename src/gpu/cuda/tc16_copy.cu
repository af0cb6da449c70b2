/* tc16 for any strides and any alignment on Hopper: what the copy engine cannot take, warps copy.
 *
 * A few warps fill a ring of shared-memory stages with ordinary loads, in the layout in which TMA
 * would have written them; warpgroups multiply with wgmma, 16 k a step in ascending order. Every
 * warp loads whole lines of 64 elements: 4 bytes a lane where the line lies on 4 bytes, else two
 * elements. What lies past k is written as zero, which changes nothing in this order; lines past m
 * or n are left as they are, because they reach only results that are not written. */
#include "../gpu.h"
#include "epilogue.cuh"
#include "tc16_copy.h"
#include "wgmma.cuh"

namespace {

constexpr int SLICE = 64; /* elements of a line */

template <int BM_, int BN_, int STAGES_, int SLICES_, int WARPS_, int BATCH_>
struct shape {
  static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_, SLICES = SLICES_;
  static constexpr int WARPS = WARPS_, BATCH = BATCH_;
  static constexpr int multipliers = BM * 2; /* threads */
  static constexpr uint32_t a_bytes = BM * SLICE * 2, slice_bytes = (BM + BN) * SLICE * 2;
  static constexpr uint32_t stage_bytes = slice_bytes * SLICES;
};

template <class S>
struct ring {
  uint32_t data, full, empty, parity = 0;
  int stage = 0;

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

/* Every gridDim-th tile, in bands of eight rows of tiles, which keep the working set square. */
template <class S>
struct schedule {
  int64_t tile, rows, cols, total, z, m, n;

  DG_DEVICE explicit schedule(const dg_problem &p)
      : tile(blockIdx.x), rows((p.m + S::BM - 1) / S::BM), cols((p.n + S::BN - 1) / S::BN) {
    total = rows * cols * p.batch;
  }
  DG_DEVICE bool next() {
    if (tile >= total) return false;
    const int64_t in_plane = tile % (rows * cols), band = in_plane / (8 * cols) * 8;
    const int64_t height = min((int64_t)8, rows - band), in_band = in_plane - band * cols;
    z = tile / (rows * cols);
    m = (band + in_band % height) * S::BM;
    n = in_band / height * S::BN;
    tile += gridDim.x;
    return true;
  }
};

/* An operand's part of a tile: `rows` of it are left from the tile's first one on, `depth` of k.
 * Element (i, k) is data[i * is + k * ks]. */
struct strip {
  const uint16_t *data;
  int64_t is, ks, rows, depth;
};

DG_DEVICE uint32_t load_word(const uint16_t *from, bool here) {
  uint32_t word;
  asm volatile(
      "{\n\t.reg .pred here;\n\tsetp.ne.u32 here, %2, 0;\n\tmov.u32 %0, 0;\n\t"
      "@here ld.global.u32 %0, [%1];\n\t}"
      : "=r"(word)
      : "l"(from), "r"((int)here)
      : "memory");
  return word;
}

DG_DEVICE uint32_t load_half(const uint16_t *from, bool here) {
  uint32_t half;
  asm volatile(
      "{\n\t.reg .pred here;\n\tsetp.ne.u32 here, %2, 0;\n\tmov.u32 %0, 0;\n\t"
      "@here ld.global.u16 %0, [%1];\n\t}"
      : "=r"(half)
      : "l"(from), "r"((int)here)
      : "memory");
  return half;
}

/* Lines of 64 elements, a warp every WARPS-th: rows of a K-major operand; for each 64 rows of an
 * MN-major one, the k of the slice. A lane has elements 2 lane and 2 lane + 1 of each line, in one
 * word or in two halves: nothing waits for a load before the store, and there are no branches. */
template <int WARPS, bool MN_MAJOR, int COUNT>
struct lines {
  static constexpr int PART = MN_MAJOR ? SLICE / WARPS : COUNT; /* lines that end alike */
  uint32_t low[COUNT], high[COUNT];

  DG_DEVICE void load(const strip &s, int64_t k0, int warp) {
    const int e = threadIdx.x % 32 * 2;
    const int64_t pitch = MN_MAJOR ? s.ks : s.is, step = MN_MAJOR ? s.is : s.ks;
    const int count = (int)min((int64_t)1024, (MN_MAJOR ? s.depth - k0 : s.rows) - warp);
    const uint16_t *at = s.data + k0 * s.ks + warp * pitch + e * step;
#pragma unroll
    for (int part = 0; part < COUNT; part += PART) {
      const int64_t left = MN_MAJOR ? s.rows - part / PART * SLICE : s.depth - k0;
      const int first = e < left ? count : 0, second = e + 1 < left ? count : 0;
      /* WARPS is even, so the answer is that of all lines; a line may not end within a word */
      const bool words = step == 1 && ((uintptr_t)at & 2) == 0 && (left >= SLICE || left % 2 == 0);
      const uint16_t *from = at + part / PART * SLICE * step;
      if (words) {
#pragma unroll
        for (int i = part; i < part + PART; i++, from += WARPS * pitch) {
          low[i] = load_word(from, (i - part) * WARPS < first);
          high[i] = 0;
        }
      } else {
#pragma unroll
        for (int i = part; i < part + PART; i++, from += WARPS * pitch) {
          low[i] = load_half(from, (i - part) * WARPS < first);
          high[i] = load_half(from + step, (i - part) * WARPS < second);
        }
      }
    }
  }

  /* Where TMA would put them: 16-byte pieces exchanged within a line by its number (128-byte
   * swizzle). Rows past the operand's are not written. */
  DG_DEVICE void store(uint32_t to, int64_t rows, int warp) const {
    const uint32_t lane = threadIdx.x % 32;
    to += warp * SLICE * 2 + (lane / 4 ^ warp % 8) * 16 + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      if (MN_MAJOR || i * WARPS < rows)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + i * WARPS * SLICE * 2),
                     "r"(low[i] | high[i] << 16)
                     : "memory");
  }
};

/* While the words of one operand are stored, those of the other are on their way. */
template <class S, bool MN_A, bool MN_B>
DG_DEVICE void copy(const dg_problem &p, ring<S> r) {
  const int warp = (threadIdx.x - S::multipliers) / 32;
  schedule<S> work(p);
  while (work.next()) {
    const strip a = {(const uint16_t *)p.a.data + work.z * p.a.bs + work.m * p.a.rs, p.a.rs, p.a.cs,
                     p.m - work.m, p.k};
    const strip b = {(const uint16_t *)p.b.data + work.z * p.b.bs + work.n * p.b.cs, p.b.cs, p.b.rs,
                     p.n - work.n, p.k};
    lines<S::WARPS, MN_A, S::BM / S::WARPS> lines_a[S::BATCH];
    lines<S::WARPS, MN_B, S::BN / S::WARPS> lines_b[S::BATCH];
#pragma unroll
    for (int j = 0; j < S::BATCH; j++) lines_a[j].load(a, j * SLICE, warp);
#pragma unroll
    for (int j = 0; j < S::BATCH; j++) lines_b[j].load(b, j * SLICE, warp);
    for (int64_t k = 0; k < p.k;) {
      dg_barrier_wait(r.empty_now(), r.parity ^ 1); /* empty at first */
#pragma unroll 1
      for (int i = 0; i < S::SLICES; i += S::BATCH) {
        k += S::BATCH * SLICE;
#pragma unroll
        for (int j = 0; j < S::BATCH; j++) lines_a[j].store(r.slice(i + j), a.rows, warp);
#pragma unroll
        for (int j = 0; j < S::BATCH; j++) lines_a[j].load(a, k + j * SLICE, warp);
#pragma unroll
        for (int j = 0; j < S::BATCH; j++)
          lines_b[j].store(r.slice(i + j) + S::a_bytes, b.rows, warp);
#pragma unroll
        for (int j = 0; j < S::BATCH; j++) lines_b[j].load(b, k + j * SLICE, warp);
      }
      dg_shared_fence(); /* ordinary stores, read by wgmma */
      __syncwarp();
      if (threadIdx.x % 32 == 0) dg_barrier_arrive(r.full_now());
      r.advance();
    }
  }
}

template <class S, bool F16, bool MN_A, bool MN_B>
DG_DEVICE void accumulate(int64_t k, ring<S> &r, float (&acc)[S::BN / 2]) {
  using tile_a = dg_wgmma_tile<64, MN_A>;
  using tile_b = dg_wgmma_tile<S::BN, MN_B>;
  const uint32_t group = threadIdx.x / 128;
  uint32_t before = 0;
  dg_wgmma_settle(acc);
  do {
    dg_barrier_wait(r.full_now(), r.parity);
    dg_wgmma_fence();
#pragma unroll
    for (int i = 0; i < S::SLICES; i++) {
      const uint64_t a = tile_a::descriptor(r.slice(i) + group * 64 * SLICE * 2);
      const uint64_t b = tile_b::descriptor(r.slice(i) + S::a_bytes);
#pragma unroll
      for (int step = 0; step < SLICE / 16; step++)
        dg_wgmma<F16, MN_A, MN_B>(acc, a + step * (tile_a::k16 >> 4),
                                  b + step * (tile_b::k16 >> 4));
    }
    dg_wgmma_commit();
    dg_wgmma_wait<1>();
    if (before && threadIdx.x % 32 == 0) dg_barrier_arrive(before);
    before = r.empty_now();
    r.advance();
    k -= SLICE * S::SLICES;
  } while (k > 0);
  dg_wgmma_wait<0>();
  dg_wgmma_settle(acc);
  if (threadIdx.x % 32 == 0) dg_barrier_arrive(before);
}

template <class S, bool MN_A, bool MN_B>
DG_DEVICE void multiply(const dg_problem &p, ring<S> r) {
  schedule<S> work(p);
  while (work.next()) {
    const int64_t m = work.m + threadIdx.x / 32 * 16;
    float acc[S::BN / 2];
    dg_load_start(p, work.z, m, work.n, acc);
    if (p.k == 0) {
      dg_store(p, work.z, m, work.n, acc);
      continue;
    }
    if (p.a.dtype == DG_F16) accumulate<S, true, MN_A, MN_B>(p.k, r, acc);
    else accumulate<S, false, MN_A, MN_B>(p.k, r, acc);
    dg_store(p, work.z, m, work.n, acc);
  }
}

template <class S, bool MN_A, bool MN_B>
DG_DEVICE void gemm(const dg_problem &p, const ring<S> &r) {
  if (threadIdx.x < S::multipliers) {
    multiply<S, MN_A, MN_B>(p, r);
  } else {
    copy<S, MN_A, MN_B>(p, r);
  }
}

template <class S>
DG_DEVICE void begin(const dg_problem &p, const dg_gpu_tuning &t) {
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t barriers[2 * S::STAGES];
  ring<S> r;
  r.data = (dg_shared(dynamic) + 1023) & ~1023u;
  r.full = dg_shared(barriers);
  r.empty = r.full + 8 * S::STAGES;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::STAGES; i++) {
      dg_barrier_init(r.full + 8 * i, S::WARPS);
      dg_barrier_init(r.empty + 8 * i, S::multipliers / 32);
    }
    dg_barrier_init_fence();
  }
  __syncthreads();
  dg_dependents_launch();
  dg_dependency_wait();
  switch (t.v[DG_TC16_COPY_KIND] / 2) { /* the kinds that tc16_copy.c asks of a tile */
    case 0: gemm<S, false, false>(p, r); break;
    case 1: gemm<S, (S::BM >= 128), false>(p, r); break;
    case 2: gemm<S, false, (S::BN >= 64)>(p, r); break;
    default: gemm<S, (S::BM >= 128), (S::BN >= 64)>(p, r); break;
  }
}

}  // namespace

#define KERNEL(BM, BN, STAGES, SLICES, WARPS, BATCH, OF_K)                         \
  extern "C" __global__ void __launch_bounds__(DG_TC16_COPY_THREADS(BM, WARPS), 1) \
      dg_tc16_copy_##BM##x##BN(const __grid_constant__ dg_problem p,               \
                               const __grid_constant__ dg_gpu_tuning t) {          \
    begin<shape<BM, BN, STAGES, SLICES, WARPS, BATCH>>(p, t);                      \
  }
DG_TC16_COPY_TILES(KERNEL)
