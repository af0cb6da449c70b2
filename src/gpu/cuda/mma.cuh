/* mma.sync: D[16,8] += A[16,16] B[16,8] by one warp, fragments in registers. One instruction is one
 * step of the tc16 order, the same as wgmma's. */
#ifndef DETGEMM_MMA_CUH
#define DETGEMM_MMA_CUH

#include "ptx.cuh"

/* Four, or two, 8x8 matrices whose rows the lanes point to, eight lanes a matrix. */
DG_DEVICE void dg_matrix_load(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(dg_shared(row))
               : "memory");
}

DG_DEVICE void dg_matrix_load(uint32_t (&r)[2], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(dg_shared(row))
               : "memory");
}

#define DG_MMA(TYPE)                                                                  \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <bool F16>
DG_DEVICE void dg_mma(float *d, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (F16) DG_MMA("f16");
  else DG_MMA("bf16");
}

#undef DG_MMA

#endif
