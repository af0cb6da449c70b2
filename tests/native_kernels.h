/* The GPU kernels' own source, run on this processor. */
#ifndef DETGEMM_TESTS_NATIVE_KERNELS_H
#define DETGEMM_TESTS_NATIVE_KERNELS_H

#include "fake_driver.h"

bool native_has(const char *symbol);

/* Runs a launch of a portable fma kernel, block by block; its threads take turns between barriers.
 * Aborts on a kernel it does not have. */
void native_run(const fake_launch *launch);

#endif
