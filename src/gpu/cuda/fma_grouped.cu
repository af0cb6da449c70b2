/* fma for grouped products of any layout: 64 x 64 tiles in shared memory, 4 x 4 per thread. */
#include <cuda_fp16.h>

#include "fma_grouped.h"
#include "grouped.cuh"

namespace {

constexpr int BM = DG_FMA_GROUPED_BM, BN = DG_FMA_GROUPED_BN, BK = 16;
constexpr int THREADS = DG_FMA_GROUPED_THREADS;
constexpr int FETCH = BM * BK / THREADS;
static_assert(BM == BN, "both operands are fetched alike");

__device__ float load(const dg_operand &x, int64_t at) {
  if (x.dtype == DG_F32) return static_cast<const float *>(x.data)[at];
  if (x.dtype == DG_F16) return __half2float(static_cast<const __half *>(x.data)[at]);
  return __uint_as_float(uint32_t(static_cast<const uint16_t *>(x.data)[at]) << 16);
}

__device__ void store(const dg_operand &x, int64_t at, float value) {
  uint32_t u = __float_as_uint(value);
  const bool nan = value != value;
  if (x.dtype == DG_F32) {
    static_cast<uint32_t *>(x.data)[at] = nan ? 0x7fc00000u : u;
  } else if (x.dtype == DG_F16) {
    static_cast<uint16_t *>(x.data)[at] =
        nan ? uint16_t(0x7e00u) : __half_as_ushort(__float2half_rn(value));
  } else {
    u = nan ? 0x7fc00000u : u + 0x7fffu + (u >> 16 & 1u);
    static_cast<uint16_t *>(x.data)[at] = uint16_t(u >> 16);
  }
}

/* BM lines of an operand by BK of the sum, neighbouring threads along the dense dimension. What is
 * outside is not used: the sum stops at its end, and lines outside are not stored. */
__device__ void fetch(float (&tile)[BK][BM + 4], const dg_operand &x, int64_t line, int64_t lines,
                      int64_t line_stride, int64_t k0, int64_t k_end, int64_t k_stride) {
  const bool along_lines = line_stride == 1;
#pragma unroll
  for (int i = 0; i < FETCH; i++) {
    const int at = i * THREADS + threadIdx.x;
    const int r = along_lines ? at % BM : at / BK, k = along_lines ? at / BM : at % BK;
    const bool inside = line + r < lines && k0 + k < k_end;
    tile[k][r] = inside ? load(x, (line + r) * line_stride + (k0 + k) * k_stride) : 0.0f;
  }
}

__device__ void compute_tile(const dg_problem &p, int64_t m0, int64_t n0) {
  __shared__ float a[BK][BM + 4], b[BK][BN + 4];
  const int row = threadIdx.x / 16, col = threadIdx.x % 16; /* the first of four, 16 apart */
  float acc[4][4];
#pragma unroll
  for (int e = 0; e < 16; e++) {
    const int64_t i = m0 + row + e / 4 * 16, j = n0 + col + e % 4 * 16;
    const bool from = p.start.data && i < p.m && j < p.n;
    acc[e / 4][e % 4] = from ? load(p.start, i * p.start.rs + j * p.start.cs) : 0.0f;
  }
  for (int64_t k0 = 0; k0 < p.k; k0 += BK) {
    __syncthreads();
    fetch(a, p.a, m0, p.m, p.a.rs, k0, p.k, p.a.cs);
    fetch(b, p.b, n0, p.n, p.b.cs, k0, p.k, p.b.rs);
    __syncthreads();
    const int depth = int(min(int64_t(BK), p.k - k0));
    for (int k = 0; k < depth; k++)
#pragma unroll
      for (int e = 0; e < 16; e++)
        acc[e / 4][e % 4] = fmaf(a[k][row + e / 4 * 16], b[k][col + e % 4 * 16], acc[e / 4][e % 4]);
  }
#pragma unroll
  for (int e = 0; e < 16; e++) {
    const int64_t i = m0 + row + e / 4 * 16, j = n0 + col + e % 4 * 16;
    if (i >= p.m || j >= p.n) continue;
    float x = acc[e / 4][e % 4];
    if (p.bias.data) x = __fadd_rn(x, load(p.bias, i * p.bias.rs + j * p.bias.cs));
    store(p.out, i * p.out.rs + j * p.out.cs, x);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    dg_fma_grouped(const __grid_constant__ dg_grouped g, const __grid_constant__ dg_gpu_tuning) {
  dg_group_tiles<BM, BN>(
      g, [](const dg_problem &p, int64_t m0, int64_t n0) { compute_tile(p, m0, n0); });
}
