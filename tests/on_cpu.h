/* What a double's launch computes: the same product by the CPU's kernels, which are fast. */
#ifndef DETGEMM_TESTS_ON_CPU_H
#define DETGEMM_TESTS_ON_CPU_H

#include "../src/problem.h"
#include "detgemm.h"

/* cpu: the open device "cpu". Exits where that fails. */
void compute_on_cpu(dg_device *cpu, const dg_problem *p);

#endif
