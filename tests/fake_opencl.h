/* A test double of libOpenCL.so.1 on host memory. It checks every argument, counts what is alive,
 * and fails or says strange things where it is told to. A launch hands the product to the program's
 * own function. */
#ifndef DETGEMM_TESTS_FAKE_OPENCL_H
#define DETGEMM_TESTS_FAKE_OPENCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../src/problem.h"

typedef struct fake_opencl {
  /* The machine. Set before the library looks for devices. */
  int platforms, devices, claimed; /* claimed: more of both than there are; 0: the truth */
  uint64_t type, config, local_bytes;
  uint32_t compiler, little_endian, units;
  const char *version;
  bool endless_texts; /* no zero at their ends */

  /* Memory: buffers over plain memory are copies, brought back when they are mapped; every pointer
   * counts as SVM. */
  bool copies, all_shared;

  /* Failures: the call number fail_at (0: the next) returns fail_with and does nothing; if sticky,
   * all later ones do too. -1: none. fail_call: this call does, always. */
  int fail_at, fail_with;
  bool sticky;
  const char *fail_call;
  bool gives_nothing; /* calls that make an object and fail return no error */
  const char *build_log;

  void (*execute)(const char *symbol, const dg_grouped *product);

  /* What happened. */
  int calls, launches, builds;
  const char *failed_call; /* the first call that failed on purpose */
  int alive[5];            /* contexts, queues, programs, kernels, buffers */
  char misuse[200];        /* the first wrong argument; empty: none */
} fake_opencl;

#endif
