/* Rows of FP32 between memory and accumulators by way of shared memory, so that a warp touches
 * whole lines: straight from the accumulators' places it would touch 32 bytes in each of 8 rows,
 * which costs a large product a third of its time. Layout of acc as in epilogue.cuh. */
#ifndef DETGEMM_STAGING_CUH
#define DETGEMM_STAGING_CUH

#include "epilogue.cuh"

enum { DG_STAGING_BYTES = 2048 }; /* a warp's: 16 rows of 32 values */

/* Whether rows can be moved 16 bytes at a time. */
DG_DEVICE bool dg_staging_fits(const dg_operand &x, int64_t n, int64_t end, int columns) {
  return x.dtype == DG_F32 && x.cs == 1 && dg_aligned(x, x.rs, 4, 16) &&
         (n + columns <= end || end % 4 == 0);
}

/* A lane's two views of the warp's buffer: four values of a row for memory, two for acc. Chunks of
 * 16 bytes are exchanged by row, so that no bank is asked twice. */
struct dg_staging {
  uint32_t buffer;

  DG_DEVICE explicit dg_staging(uint32_t at) : buffer(at) {}
  DG_DEVICE uint32_t chunk(int row, int index) const {
    return buffer + (uint32_t)(row * 128 + (index ^ row % 8) * 16);
  }
  DG_DEVICE uint32_t wide(int quarter) const {
    const int lane = threadIdx.x % 32;
    return chunk(quarter * 4 + lane / 8, lane % 8);
  }
  DG_DEVICE uint32_t narrow(int j, int half) const {
    const int lane = threadIdx.x % 32;
    return chunk(half * 8 + lane / 4, 2 * j + lane % 4 / 2) + (uint32_t)(lane % 2 * 8);
  }
};

/* Memory as a lane sees it: row quarter * 4 + lane / 8, columns 4 (lane % 8) and on. */
struct dg_staging_rows {
  float *data;
  int64_t quarter; /* elements from a quarter to the next */
  int rows, cols;  /* left */

  DG_DEVICE dg_staging_rows(const dg_problem &p, const dg_operand &x, int64_t z, int64_t m,
                            int64_t n) {
    const int lane = threadIdx.x % 32;
    const int64_t row = m + lane / 8, col = n + lane % 8 * 4;
    data = (float *)x.data + z * x.bs + row * x.rs + col;
    quarter = 4 * x.rs;
    rows = (int)min((int64_t)1 << 30, p.m - row);
    cols = (int)min((int64_t)1 << 30, p.n - col);
  }
  DG_DEVICE bool holds(int q, int column) const { return q * 4 < rows && column < cols; }
};

template <int COUNT>
DG_DEVICE void dg_load_start_staged(const dg_problem &p, int64_t z, int64_t m, int64_t n,
                                    dg_staging staging, float (&acc)[COUNT]) {
  const dg_staging_rows from(p, p.start, z, m, n);
#pragma unroll
  for (int e = 0; e < COUNT; e += 4) { /* all on their way before the first is used */
    const int q = e / 4 % 4, column = e / 16 * 32;
    float4 v = make_float4(0, 0, 0, 0);
    if (from.holds(q, column)) v = *(const float4 *)(from.data + q * from.quarter + column);
    acc[e] = v.x;
    acc[e + 1] = v.y;
    acc[e + 2] = v.z;
    acc[e + 3] = v.w;
  }
#pragma unroll
  for (int piece = 0; piece < COUNT; piece += 16) {
#pragma unroll
    for (int e = piece; e < piece + 16; e += 4)
      dg_shared_store(staging.wide(e / 4 % 4),
                      make_float4(acc[e], acc[e + 1], acc[e + 2], acc[e + 3]));
    __syncwarp();
#pragma unroll
    for (int e = piece; e < piece + 16; e += 2) {
      const float2 pair = dg_shared_load2(staging.narrow(e / 4 % 4, e / 2 % 2));
      acc[e] = pair.x;
      acc[e + 1] = pair.y;
    }
    __syncwarp();
  }
}

/* acc is finished: bias added. */
template <int COUNT>
DG_DEVICE void dg_store_staged(const dg_problem &p, int64_t z, int64_t m, int64_t n,
                               dg_staging staging, float (&acc)[COUNT]) {
  const dg_staging_rows to(p, p.out, z, m, n);
#pragma unroll
  for (int piece = 0; piece < COUNT; piece += 16) {
#pragma unroll
    for (int e = piece; e < piece + 16; e += 2)
      dg_shared_store(staging.narrow(e / 4 % 4, e / 2 % 2),
                      make_float2(__uint_as_float(dg_f32_bits(acc[e])),
                                  __uint_as_float(dg_f32_bits(acc[e + 1]))));
    __syncwarp();
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const float4 v = dg_shared_load4(staging.wide(q));
      if (to.holds(q, piece * 2)) *(float4 *)(to.data + q * to.quarter + piece * 2) = v;
    }
    __syncwarp();
  }
}

#endif
