/* From accumulators to memory: start in, bias, the one rounding, canonical NaN, any strides out.
 *
 * A warp holds 16 rows by 8 J columns the way mma.sync and wgmma leave them: lane 4 i + q has in
 * acc[4 j + 0, 1] row i, columns 8 j + 2 q and + 1, and in acc[4 j + 2, 3] row i + 8. All functions
 * are called by whole warps. (m, n) is the warp's first element, z the product of the batch. */
#ifndef DETGEMM_EPILOGUE_CUH
#define DETGEMM_EPILOGUE_CUH

#include "../../problem.h"
#include "detgemm.h"
#include "ptx.cuh"

DG_DEVICE uint32_t dg_f32_bits(float x) { return x == x ? __float_as_uint(x) : 0x7fc00000u; }

/* Two values rounded to BF16 or F16, lo in the low half. The instruction's NaN is 7fff, the largest
 * as a signed integer. */
template <bool BF16>
DG_DEVICE uint32_t dg_round_pair(float lo, float hi) {
  uint32_t pair;
  if constexpr (BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  asm("min.s16x2 %0, %0, %1;" : "+r"(pair) : "r"(BF16 ? 0x7fc07fc0u : 0x7e007e00u));
  return pair;
}

/* Where a lane's elements lie. rows and cols are what is left of the matrix from its first on. */
struct dg_spot {
  int64_t m, n;
  int rows, cols;

  DG_DEVICE dg_spot(const dg_problem &p, int64_t warp_m, int64_t warp_n) {
    const int lane = threadIdx.x % 32;
    m = warp_m + lane / 4;
    n = warp_n + lane % 4 * 2;
    rows = (int)min((int64_t)1 << 30, p.m - m);
    cols = (int)min((int64_t)1 << 30, p.n - n);
  }
  DG_DEVICE int64_t index(const dg_operand &x, int64_t z) const {
    return z * x.bs + m * x.rs + n * x.cs;
  }
  /* Whether accumulator e of a lane is an element of the matrix. */
  DG_DEVICE bool holds(int e) const { return e % 4 / 2 * 8 < rows && e / 4 * 8 + e % 2 < cols; }
};

DG_DEVICE int64_t dg_offset(const dg_operand &x, int e) {
  return e % 4 / 2 * 8 * x.rs + (e / 4 * 8 + e % 2) * x.cs;
}

DG_DEVICE bool dg_aligned(const dg_operand &x, int64_t pitch, int element, int bytes) {
  return ((uintptr_t)x.data | (uintptr_t)(pitch * element) | (uintptr_t)(x.bs * element)) % bytes ==
         0;
}

/* The state to continue from, or +0. A predicated load: where branches join, ptxas puts moves of
 * the accumulators between the wgmma instructions and serialises them. */
template <int COUNT>
DG_DEVICE void dg_load_start(const dg_problem &p, int64_t z, int64_t m, int64_t n,
                             float (&acc)[COUNT]) {
  const dg_spot spot(p, m, n);
  const float *from = (const float *)p.start.data + spot.index(p.start, z);
#pragma unroll
  for (int e = 0; e < COUNT; e++)
    asm volatile(
        "{\n\t.reg .pred here;\n\tsetp.ne.u32 here, %2, 0;\n\t"
        ".reg .f32 value;\n\tmov.f32 value, 0f00000000;\n\t@here ld.global.f32 value, [%1];\n\t"
        "selp.f32 %0, value, 0f00000000, here;\n\t}"
        : "=f"(acc[e])
        : "l"(from + dg_offset(p.start, e)), "r"((int)(p.start.data != nullptr && spot.holds(e))));
}

/* One value a column or a row, whichever stride is not zero. at(i) is the i-th from the lane's. */
template <int COUNT, class LOAD>
DG_DEVICE void dg_add_bias_values(bool by_row, const dg_spot &spot, LOAD at, float (&acc)[COUNT]) {
  const float low = by_row && spot.rows > 0 ? at(0) : 0, high = by_row && spot.rows > 8 ? at(8) : 0;
#pragma unroll
  for (int e = 0; e < COUNT; e += 4)
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
      const int column = e * 2 + odd;
      const float here = !by_row && column < spot.cols ? at(column) : 0;
      acc[e + odd] = __fadd_rn(acc[e + odd], by_row ? low : here);
      acc[e + odd + 2] = __fadd_rn(acc[e + odd + 2], by_row ? high : here);
    }
}

template <int COUNT>
DG_DEVICE void dg_add_bias(const dg_problem &p, int64_t z, const dg_spot &spot,
                           float (&acc)[COUNT]) {
  if (p.bias.data == nullptr) return;
  const bool by_row = p.bias.rs != 0, bf16 = p.bias.dtype == DG_BF16;
  const int64_t first = spot.index(p.bias, z), step = by_row ? p.bias.rs : p.bias.cs;
  if (p.bias.dtype == DG_F32) {
    const float *from = (const float *)p.bias.data + first;
    dg_add_bias_values(
        by_row, spot, [=](int i) { return from[i * step]; }, acc);
    return;
  }
  const uint16_t *from = (const uint16_t *)p.bias.data + first;
  const auto at = [=](int i) {
    const uint16_t bits = from[i * step];
    float f16;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f16) : "h"(bits));
    return bf16 ? __uint_as_float((uint32_t)bits << 16) : f16;
  };
  dg_add_bias_values(by_row, spot, at, acc);
}

/* Any strides: element by element. In a column-contiguous F32 output eight lanes make a sector. */
template <int COUNT>
DG_DEVICE void dg_store_elements_f32(const dg_problem &p, int64_t first, const dg_spot &spot,
                                     float (&acc)[COUNT]) {
  uint32_t *to = (uint32_t *)p.out.data + first;
#pragma unroll
  for (int e = 0; e < COUNT; e++)
    if (spot.holds(e)) to[dg_offset(p.out, e)] = dg_f32_bits(acc[e]);
}

template <bool BF16, int COUNT>
DG_DEVICE void dg_store_elements_16(const dg_problem &p, int64_t first, const dg_spot &spot,
                                    float (&acc)[COUNT]) {
  uint16_t *to = (uint16_t *)p.out.data + first;
#pragma unroll
  for (int e = 0; e < COUNT; e += 2) {
    const uint32_t pair = dg_round_pair<BF16>(acc[e], acc[e + 1]);
    if (spot.holds(e)) to[dg_offset(p.out, e)] = (uint16_t)pair;
    if (spot.holds(e + 1)) to[dg_offset(p.out, e + 1)] = (uint16_t)(pair >> 16);
  }
}

/* Contiguous rows of F32: a lane has 8 bytes, four lanes a sector. */
template <int COUNT>
DG_DEVICE void dg_store_rows_f32(const dg_problem &p, int64_t first, const dg_spot &spot,
                                 float (&acc)[COUNT]) {
  uint32_t *to = (uint32_t *)p.out.data + first;
#pragma unroll
  for (int e = 0; e < COUNT; e += 2) {
    const uint2 pair = make_uint2(dg_f32_bits(acc[e]), dg_f32_bits(acc[e + 1]));
    uint32_t *at = to + dg_offset(p.out, e);
    if (spot.holds(e + 1)) *(uint2 *)at = pair;
    else if (spot.holds(e)) *at = pair.x;
  }
}

/* Transposes the 4x4 words of four neighbouring lanes: lane q gets word q of every lane. */
DG_DEVICE void dg_quad_transpose(uint32_t (&w)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, odd ? w[i] : w[i + 1], 1);
    if (odd) w[i] = got;
    else w[i + 1] = got;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint32_t got = __shfl_xor_sync(~0u, high ? w[i] : w[i + 2], 2);
    if (high) w[i] = got;
    else w[i + 2] = got;
  }
}

/* Contiguous rows of two bytes, eight columns at a time within the matrix: the lanes of a quad
 * exchange words, so that each stores 16 bytes. */
template <bool BF16, int COUNT>
DG_DEVICE void dg_store_rows_16(const dg_problem &p, int64_t z, int64_t m, int64_t n,
                                float (&acc)[COUNT]) {
  const int lane = threadIdx.x % 32;
  const int64_t row = m + lane / 4, col = n + lane % 4 * 8;
  uint16_t *to = (uint16_t *)p.out.data + z * p.out.bs + row * p.out.rs + col;
  const int cols = (int)min((int64_t)1 << 30, p.n - col);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int left = row + half * 8 < p.m ? cols : 0; /* in this row */
#pragma unroll
    for (int j = 0; j < COUNT; j += 16) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        w[i] = dg_round_pair<BF16>(acc[j + 4 * i + 2 * half], acc[j + 4 * i + 2 * half + 1]);
      dg_quad_transpose(w);
      if (j * 2 < left) *(uint4 *)(to + j * 2) = make_uint4(w[0], w[1], w[2], w[3]);
    }
    to += 8 * p.out.rs;
  }
}

/* Contiguous columns of two bytes, four rows at a time within the matrix: 8x8 blocks are transposed
 * and a lane stores four rows. */
template <bool BF16, int COUNT>
DG_DEVICE void dg_store_columns_16(const dg_problem &p, int64_t z, int64_t m, int64_t n,
                                   float (&acc)[COUNT]) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane & 1;
  const int64_t row = m + (odd ? 8 : 0) + (lane % 4 & 2) * 2, col = n + lane / 4;
  uint16_t *to = (uint16_t *)p.out.data + z * p.out.bs + row + col * p.out.cs;
  const int cols = row < p.m ? (int)min((int64_t)1 << 30, p.n - col) : 0;
#pragma unroll
  for (int j = 0; j < COUNT; j += 4) {
    const uint32_t low = dg_matrix_transpose(dg_round_pair<BF16>(acc[j], acc[j + 1]));
    const uint32_t high = dg_matrix_transpose(dg_round_pair<BF16>(acc[j + 2], acc[j + 3]));
    const uint32_t got = __shfl_xor_sync(~0u, odd ? low : high, 1);
    if (j * 2 < cols) *(uint2 *)to = make_uint2(odd ? got : low, odd ? high : got);
    to += 8 * p.out.cs;
  }
}

template <bool BF16, int COUNT>
DG_DEVICE void dg_store_16(const dg_problem &p, int64_t z, int64_t m, int64_t n,
                           const dg_spot &spot, float (&acc)[COUNT]) {
  if constexpr (COUNT % 16 == 0)
    if (p.out.cs == 1 && dg_aligned(p.out, p.out.rs, 2, 16) &&
        (n + COUNT * 2 <= p.n || p.n % 8 == 0)) {
      dg_store_rows_16<BF16>(p, z, m, n, acc);
      return;
    }
  if (p.out.rs == 1 && dg_aligned(p.out, p.out.cs, 2, 8) && (m + 16 <= p.m || p.m % 4 == 0))
    dg_store_columns_16<BF16>(p, z, m, n, acc);
  else dg_store_elements_16<BF16>(p, spot.index(p.out, z), spot, acc);
}

/* Bias, rounding, store. acc is used up. */
template <int COUNT>
DG_DEVICE void dg_store(const dg_problem &p, int64_t z, int64_t m, int64_t n, float (&acc)[COUNT]) {
  const dg_spot spot(p, m, n);
  dg_add_bias(p, z, spot, acc);
  if (p.out.dtype == DG_BF16) dg_store_16<true>(p, z, m, n, spot, acc);
  else if (p.out.dtype == DG_F16) dg_store_16<false>(p, z, m, n, spot, acc);
  else if (p.out.cs == 1 && dg_aligned(p.out, p.out.rs, 4, 8))
    dg_store_rows_f32(p, spot.index(p.out, z), spot, acc);
  else dg_store_elements_f32(p, spot.index(p.out, z), spot, acc);
}

#endif
