/* tc16 for any strides and any alignment: elements are fetched one by one, neighbouring threads
 * along whichever dimension is dense, into shared memory, and multiplied by mma.sync. */
#include "../gpu.h"
#include "epilogue.cuh"
#include "grouped.cuh"
#include "mma.cuh"
#include "tc16_any.h"

namespace {

constexpr int BM = DG_ANY_BM, BN = DG_ANY_BN, BK = DG_ANY_BK, THREADS = DG_ANY_THREADS;
constexpr int PITCH = BK + 8;            /* eight rows lie in different banks */
constexpr int WM = BM / 2, WN = BN / 2;  /* the part of a warp: 2 x 2 warps */
constexpr int FETCH = BM * BK / THREADS; /* elements a thread fetches per operand */
static_assert(BM == BN, "both operands are fetched alike");

/* An operand from a tile's first row on, and the elements of it that a thread fetches: the i-th is
 * (row + i * row_step, k + i * k_step), neighbouring threads along the dense dimension. */
struct strip {
  const uint16_t *data; /* of the thread's first element */
  int64_t step, next;   /* to its next element; to the next BK */
  int64_t rows, depth;  /* from the thread's first element to the edges */
  int row, k, row_step, k_step;

  DG_DEVICE strip(const dg_operand &x, int64_t z, int64_t first, int64_t is, int64_t ks,
                  int64_t extent, int64_t k_extent) {
    const bool along_m = is == 1;
    row = along_m ? threadIdx.x % BM : threadIdx.x / BK;
    k = along_m ? threadIdx.x / BM : threadIdx.x % BK;
    row_step = along_m ? 0 : THREADS / BK;
    k_step = along_m ? THREADS / BM : 0;
    data = (const uint16_t *)x.data + z * x.bs + (first + row) * is + k * ks;
    step = row_step * is + k_step * ks;
    next = BK * ks;
    rows = extent - first - row;
    depth = k_extent - k;
  }
};

DG_DEVICE void fetch(uint16_t (&held)[FETCH], strip &s) {
#pragma unroll
  for (int i = 0; i < FETCH; i++)
    held[i] = i * s.row_step < s.rows && i * s.k_step < s.depth ? s.data[i * s.step] : 0;
  s.data += s.next;
  s.depth -= BK;
}

DG_DEVICE void put(uint16_t (&tile)[BM][PITCH], const strip &s, const uint16_t (&held)[FETCH]) {
#pragma unroll
  for (int i = 0; i < FETCH; i++) tile[s.row + i * s.row_step][s.k + i * s.k_step] = held[i];
}

template <bool F16>
DG_DEVICE void multiply(const uint16_t (&a)[BM][PITCH], const uint16_t (&b)[BN][PITCH], int row,
                        int col, float (&acc)[WM / 16][WN / 2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < BK; k += 16) {
    uint32_t left[WM / 16][4], right[WN / 8][2];
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
      dg_matrix_load(left[i], &a[row + 16 * i + lane % 16][k + lane / 16 * 8]);
#pragma unroll
    for (int j = 0; j < WN / 8; j++)
      dg_matrix_load(right[j], &b[col + 8 * j + lane % 8][k + lane / 8 % 2 * 8]);
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
      for (int j = 0; j < WN / 8; j++) dg_mma<F16>(&acc[i][4 * j], left[i], right[j]);
  }
}

template <bool F16>
DG_DEVICE void compute_tile(const dg_problem &p, int64_t z, int64_t m0, int64_t n0) {
  __shared__ __align__(16) uint16_t tile_a[BM][PITCH], tile_b[BN][PITCH];
  strip a(p.a, z, m0, p.a.rs, p.a.cs, p.m, p.k), b(p.b, z, n0, p.b.cs, p.b.rs, p.n, p.k);
  const int warp = threadIdx.x / 32, row = warp / 2 * WM, col = warp % 2 * WN;
  float acc[WM / 16][WN / 2];
  uint16_t held_a[FETCH], held_b[FETCH];
  fetch(held_a, a);
  fetch(held_b, b);
#pragma unroll
  for (int i = 0; i < WM / 16; i++) dg_load_start(p, z, m0 + row + 16 * i, n0 + col, acc[i]);
  for (int64_t k0 = 0; k0 < p.k; k0 += BK) {
    __syncthreads();
    put(tile_a, a, held_a);
    put(tile_b, b, held_b);
    __syncthreads();
    fetch(held_a, a);
    fetch(held_b, b);
    multiply<F16>(tile_a, tile_b, row, col, acc);
  }
#pragma unroll
  for (int i = 0; i < WM / 16; i++) dg_store(p, z, m0 + row + 16 * i, n0 + col, acc[i]);
}

template <bool F16>
DG_DEVICE void compute(const dg_problem &p) {
  const int64_t rows = (p.m + BM - 1) / BM, cols = (p.n + BN - 1) / BN;
  for (int64_t i = blockIdx.x; i < rows * cols * p.batch; i += gridDim.x)
    compute_tile<F16>(p, i / rows / cols, i % rows * BM, i / rows % cols * BN);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    dg_tc16_any(const __grid_constant__ dg_problem p, const __grid_constant__ dg_gpu_tuning) {
  dg_dependents_launch();
  dg_dependency_wait();
  if (p.a.dtype == DG_F16) compute<true>(p);
  else compute<false>(p);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    dg_tc16_grouped(const __grid_constant__ dg_grouped g, const __grid_constant__ dg_gpu_tuning) {
  const auto tile = [](const dg_problem &p, int64_t m0, int64_t n0) {
    if (p.a.dtype == DG_F16) compute_tile<true>(p, 0, m0, n0);
    else compute_tile<false>(p, 0, m0, n0);
  };
  dg_group_tiles<BM, BN>(g, tile);
}
