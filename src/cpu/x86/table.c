/* The x86 rows, fastest first within an order. */
#include "fma.h"
#include "tc16.h"

#if defined(__x86_64__)

const dg_cpu_kernel dg_cpu_x86_rows[] = {
    {"fma_1x64_avx512", DG_ORDER_FMA, DG_CPU_AVX2 | DG_CPU_AVX512, 1, 64, 1, 4 * 1, 4 * 64,
     dg_fma_pack_1_avx2, dg_fma_pack_64_avx2, dg_fma_1x64_avx512, dg_round_avx2, 1,
     dg_fma_direct_1x64_avx512, dg_fma_across_avx512},
    {"fma_8x32_avx512", DG_ORDER_FMA, DG_CPU_AVX2 | DG_CPU_AVX512, 8, 32, 1, 4 * 8, 4 * 32,
     dg_fma_pack_8_avx2, dg_fma_pack_32_avx2, dg_fma_8x32_avx512, dg_round_avx2, 16,
     dg_fma_direct_8x32_avx512, NULL},
    {"fma_14x32_avx512", DG_ORDER_FMA, DG_CPU_AVX2 | DG_CPU_AVX512, 14, 32, 1, 4 * 16, 4 * 32,
     dg_fma_pack_16_avx2, dg_fma_pack_32_avx2, dg_fma_14x32_avx512, dg_round_avx2, 0, NULL, NULL},
    {"fma_1x32_avx2", DG_ORDER_FMA, DG_CPU_AVX2, 1, 32, 1, 4 * 1, 4 * 32, dg_fma_pack_1_avx2,
     dg_fma_pack_32_avx2, dg_fma_1x32_avx2, dg_round_avx2, 1, dg_fma_direct_1x32_avx2,
     dg_fma_across_avx2},
    {"fma_3x32_avx2", DG_ORDER_FMA, DG_CPU_AVX2, 3, 32, 1, 4 * 4, 4 * 32, dg_fma_pack_4_avx2,
     dg_fma_pack_32_avx2, dg_fma_3x32_avx2, dg_round_avx2, 6, dg_fma_direct_3x32_avx2, NULL},
    {"fma_6x16_avx2", DG_ORDER_FMA, DG_CPU_AVX2, 6, 16, 1, 4 * 8, 4 * 16, dg_fma_pack_8_avx2,
     dg_fma_pack_16_avx2, dg_fma_6x16_avx2, dg_round_avx2, 0, NULL, NULL},
    {"tc16_1x64_avx512", DG_ORDER_TC16, DG_CPU_AVX2 | DG_CPU_AVX512, 1, 64, 16, DG_TC16_A_BYTES(1),
     DG_TC16_B_BYTES(64), dg_tc16_pack_a1_avx2, dg_tc16_pack_b64_avx2, dg_tc16_1x64_avx512,
     dg_round_avx2, 1, dg_tc16_direct_1x64_avx512, NULL},
    {"tc16_16x64_avx512", DG_ORDER_TC16, DG_CPU_AVX2 | DG_CPU_AVX512, 16, 64, 16,
     DG_TC16_A_BYTES(16), DG_TC16_B_BYTES(64), dg_tc16_pack_a16_avx2, dg_tc16_pack_b64_avx2,
     dg_tc16_16x64_avx512, dg_round_avx2, 16, dg_tc16_direct_16x64_avx512, NULL},
    {"tc16_8x64_avx512", DG_ORDER_TC16, DG_CPU_AVX2 | DG_CPU_AVX512, 8, 64, 16, DG_TC16_A_BYTES(8),
     DG_TC16_B_BYTES(64), dg_tc16_pack_a8_avx2, dg_tc16_pack_b64_avx2, dg_tc16_8x64_avx512,
     dg_round_avx2, 0, NULL, NULL},
    {"tc16_1x32_avx2", DG_ORDER_TC16, DG_CPU_AVX2, 1, 32, 16, DG_TC16_A_BYTES(1),
     DG_TC16_B_BYTES(32), dg_tc16_pack_a1_avx2, dg_tc16_pack_b32_avx2, dg_tc16_1x32_avx2,
     dg_round_avx2, 1, dg_tc16_direct_1x32_avx2, NULL},
    {"tc16_16x32_avx2", DG_ORDER_TC16, DG_CPU_AVX2, 16, 32, 16, DG_TC16_A_BYTES(16),
     DG_TC16_B_BYTES(32), dg_tc16_pack_a16_avx2, dg_tc16_pack_b32_avx2, dg_tc16_16x32_avx2,
     dg_round_avx2, 16, dg_tc16_direct_16x32_avx2, NULL},
    {"tc16_8x32_avx2", DG_ORDER_TC16, DG_CPU_AVX2, 8, 32, 16, DG_TC16_A_BYTES(8),
     DG_TC16_B_BYTES(32), dg_tc16_pack_a8_avx2, dg_tc16_pack_b32_avx2, dg_tc16_8x32_avx2,
     dg_round_avx2, 0, NULL, NULL},
};
const int dg_cpu_x86_count = sizeof dg_cpu_x86_rows / sizeof dg_cpu_x86_rows[0];

#endif
