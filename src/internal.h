/* What the layers of the library share. API -> check -> plan -> kernel; nothing calls upward. */
#ifndef DETGEMM_INTERNAL_H
#define DETGEMM_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "detgemm.h"
#include "problem.h"

#if defined(__GNUC__)
#define DG_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define DG_PRINTF(text, first)
#endif

/* error.c: records one sentence for dg_last_error() and returns status. */
dg_status dg_fail(dg_status status, const char *format, ...) DG_PRINTF(2, 3);

/* problem.c: checks the arguments and makes one strided product of them. On success p is complete;
 * p->m, n or batch may be zero, which is nothing to do. */
dg_status dg_problem_make(const dg_gemm_args *args, dg_problem *p);

/* problem.c: the same for a grouped product. The offsets are not looked at. */
dg_status dg_grouped_make(const dg_grouped_args *args, dg_grouped *g);

/* grouped.c: reads offsets in host memory into first[groups + 1], and checks that they ascend
 * within the rows that are cut. */
dg_status dg_grouped_offsets(const dg_grouped *g, int64_t *first);

/* grouped.c: the product of one group, whose rows are first to last - 1. */
dg_problem dg_grouped_part(const dg_grouped *g, int64_t group, int64_t first, int64_t last);

/* canary.c: an error where this build's scalar reference is not the orders' definition. */
dg_status dg_canary(void);

/* problem.c: out^T = b^T a^T, the same bits in both orders. */
void dg_problem_exchange(dg_problem *p);

/* A back end: the CPU or one GPU platform. One constant struct each, listed in registry.c. */
typedef struct dg_backend {
  const char *name;   /* the part of a device name before the colon */
  bool numbered;      /* whether names carry an index: "cuda:0" */
  int (*count)(void); /* devices that could be opened */
  /* Fills device->description, kernels, kernel_count and state. */
  dg_status (*open)(dg_device *device, int index);
  void (*close)(dg_device *device);
  /* The index in device->kernels of the row to use, or an error that says why there is none. */
  dg_status (*choose)(const dg_device *device, const dg_problem *p, int *kernel);
  /* Whether a row takes p; NULL: every row takes every product of its order. */
  bool (*takes)(const dg_device *device, const dg_problem *p, int kernel);
  /* Runs that row. p has elements to compute. */
  dg_status (*run)(dg_device *device, const dg_problem *p, int kernel, void *stream);
  /* Runs a grouped product; NULL: there is none. g->p.m and n are not zero. Whatever the offsets
   * hold, no memory outside the views is touched; a back end that can read them in the call returns
   * DG_ERROR_ARGUMENT for bad ones before it writes anything. */
  dg_status (*run_grouped)(dg_device *device, const dg_grouped *g, void *stream);
} dg_backend;

struct dg_device {
  const dg_backend *backend;
  uint64_t serial; /* 1 and up; no two handles of a process have the same */
  char name[32];
  char description[160];
  atomic_int threads;      /* 0: the default; may be set while calls are under way */
  dg_kernel_info *kernels; /* owned; one per row of the back end's table */
  int kernel_count;
  void *state; /* the back end's own */
};

/* registry.c: the back ends of this build, in the order dg_device_count() lists them. */
extern const dg_backend *const dg_backends[];
extern const int dg_backend_count;

/* device.c: fills device->kernels from names and orders; DETGEMM_KERNEL withholds what it does not
 * match. A back end calls it from open() and may withhold more. */
dg_status dg_device_list_kernels(dg_device *device, int count,
                                 void (*row)(const dg_device *device, int index,
                                             dg_kernel_info *info));

/* probe.c: runs the device's rows on small products with edge inputs, compares with the reference
 * and withholds those that differ (the first differing case, bits in hex). kept holds an entry for
 * each row: the verdicts of this process on this device, zeros at first, so that each row is
 * judged once. A failure that is not a row's own, such as a lack of memory, is returned. */
enum { DG_PROBE_TEXT = 160 };
typedef struct dg_verdict {
  bool reached, wanted, tried;
  char why[DG_PROBE_TEXT]; /* empty: the same bits */
} dg_verdict;

typedef struct dg_probe_memory {
  dg_status (*alloc)(void *context, void **data, size_t bytes);
  dg_status (*copy_in)(void *context, void *device, const void *host, size_t bytes);
  dg_status (*copy_out)(void *context, void *host, const void *device, size_t bytes);
  void (*release)(void *context, void *device);
  void *context;
  bool large; /* whether to run the aligned products for large tiles too */
} dg_probe_memory;

dg_status dg_probe(dg_device *device, const dg_probe_memory *memory, dg_verdict *kept);

#endif
