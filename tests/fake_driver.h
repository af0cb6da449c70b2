/* A test double of a GPU driver: the functions of src/gpu/driver.h under a platform's own names, on
 * host memory. It checks every argument, counts what is alive, and fails where it is told to. A
 * launch computes the product that the kernel's first parameter describes, by the scalar reference
 * or by the program's own function.
 *
 * fake_driver.c is compiled once per platform, with a header that gives the names (fake_cuda.h). */
#ifndef DETGEMM_TESTS_FAKE_DRIVER_H
#define DETGEMM_TESTS_FAKE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "../src/problem.h"

/* One launch as the kernel would see it. parameters[0] is the dg_problem. */
typedef struct fake_launch {
  const char *symbol;
  uint32_t grid[3], block[3], cluster, shared_bytes;
  bool overlap;
  void *stream;
  void **parameters;
} fake_launch;

/* What a test may set, and see. The driver exports one, named fake_driver. */
typedef struct fake_driver {
  /* The machine. Set before the driver's init. */
  int devices, capability[2], multiprocessors, shared_optin, warp;

  /* Failures: the call number fail_at (0: the next) returns fail_with and does nothing; if sticky,
   * all later ones do too. -1: none. */
  int fail_at, fail_with;
  bool sticky;

  /* What alloc gives: 0 device memory, 1 pinned host memory, 2 managed memory. */
  int kind;

  /* The driver says that every pointer is memory of the device. */
  bool knows_every_pointer;

  /* Symbols matching this wildcard give one wrong bit. NULL: none. */
  const char *wrong;

  /* Runs a launch in place of the scalar reference. NULL: the reference. */
  void (*execute)(const fake_launch *launch);

  /* What happened. */
  int calls, launches;
  const char *failed_call;                     /* the last call that failed on purpose */
  int retained, modules, allocations, streams; /* alive */
  char misuse[200];                            /* the first wrong argument; empty: none */
} fake_driver;

#endif
