/* One thread per output element and nothing clever: the baseline of the benchmarks, and the row
 * that takes every product. */
#include <cuda_fp16.h>

#include "../gpu.h"

enum { BF16 = 1, F16 = 2, F32 = 3 }; /* dg_dtype */

static __device__ float load(const dg_operand &x, int64_t z, int64_t i, int64_t j) {
  const int64_t at = z * x.bs + i * x.rs + j * x.cs;
  if (x.dtype == F32) return static_cast<const float *>(x.data)[at];
  if (x.dtype == F16) return __half2float(static_cast<const __half *>(x.data)[at]);
  return __uint_as_float(uint32_t(static_cast<const uint16_t *>(x.data)[at]) << 16);
}

static __device__ void store(const dg_operand &x, int64_t z, int64_t i, int64_t j, float value) {
  const int64_t at = z * x.bs + i * x.rs + j * x.cs;
  uint32_t u = __float_as_uint(value);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  if (x.dtype == F32) {
    static_cast<uint32_t *>(x.data)[at] = nan ? 0x7fc00000u : u;
  } else if (x.dtype == F16) {
    static_cast<uint16_t *>(x.data)[at] =
        nan ? uint16_t(0x7e00u) : __half_as_ushort(__float2half_rn(value));
  } else {
    u = nan ? 0x7fc00000u : u + 0x7fffu + (u >> 16 & 1u);
    static_cast<uint16_t *>(x.data)[at] = uint16_t(u >> 16);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    dg_fma_naive(const __grid_constant__ dg_problem p, const __grid_constant__ dg_gpu_tuning) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < p.m * p.n * p.batch;
       e += step) {
    const int64_t j = e % p.n, i = e / p.n % p.m, z = e / p.n / p.m;
    float acc = p.start.data ? load(p.start, z, i, j) : 0.0f;
    for (int64_t k = 0; k < p.k; k++) acc = fmaf(load(p.a, z, i, k), load(p.b, z, k, j), acc);
    if (p.bias.data) acc = __fadd_rn(acc, load(p.bias, z, i, j));
    store(p.out, z, i, j, acc);
  }
}
