/* The AArch64 rows, fastest first within an order. */
#include "../cpu.h"

#if defined(__aarch64__)

const dg_cpu_kernel dg_cpu_arm_rows[1];
const int dg_cpu_arm_count = 0;

#endif
