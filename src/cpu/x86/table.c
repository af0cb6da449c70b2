/* The x86 rows, fastest first within an order. */
#include "../cpu.h"

#if defined(__x86_64__)

const dg_cpu_kernel dg_cpu_x86_rows[1];
const int dg_cpu_x86_count = 0;

#endif
