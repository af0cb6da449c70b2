/* The AArch64 rows, fastest first within an order. */
#include "neon.h"

#if defined(__aarch64__)

const dg_cpu_kernel dg_cpu_arm_rows[] = {
    {"fma_6x16_neon", DG_ORDER_FMA, DG_CPU_NEON, 6, 16, 1, 4 * 6, 4 * 16, dg_fma_pack_a6_neon,
     dg_fma_pack_b16_neon, dg_fma_6x16_neon, dg_round_generic, 0, NULL, NULL},
    {"tc16_1x16_neon", DG_ORDER_TC16, DG_CPU_NEON, 1, 16, 16, DG_TC16_A_BYTES(1),
     DG_TC16_B_BYTES(16), dg_tc16_pack_a1_neon, dg_tc16_pack_b16_neon, dg_tc16_1x16_neon,
     dg_round_generic, 1, NULL, NULL},
    {"tc16_8x16_neon", DG_ORDER_TC16, DG_CPU_NEON, 8, 16, 16, DG_TC16_A_BYTES(8),
     DG_TC16_B_BYTES(16), dg_tc16_pack_a8_neon, dg_tc16_pack_b16_neon, dg_tc16_8x16_neon,
     dg_round_generic, 0, NULL, NULL},
};
const int dg_cpu_arm_count = sizeof dg_cpu_arm_rows / sizeof dg_cpu_arm_rows[0];

#endif
