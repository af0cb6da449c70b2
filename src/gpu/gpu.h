/* How any GPU makes the orders: the kernel row, the launch, and the facts a row may ask for. */
#ifndef DETGEMM_GPU_H
#define DETGEMM_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "../problem.h"
#include "tuning.h"

/* What the planner knows of a device. */
typedef struct dg_gpu_facts {
  int arch;            /* compute capability as 10 * major + minor; 90 is Hopper */
  int multiprocessors; /* SMs, CUs */
  int shared_bytes;    /* block memory one block may opt in to */
} dg_gpu_facts;

/* A tiled tensor map (TMA) of an operand's data: dims[0] is the contiguous one. strides[i] is in
 * bytes, of dims[i+1]. Out-of-range elements read as +0. The driver's rules, which fits() must have
 * checked: data and strides are multiples of 16 bytes, strides below 2^40, dims at most 2^32, box
 * sides at most 256, and box[0] is a multiple of 16 bytes, no longer than the swizzle. */
typedef struct dg_gpu_map {
  int rank; /* 1 to 3 */
  uint64_t dims[3];
  uint64_t strides[2];
  uint32_t box[3];
  int swizzle_bytes;   /* 0, 32, 64 or 128 */
  int promotion_bytes; /* what a miss fetches into the L2: 0 (as the box needs), 64, 128 or 256 */
  int element_bytes;   /* 0 or 2: two bytes; 4: FP32 */
} dg_gpu_map;

/* One launch, filled by a row's prepare() from zeros. It is used again for the same problem at
 * other addresses of the same alignment (to 256 bytes), so no address may be in it. A kernel's
 * parameters are: const
 * __grid_constant__ dg_problem, then map_count const __grid_constant__ CUtensorMap, then const
 * __grid_constant__ dg_gpu_tuning. */
typedef struct dg_gpu_launch {
  uint32_t grid[3];
  uint32_t block;        /* threads, one-dimensional */
  uint32_t cluster;      /* blocks in a cluster along x; 0 or 1: none */
  uint32_t shared_bytes; /* dynamic block memory */
  bool overlap;          /* programmatic dependent launch: the kernel calls griddepcontrol.wait
                            before it touches memory */
  int map_count;         /* 0 or 2 */
  dg_gpu_map maps[2];    /* of a and of b */
  dg_gpu_tuning tuning;
} dg_gpu_launch;

/* One kernel. Every row of an order gives the same bits, so fits() must be right and
 * microseconds() may be wrong: it costs only speed. Both are asked about the problem and about its
 * exchange (out^T = b^T a^T), so a row needs to know one of the two ways only; the problem has
 * elements to compute and the row's order, k may be zero. Both are called on every dg_gemm: a few
 * comparisons, no loops. A row that must only run when DETGEMM_KERNEL asks for it costs HUGE_VAL.
 */
typedef struct dg_gpu_kernel {
  const char *name;   /* <order>_<tile>_<arch>, also what DETGEMM_KERNEL matches */
  const char *symbol; /* the extern "C" kernel in the image */
  const void *image;  /* a DG_GPU_IMAGE */
  int order;          /* a dg_order */
  int arch_min, arch_max;
  bool (*fits)(const dg_problem *p, const dg_gpu_facts *facts);
  double (*microseconds)(const dg_problem *p, const dg_gpu_facts *facts);
  void (*prepare)(const dg_problem *p, const dg_gpu_facts *facts, dg_gpu_launch *launch);
} dg_gpu_kernel;

/* The most rows that a platform may have. */
enum { DG_GPU_MAX_ROWS = 64 };

/* The fits() and microseconds() of a row for grouped products, and what marks it as one. Its
 * kernel's first parameter is a dg_grouped. It takes single products too, as one group with offsets
 * NULL, but only to be tested on them. */
bool dg_gpu_fits_grouped(const dg_problem *p, const dg_gpu_facts *facts);
double dg_gpu_only_forced(const dg_problem *p, const dg_gpu_facts *facts);

/* Declares an image embedded by the build, or one that this build does not have: its address is
 * NULL then, and the rows are withheld. */
#define DG_GPU_IMAGE(name) extern const unsigned char name[] __attribute__((visibility("hidden")))
#define DG_GPU_NO_IMAGE(name) \
  extern const unsigned char name[] __attribute__((weak, visibility("hidden")))

#endif
