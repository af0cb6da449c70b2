/* The choice of a row and of the way round to run it. */
#ifndef DETGEMM_GPU_PLAN_H
#define DETGEMM_GPU_PLAN_H

#include "../internal.h"
#include "gpu.h"

/* The problem and its exchange. */
void dg_gpu_both_ways(const dg_problem *p, dg_problem ways[2]);

/* The cheaper way round to run a row, or HUGE_VAL and *fits false. */
double dg_gpu_cost(const dg_gpu_kernel *row, const dg_gpu_facts *facts, const dg_problem ways[2],
                   bool *fits, bool *exchanged);

/* The cheapest row of a table that is not withheld and fits; else an error that says why not. */
dg_status dg_gpu_pick(const dg_device *device, const dg_gpu_kernel *(*row)(int index),
                      const dg_gpu_facts *facts, const dg_problem *p, int *kernel);

/* The row for grouped products of g's order; else an error that says why there is none, or what is
 * not aligned. */
dg_status dg_gpu_pick_grouped(const dg_device *device, const dg_gpu_kernel *(*row)(int index),
                              const dg_grouped *g, int *kernel);

#endif
