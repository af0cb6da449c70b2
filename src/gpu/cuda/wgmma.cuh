/* wgmma: D[64,N] += A[64,16] B[16,N] by one warpgroup, BF16 or F16 in shared memory, FP32
 * accumulators in registers. One instruction is one step of the tc16 order. */
#ifndef DETGEMM_WGMMA_CUH
#define DETGEMM_WGMMA_CUH

#include "ptx.cuh"

/* Registers may be read or changed around the instructions only between wait and fence. */
DG_DEVICE void dg_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DG_DEVICE void dg_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
DG_DEVICE void dg_wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* After the last wait: keeps the compiler from touching the accumulators before it. */
template <int COUNT>
DG_DEVICE void dg_wgmma_settle(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* How a tile of `extent` rows (of m or n) and 64 k lies in shared memory, as TMA writes it.
 * K-major: rows of 64 k, 128-byte swizzle. MN-major: atoms of `width` rows by 64 k, a line per k,
 * swizzled by the line's bytes. */
template <int EXTENT, bool MN_MAJOR>
struct dg_wgmma_tile {
  static constexpr int width = EXTENT % 64 == 0 ? 64 : EXTENT % 32 == 0 ? 32 : 16;
  static constexpr uint64_t swizzle = !MN_MAJOR || width == 64 ? 1 : width == 32 ? 2 : 3;
  static constexpr uint32_t leading = MN_MAJOR ? width * 64 * 2 : 16; /* from atom to atom */
  static constexpr uint32_t stride = MN_MAJOR ? width * 8 * 2 : 1024; /* from 8 lines to the next */
  static constexpr uint32_t k16 = MN_MAJOR ? width * 16 * 2 : 32;     /* from step to step */

  static DG_DEVICE uint64_t descriptor(uint32_t address) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | swizzle << 62;
  }
};

#define DG_ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DG_ACC8(d, i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define DG_ACC16(d, i) DG_ACC8(d, i), DG_ACC8(d, i + 8)
#define DG_ACC32(d, i) DG_ACC16(d, i), DG_ACC16(d, i + 16)
#define DG_ACC48(d, i) DG_ACC32(d, i), DG_ACC16(d, i + 32)
#define DG_ACC64(d, i) DG_ACC32(d, i), DG_ACC32(d, i + 32)
#define DG_ACC96(d, i) DG_ACC64(d, i), DG_ACC32(d, i + 64)
#define DG_ACC128(d, i) DG_ACC64(d, i), DG_ACC64(d, i + 64)

#define DG_REGS4 "%0, %1, %2, %3"
#define DG_REGS8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define DG_REGS16 \
  DG_REGS8        \
  ", "            \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define DG_REGS32                                                               \
  DG_REGS16                                                                     \
  ", "                                                                          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
  "%31"
#define DG_REGS48                                                               \
  DG_REGS32                                                                     \
  ", "                                                                          \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47"
#define DG_REGS64                                                               \
  DG_REGS48                                                                     \
  ", "                                                                          \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
  "%63"
#define DG_REGS96                                                               \
  DG_REGS64                                                                     \
  ", "                                                                          \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
  "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
  "%94, %95"
#define DG_REGS128                                                                 \
  DG_REGS96                                                                        \
  ", "                                                                             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "     \
  "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
  "%122, %123, %124, %125, %126, %127"

#define DG_WGMMA_TEXT(N, TYPE, REGS, A, B, TRANS_A, TRANS_B)                                \
  "{\n\t.reg .pred p;\n\tsetp.eq.u32 p, 0, 0;\n\t"                                          \
  "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" REGS "}, %" A ", %" B \
  ", p, 1, 1, %" TRANS_A ", %" TRANS_B ";\n\t}"

/* dg_wgmma<F16, MN_A, MN_B>(d, a, b): the size of d chooses N. */
#define DG_WGMMA(N, COUNT, A, B, TRANS_A, TRANS_B)                                   \
  template <bool F16, bool MN_A, bool MN_B>                                          \
  DG_DEVICE void dg_wgmma(float(&d)[COUNT], uint64_t a, uint64_t b) {                \
    if constexpr (F16)                                                               \
      asm volatile(DG_WGMMA_TEXT(#N, "f16", DG_REGS##COUNT, A, B, TRANS_A, TRANS_B)  \
                   : DG_ACC##COUNT(d, 0)                                             \
                   : "l"(a), "l"(b), "n"((int)MN_A), "n"((int)MN_B));                \
    else                                                                             \
      asm volatile(DG_WGMMA_TEXT(#N, "bf16", DG_REGS##COUNT, A, B, TRANS_A, TRANS_B) \
                   : DG_ACC##COUNT(d, 0)                                             \
                   : "l"(a), "l"(b), "n"((int)MN_A), "n"((int)MN_B));                \
  }

DG_WGMMA(8, 4, "4", "5", "6", "7")
DG_WGMMA(16, 8, "8", "9", "10", "11")
DG_WGMMA(32, 16, "16", "17", "18", "19")
DG_WGMMA(64, 32, "32", "33", "34", "35")
DG_WGMMA(96, 48, "48", "49", "50", "51")
DG_WGMMA(128, 64, "64", "65", "66", "67")
DG_WGMMA(192, 96, "96", "97", "98", "99")
DG_WGMMA(256, 128, "128", "129", "130", "131")

#endif
